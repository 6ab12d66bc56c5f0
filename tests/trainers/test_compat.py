"""What `trainers/compat/` relies on is there in torch, torchvision and pyautoattack, and behaves as it is used."""

import copy
import inspect
import logging
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import torch._dynamo
from pyautoattack import AutoAttack, checks
from torch import nn

from tests.trainers.tiny import tiny_problem
from trainers.attacks.perturbation.apgd import StoppingAPGD, StoppingTargetedAPGD
from trainers.attacks.perturbation.fab import DirectFAB
from trainers.attacks.perturbation.square import RememberingSquare
from trainers.compat import autoattack_internals as internals
from trainers.compat.autoattack_internals import APGDAttack, APGDAttack_targeted, FABAttack_PT, SquareAttack
from trainers.compat.torch_internals import (
    BatchNorm,
    TorchDispatchMode,
    batchnorms,
    copy_without_hooks,
    floating_point_operations,
    raise_recompile_limit,
    storage_key,
)
from trainers.compat.torchvision_internals import MISSING, OPERATORS

OURS = {
    APGDAttack: StoppingAPGD,
    APGDAttack_targeted: StoppingTargetedAPGD,
    FABAttack_PT: DirectFAB,
    SquareAttack: RememberingSquare,
}


# torch


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2), nn.SyncBatchNorm(2), nn.LazyBatchNorm2d()],
    ids=lambda layer: type(layer).__name__,
)
def test_every_batchnorm_of_torch_has_the_one_ancestor(layer):
    assert isinstance(layer, BatchNorm)
    assert layer.track_running_stats and layer.momentum == 0.1 and layer.num_batches_tracked is not None


def test_other_normalisations_are_no_batchnorm_and_a_users_own_is_one():
    class Own(BatchNorm):
        pass

    others = [nn.InstanceNorm2d(2, track_running_stats=True), nn.GroupNorm(1, 2), nn.LayerNorm(2)]
    own = Own(2)
    assert batchnorms(nn.Sequential(*others, nn.Sequential(own))) == [own]


def test_forward_hooks_lie_in_two_dictionaries_of_the_module():
    layer = nn.Linear(2, 2)
    assert layer._forward_hooks == layer._forward_pre_hooks == OrderedDict()
    before, after = layer.register_forward_pre_hook(print), layer.register_forward_hook(print)
    assert list(layer._forward_pre_hooks.values()) == list(layer._forward_hooks.values()) == [print]
    before.remove()
    after.remove()
    assert not layer._forward_hooks and not layer._forward_pre_hooks


def test_a_copy_without_hooks_shares_the_parameters_and_nothing_else():
    heard = []
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.BatchNorm2d(2)))
    for module in model.modules():
        module.register_forward_pre_hook(lambda *_: heard.append("before"))
        module.register_forward_hook(lambda *_: heard.append("after"), always_call=True)
        module.register_forward_hook(lambda *_, **__: heard.append("with keywords"), with_kwargs=True)
    twin, images = copy_without_hooks(model), torch.rand(2, 1, 4, 4)
    assert torch.equal(twin(images), twin(images)) and heard == []
    assert all(mine is its for mine, its in zip(twin.parameters(), model.parameters(), strict=True))
    assert (twin[1][0].num_batches_tracked, model[1][0].num_batches_tracked) == (2, 0)
    model(images)
    assert len(heard) == 3 * 4
    copy.deepcopy(model)(images)
    assert len(heard) == 2 * 3 * 4, "an ordinary copy keeps the hooks"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_dispatch_mode_sees_every_operation_and_the_registry_counts_it(device):
    counts = {}

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            result = function(*arguments, **(keywords or {}))
            counts[str(function)] = floating_point_operations(function, arguments, keywords or {}, result)
            return result

    with Counting():
        left = torch.ones(2, 3, device=device, requires_grad=True)
        product = left @ torch.ones(3, 4, device=device)
        torch.relu(product).sum().backward()
        nn.Conv2d(1, 5, 3, bias=False, device=device)(torch.ones(1, 1, 4, 4, device=device))
    assert counts["aten.mm.default"] == 2 * 2 * 3 * 4
    assert counts["aten.convolution.default"] == 2 * (5 * 2 * 2) * 3 * 3
    assert counts["aten.relu.default"] == counts["aten.threshold_backward.default"] == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_views_have_the_key_of_their_storage_and_other_tensors_have_others(device):
    tensor, other = torch.ones(4, 2, device=device), torch.ones(4, 2, device=device)
    assert storage_key(tensor) == storage_key(tensor.t()[1:]) == storage_key(tensor.detach())
    assert storage_key(tensor) != storage_key(other)


def test_the_limit_of_compiled_variants_is_raised_and_never_lowered():
    before = torch._dynamo.config.recompile_limit
    try:
        raise_recompile_limit(before + 5)
        raise_recompile_limit(1)
        assert torch._dynamo.config.recompile_limit == before + 5
    finally:
        torch._dynamo.config.recompile_limit = before


# torchvision

PLAIN = """
import torch
try:
    import torchvision
except RuntimeError as error:
    print(error)
else:
    print("loads" if all(hasattr(torch.ops.torchvision, name) for name in {operators}) else "lacks an operator")
"""
BUILDS = """
import sys
from pathlib import Path
from trainers import models
from trainers.plugins import registry
assert "torch" not in sys.modules
for file in sys.argv[1:]:
    name = registry.load_network(f"{file}:build", Path("."))
    print(name, models.misfit_of(name, 7, (3, 32, 32)))
import torch, torchvision
try:
    print(torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5).tolist())
except RuntimeError as error:
    print(error)
"""
NETWORKS = {
    "above.py": (
        "import torchvision\n\ndef build(classes):\n    return torchvision.models.squeezenet1_1(num_classes=classes)\n"
    ),
    "inside.py": (
        "def build(classes):\n    from torchvision.models import squeezenet1_1\n"
        "    return squeezenet1_1(num_classes=classes)\n"
    ),
    "beside.py": "from above import build\n",
}


def printed(script: str, folder: Path, *words: str) -> list[str]:
    """Return what a new process prints: torchvision is imported once in each."""
    command = [sys.executable, "-c", script, *words]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_torchvision_loads_or_fails_for_the_reason_that_is_mended(tmp_path):
    (line,) = printed(PLAIN.format(operators=OPERATORS), tmp_path)
    assert line == "loads" or MISSING in line


@pytest.mark.parametrize("order", [["above.py", "inside.py"], ["inside.py", "beside.py"], ["beside.py", "above.py"]])
def test_a_users_network_may_come_from_torchvision(tmp_path, order):
    for name, text in NETWORKS.items():
        (tmp_path / name).write_text(text)
    *built, called = printed(BUILDS, tmp_path, *order)
    assert built == [f"{name}:build None" for name in order]
    assert called == "[0]" or "Couldn't load custom C++ ops" in called, "a missing operator says what it lacks"


# pyautoattack


def parameters(function) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name != "self")


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_package_has_the_methods_that_are_overridden_and_called(kind):
    signatures = {**internals.OVERRIDDEN[kind], **internals.CALLED[kind]}
    assert {name: parameters(getattr(kind, name)) for name in signatures} == signatures


@pytest.mark.parametrize(("kind", "ours"), OURS.items(), ids=lambda kind: kind.__name__)
def test_our_components_override_what_is_written_down_and_no_more(kind, ours):
    mine = {name for one in ours.__mro__ if one not in kind.__mro__ for name in vars(one)}
    overridden = {name for name in mine if hasattr(kind, name) and not name.startswith("__")}
    assert overridden == set(internals.OVERRIDDEN[kind])
    assert {name: parameters(getattr(ours, name)) for name in overridden} == internals.OVERRIDDEN[kind]


def test_the_package_checks_defences_by_the_functions_that_are_called():
    assert {name: parameters(getattr(checks, name)) for name in internals.CHECKS} == internals.CHECKS


@pytest.mark.parametrize("version", ["standard", "rand"])
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_a_suite_has_its_components_with_the_settings_that_are_read(norm, version):
    suite = AutoAttack(nn.Identity(), eps=0.1, norm=norm, seed=3, version=version)
    components = (suite.apgd, suite.apgd_targeted, suite.fab, suite.square)
    assert [type(component) for component in components] == list(internals.SETTINGS)
    for component, names in zip(components, internals.SETTINGS.values(), strict=True):
        assert set(names) <= set(vars(component))
        assert (component.norm, component.eps, component.seed) == (norm, 0.1, 3)
    assert suite.logger.name == internals.LOGGER
    assert suite.apgd.logger is suite.apgd_targeted.logger is logging.getLogger(internals.LOGGER)


@pytest.mark.parametrize("kind", [APGDAttack, APGDAttack_targeted])
def test_auto_pgd_keeps_the_schedule_of_its_steps(kind):
    attack = kind(nn.Identity(), n_iter=100, eps=0.1, rho=0.75)
    assert internals.schedule(attack) == (22, 6, 3, 0.75)


@pytest.mark.parametrize("kind", [APGDAttack, APGDAttack_targeted])
def test_perturb_of_auto_pgd_uses_what_the_overridden_method_returns(kind):
    model, images, labels = tiny_problem(12)
    calls = []

    class Fooling(kind):
        def attack_single_run(self, x, y, x_init=None):
            calls.append((len(x), x_init, self.y_target))
            robust = torch.arange(len(x)) > 0  # the first of those that stand falls
            return x + 9, robust, torch.zeros(len(x)), x + 1

    right = (model(images).argmax(dim=1) == labels).nonzero().flatten()
    attack = Fooling(model, eps=0.1, seed=0, n_restarts=2, device="cpu")
    attack.n_target_classes = 1
    with torch.random.fork_rng(devices=[]):
        found = attack.perturb(images.clone(), labels.clone())
    moved = (found != images).flatten(1).any(dim=1).nonzero().flatten()
    assert torch.equal(moved, right[:2]) and torch.equal(found[moved], images[moved] + 1)
    assert [(count, start) for count, start, _ in calls] == [(len(right), None), (len(right) - 1, None)]
    targets = model(images).argsort(dim=1)[:, -2]
    for (count, _, target), standing in zip(calls, (right, right[1:]), strict=True):
        assert count == len(standing)
        assert torch.equal(target, targets[standing]) if kind is APGDAttack_targeted else target is None


def test_perturb_of_square_uses_what_the_overridden_method_returns():
    model, images, labels = tiny_problem(12)
    wrong = model(images).argmax(dim=1) != labels
    calls = []

    class Fooling(SquareAttack):
        def attack_single_run(self, x, y):
            calls.append(len(x))
            return torch.zeros(len(x)), torch.rand_like(x) * 100 - 50

    with torch.random.fork_rng(devices=[]):
        found = Fooling(model, eps=0.1, seed=0, device="cpu").perturb(images.clone(), labels.clone())
    assert calls == [int((~wrong).sum())]
    fooled = model(found).argmax(dim=1) != labels
    assert torch.equal((found != images).flatten(1).any(dim=1), fooled & ~wrong) and (fooled & ~wrong).any()


def test_square_draws_signs_and_shrinks_its_share_of_the_image():
    attack = SquareAttack(nn.Identity(), p_init=0.8, n_queries=5000, eps=0.1, resc_schedule=False, device="cpu")
    with torch.random.fork_rng(devices=[]):
        assert set(attack.random_choice([2, 3, 1, 40]).unique().tolist()) == {-1.0, 1.0}
    assert [attack.p_selection(query) for query in (0, 10, 11, 51, 4001)] == [0.8, 0.8, 0.4, 0.2, 0.00625]


def test_the_package_counts_gradients_in_a_global_that_it_never_resets():
    assert checks.funcs and all(isinstance(count, int) for count in checks.funcs.values())
    assert {"grad", "backward"} <= set(checks.funcs)

    class Dynamic(nn.Module):
        def forward(self, images):
            with torch.enable_grad():
                images = images.clone().requires_grad_()
                return torch.autograd.grad((images**2).sum(), images)[0].flatten(1)

    messages = []
    logger = logging.Logger("defence")
    logger.addFilter(lambda record: messages.append(record.getMessage()))
    plain, images, tracer = nn.Flatten(), torch.rand(2, 1, 2, 2), sys.gettrace()
    internals.check_dynamic(plain, images, logger)
    assert messages == []
    internals.check_dynamic(Dynamic(), images, logger)
    assert len(messages) == 1 and "dynamic defense" in messages[0]
    assert any(checks.funcs.values()), "the package resets its counts: check_dynamic need not"
    internals.check_dynamic(plain, images, logger)
    assert len(messages) == 1 and sys.gettrace() is tracer

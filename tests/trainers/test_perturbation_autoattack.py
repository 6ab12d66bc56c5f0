"""The wrapper against the package itself: same verdicts, other manners."""

import random
import sys

import numpy as np
import pytest
import torch
from pyautoattack import AutoAttack
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_projections import projection_linf
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import nn

from tests.trainers.tiny import all_phases, tiny_problem
from trainers.attacks import parse
from trainers.attacks.perturbation import autoattack
from trainers.attacks.perturbation.apgd import stopping
from trainers.attacks.perturbation.fab import DirectFAB, moves_to_hyperplane
from trainers.attacks.perturbation.square import RememberingSquare
from trainers.attacks.scoring.scorer import ready

EPSILON = 0.06


def plain(model, images, labels, components, batch_size, queries=300, targets=9, norm="Linf", eps=EPSILON):
    """The package as its users run it; the model keeps its parameters' gradients."""
    attack = AutoAttack(model, eps=eps, norm=norm, seed=0, version="standard")
    attack.attacks_to_run = list(components)
    attack.square.n_queries = queries
    if norm != "L1":
        attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = targets
    with torch.random.fork_rng(devices=[]):
        _, predicted = attack.run_standard_evaluation(images, labels, batch_size=batch_size)
    return predicted == labels


def ours(name="autoattack", batch_size=8, queries=300, **options):
    return parse(name, epsilon=str(EPSILON), batch_size=batch_size, queries=queries, **options)


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(22)


def test_standard_verdicts_equal_the_package_with_survivors_packed_into_new_batches(problem):
    model, images, labels = problem
    attack = ours()
    expected = plain(model, images, labels, attack.components, batch_size=8)
    found = all_phases(model, images, labels, attack)
    assert torch.equal(found.correct, expected)
    assert 0 < found.correct.sum() < found.clean.sum() < len(images)
    fast = all_phases(ready(tiny_problem(22)[0], "cpu"), images, labels, attack)
    assert torch.equal(fast.correct, expected)


@pytest.mark.parametrize("component", ["apgd-ce", "apgd-t", "fab-t", "square"])
def test_a_component_alone_runs_on_all_images_that_are_right(problem, component):
    model, images, labels = problem
    found = all_phases(model, images, labels, ours(component, batch_size=64))
    assert torch.equal(found.correct, plain(model, images, labels, [component], batch_size=64))


@pytest.mark.parametrize(("norm", "name", "eps"), [("l2", "L2", 0.35), ("l1", "L1", 1.0)])
def test_other_norms_have_the_package_s_own_settings_and_verdicts(problem, norm, name, eps):
    model, images, labels = problem
    attack = ours(f"autoattack@{norm}:{eps}", queries=20)
    package = AutoAttack(model, eps=eps, norm=name, seed=0)
    theirs = {
        "apgd-ce": package.apgd,
        "apgd-t": package.apgd_targeted,
        "fab-t": package.fab,
        "square": package.square,
    }
    package.square.n_queries, package.fab.targeted = 20, True
    for component, expected in theirs.items():
        found = autoattack.component_attack(model, component, attack, torch.device("cpu"))
        for setting, value in vars(expected).items():
            if isinstance(value, str | int | float | bool) and setting not in ("device", "verbose"):
                assert getattr(found, setting) == value, (component, setting)
    images, labels = images[:3], labels[:3]
    found = all_phases(model, images, labels, attack)
    assert torch.equal(found.correct, plain(model, images, labels, attack.components, 8, 20, 9, name, eps))
    assert found.correct.sum() < found.clean.sum()


class NoisyInput(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images + 0.02 * torch.randn_like(images))


def test_a_randomised_model_is_attacked_with_the_package_s_version_for_such(problem):
    model, images, labels = problem
    noisy, attack = NoisyInput(model).eval(), ours("autoattack-rand")
    assert attack.phases == ("clean", "apgd-ce", "apgd-dlr") and attack.samples == 20
    run = autoattack.component_attack(noisy, "apgd-dlr", attack, torch.device("cpu"))
    theirs = AutoAttack(noisy, eps=EPSILON, seed=0, version="rand").apgd
    assert (run.eot_iter, run.n_restarts, run.n_iter, run.loss) == (20, 1, 100, "dlr")
    assert (theirs.eot_iter, theirs.n_restarts, theirs.n_iter) == (20, 1, 100)
    # A few samples of each gradient will do to see that the seed decides.
    attack = attack.model_copy(update={"samples": 3})
    found = [all_phases(noisy, images[:4], labels[:4], attack) for _ in range(2)]
    assert torch.equal(found[0].correct, found[1].correct) and not found[0].warnings
    assert found[0].correct.sum() < found[0].clean.sum()


def test_fewer_classes_limit_the_targets():
    model, images, labels = tiny_problem(8, classes=5)
    attack = ours(classes=5, batch_size=12, queries=50)
    assert attack.targets == 4
    expected = plain(model, images, labels, attack.components, batch_size=12, queries=50, targets=4)
    assert torch.equal(all_phases(model, images, labels, attack).correct, expected)
    with pytest.raises(ValueError, match="at least 4 classes"):
        ours(classes=3)


class Counting(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.images = model, 0

    def forward(self, images):
        self.images += len(images)
        return self.model(images)


class Watching(nn.Module):
    def __init__(self, model, seen):
        super().__init__()
        self.model, self.seen = model, seen

    def forward(self, images):
        self.seen.append(images.detach().clone())
        return self.model(images)


@pytest.mark.parametrize(("side", "channels"), [(6, 1), (8, 3)])
def test_square_makes_the_package_s_choices_with_fewer_queries(side, channels):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, 10)).eval()
    images = torch.rand(30, channels, side, side)
    labels = model(images).argmax(dim=1)
    results = {}
    for kind in (SquareAttack, RememberingSquare):
        counting = Counting(model)
        attack = kind(counting, p_init=0.8, n_queries=1500, eps=0.03, seed=0, resc_schedule=False, device="cpu")
        results[kind] = attack.perturb(images, labels), counting.images
    (expected, many), (found, few) = results[SquareAttack], results[RememberingSquare]
    # A smaller batch may round a margin differently, which decides about changes of one unit in the last place.
    assert torch.allclose(found, expected, rtol=0, atol=1e-7)
    assert torch.equal(model(found).argmax(1), model(expected).argmax(1))
    assert 0 < (model(found).argmax(1) != labels).sum() < 30
    assert few < (0.4 if side == 6 else 0.98) * many


def test_no_global_generator_and_no_debugger_notices(problem):
    model, images, labels = problem
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()

    def tracer(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        all_phases(model, images[:8], labels[:8], ours("apgd-ce"))
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()


def test_parameters_get_no_gradient_and_keep_their_flags():
    model, images, labels = tiny_problem(4)
    all_phases(model, images, labels, ours("fab-t"))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


class Noisy(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images) + 0.5 * torch.randn(len(images), 10)


class Flat(nn.Module):
    """One-hot logits: the gradient vanishes almost everywhere."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        logits = self.model(images)
        return logits.detach().round() + 0 * logits


def test_warnings_of_the_package_are_kept(problem):
    model, images, labels = problem
    attack = ours("apgd-ce")
    assert all_phases(model, images, labels, attack).warnings == []
    random_output = all_phases(Noisy(model), images, labels, attack).warnings
    assert any("randomized defense" in warning for warning in random_output)
    probabilities = all_phases(nn.Sequential(model, nn.Softmax(dim=1)), images, labels, attack).warnings
    assert any("probability distribution" in warning for warning in probabilities)
    flat = all_phases(Flat(model), images, labels, ours("apgd-t")).warnings
    assert any("zero gradient" in warning for warning in flat)
    assert len([w for w in flat if "zero gradient" in w]) == 1


def test_counts_of_zero_gradients_are_joined():
    messages = [
        "there are 2 points with zero gradient! See flags_doc.md for details.",
        "other",
        "there are 7 points with zero gradient!",
        "other",
    ]
    assert autoattack.joined_warnings(messages) == ["there are 7 points with zero gradient!", "other"]


def test_square_s_success_after_the_others_is_reported():
    assert autoattack.square_warning({"clean": 0.9, "apgd-ce": 0.5, "square": 0.4})
    assert autoattack.square_warning({"clean": 0.9, "apgd-ce": 0.5, "square": 0.499}) == []
    assert autoattack.square_warning({"clean": 0.9, "square": 0.4}) == []


@pytest.mark.parametrize("features", [2, 5, 64])
@pytest.mark.parametrize("distance", [0.01, 0.3, 100.0])
def test_fab_s_projection_is_the_package_s(features, distance):
    generator = torch.Generator().manual_seed(features)
    points = torch.rand(200, features, generator=generator, dtype=torch.float64)
    points[:50] = points[:50].round()
    normals = torch.randn(200, features, generator=generator, dtype=torch.float64)
    normals[:, ::3] = 0
    normals[0] = 0
    offsets = (normals * points).sum(dim=1) + distance * torch.randn(200, generator=generator, dtype=torch.float64)
    found = moves_to_hyperplane(torch.stack([points, points.flip(0)]), normals, offsets)
    assert torch.allclose(found[0], projection_linf(points, normals, offsets), rtol=0, atol=1e-12)
    assert torch.allclose(found[1], projection_linf(points.flip(0), normals, offsets), rtol=0, atol=1e-12)
    assert ((points + found[0] > -1e-12) & (points + found[0] < 1 + 1e-12)).all()


def test_fab_breaks_what_the_package_breaks_within_the_radius():
    model, images, labels = tiny_problem(40)
    settings = {"n_restarts": 1, "n_iter": 30, "eps": EPSILON, "seed": 0, "targeted": True, "n_target_classes": 3}
    expected = FABAttack_PT(model, device="cpu", **settings).perturb(images, labels)
    counting = Counting(model)
    found = DirectFAB(counting, device="cpu", **settings).perturb(images, labels)
    changed = (found != images).flatten(1).any(dim=1)
    assert torch.equal(changed, (expected != images).flatten(1).any(dim=1))
    assert 0 < changed.sum() < (model(images).argmax(1) == labels).sum()
    assert (model(found[changed]).argmax(1) != labels[changed]).all()
    assert (found - images).abs().max() <= EPSILON


@pytest.mark.parametrize("kind", [APGDAttack, APGDAttack_targeted])
def test_apgd_breaks_what_the_package_breaks_with_fewer_passes(kind):
    model, images, labels = tiny_problem(40)
    passes, broken = [], []
    for prepare in (lambda attack: attack, stopping):
        counting = Counting(model)
        attack = prepare(kind(counting, n_iter=40, eps=EPSILON, seed=0, device="cpu"))
        found = attack.perturb(images, labels)
        assert (found - images).abs().max() <= EPSILON + 1e-7
        broken.append(model(found).argmax(1) != labels)
        passes.append(counting.images)
    assert torch.equal(*broken)
    assert 0 < broken[0].sum() < len(images)
    assert passes[1] < passes[0]


def test_apgd_goes_the_package_s_way_with_images_that_stand():
    model, images, labels = tiny_problem(12)
    ways = []
    for prepare in (lambda attack: attack, stopping):
        seen = []
        watched = Watching(model, seen)
        prepare(APGDAttack(watched, n_iter=30, eps=1e-5, seed=0, device="cpu")).perturb(images, labels)
        ways.append(torch.stack([one for one in seen[1:] if len(one) == len(seen[1])]))
    assert torch.equal(*ways)
    assert len(ways[0]) == 31


@pytest.mark.parametrize("side", range(4, 34))
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_square_is_refused_where_the_packages_start_leaves_the_image(norm, side):
    images, labels = torch.rand(1, 1, side, side), torch.zeros(1, dtype=torch.long)
    run = SquareAttack(lambda batch: batch.flatten(1)[:, :5], norm=norm.upper(), eps=1.0, n_queries=0, device="cpu")
    run.init_hyperparam(images)
    try:
        run.attack_single_run(images, labels)
        starts = True
    except (RuntimeError, ZeroDivisionError):
        starts = False
    try:
        accepted = bool(parse("square", norm=norm, shape=(1, side, side), epsilon="1"))
    except ValueError as fault:
        accepted, told = False, str(fault)
        assert f"{side}x{side}" in told and "apgd-ce" in told
    assert accepted is starts
    assert parse("square", shape=(1, side, side)).name == "square"

"""Families on attacks: adversarial images, their effect on the model, and its local geometry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.conformance.method_families import recorded_state
from tests.conformance.oracle import Case
from tests.conformance.stand_ins import linf_attack, written_start
from trainers.attacks import parse
from trainers.attacks.perturbation import autoattack
from trainers.attacks.perturbation.spsa import estimate_gradient, perturb
from trainers.attacks.perturbation.square import square_side
from trainers.attacks.pgd import Pgd
from trainers.data import dataset_facts
from trainers.data.normalization import Normalized
from trainers.measures import diagnostics


class Standardized(Normalized):
    """A small network behind the standardisation of CIFAR-10, as applied in the official AT loop."""

    def __init__(self, network: nn.Module) -> None:
        facts = dataset_facts("cifar10")
        super().__init__(facts.mean, facts.std)
        self.double()
        # Use the decimal values in double precision, not their single-precision neighbours.
        self.mean.copy_(torch.tensor(facts.mean, dtype=torch.float64).view_as(self.mean))
        self.std.copy_(torch.tensor(facts.std, dtype=torch.float64).view_as(self.std))
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.normalize(images))


def awp_attack_pgd(case: Case) -> dict[str, Any]:
    network = case.network()
    attack = linf_attack(case, start=written_start(case), mode="train")
    found = attack(Standardized(network), case.x, lambda logits: F.cross_entropy(logits, case.labels))
    return {"delta": found - case.x, "x_adv": found, "state_after": recorded_state(case, network)}


def awp_pgd20_eval(case: Case) -> dict[str, Any]:
    model = Standardized(case.network()).eval()
    attack = linf_attack(case, start=written_start(case), mode="eval")
    found = attack(model, case.x, lambda logits: F.cross_entropy(logits, case.labels))
    return {"x_adv": found, "correct": model(found).argmax(dim=1) == case.labels}


def _evaluated(case: Case, **settings: Any) -> dict[str, Any]:
    """Return the adversarial images of evaluation without a random start, and the logits of every iterate."""
    attack = Pgd(name=case.family, epsilon=repr(case.number("eps")), start="none", **settings)
    model, labels = case.network().eval(), case.labels
    seen: list[Tensor] = []
    hook = model.register_forward_hook(lambda _model, _images, logits: seen.append(logits.detach()))
    found = attack.adversarial(model, case.x, labels, torch.arange(len(labels)))
    hook.remove()
    logits = model(found).detach()
    # The first iterate is the start. Each later one follows a step; the last one gives the returned images.
    right = [predicted.argmax(dim=1) == labels for predicted in (*seen[1:], logits)]
    return {"x_adv": found, "logits": logits, "correct_per_step": torch.stack(right, dim=1)}


def fgsm(case: Case) -> dict[str, Any]:
    return _evaluated(case, steps=1, step_size=repr(case.number("eps")))


def _steps(case: Case) -> dict[str, Any]:
    return {"steps": case.whole("steps"), "step_size": repr(case.number("step"))}


def pgd_noinit(case: Case) -> dict[str, Any]:
    return _evaluated(case, loss=case.given("loss"), **_steps(case))


def logit_scaling_pgd(case: Case) -> dict[str, Any]:
    return _evaluated(case, alpha=case.number("alpha"), strict=True, **_steps(case))


def spsa(case: Case) -> dict[str, Any]:
    samples, delta = case.whole("nb_sample"), case.number("delta")
    # Prescribed by the oracle's text: the same signs in every iteration.
    index = torch.arange(samples * case.x[0].numel(), dtype=torch.float64)
    signs = torch.where(torch.cos(0.77 * index + case.phase("phi")) >= 0, 1.0, -1.0).double()
    signs = signs.view(samples, *case.x.shape[1:])
    model = case.network().eval()
    with torch.no_grad():
        gradient = estimate_gradient(
            model, case.x, case.labels, delta, samples, lambda first, end: signs[first:end], chunk=samples
        )
    found = perturb(
        model,
        case.x,
        case.labels,
        epsilon=case.number("eps"),
        steps=case.whole("nb_iter"),
        samples=samples,
        delta=delta,
        learning_rate=case.number("lr"),
        directions=lambda iteration, first, end, images: signs[first:end],
    )
    return {"grad": gradient, "x_adv": found}


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Change torch's default type in the block, because the package's attacks create their tensors in it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _autoattack_part(case: Case, name: str, model: nn.Module, **settings: Any) -> Any:
    """Return the attack object that evaluation runs, with the case's settings in place of the standard ones."""
    description: Any = parse(name, epsilon=repr(float(case.hyper.get("eps", 8 / 255))), classes=case.classes)
    attack = autoattack.component_attack(model.eval(), name, description, torch.device("cpu"))
    for setting, value in settings.items():
        setattr(attack, setting, value)
    return attack


def _apgd(case: Case, name: str, **settings: Any) -> dict[str, Any]:
    # `perturb` would cast to single precision, where trajectories diverge.
    with _default_dtype(torch.float64):
        standard = _autoattack_part(case, name, case.network())
        # Its checkpoints are computed from the number of iterations in the constructor.
        attack = type(standard)(
            standard.model,
            n_iter=case.whole("n_iter"),
            eps=standard.eps,
            device=standard.device,
            logger=standard.logger,
        )
        for setting, value in settings.items():
            setattr(attack, setting, value)
        attack.init_hyperparam(case.x)
        found = attack.attack_single_run(case.x, case.labels, x_init=case.x)
    return dict(zip(("x_best", "acc", "loss_best", "x_best_adv"), found, strict=True))


def apgd_single_run(case: Case) -> dict[str, Any]:
    return _apgd(case, "apgd-ce", loss=case.given("loss"))


def apgd_t_single_run(case: Case) -> dict[str, Any]:
    return _apgd(case, "apgd-t", y_target=case.vector("y_target").long())


def fab_t_single_run(case: Case) -> dict[str, Any]:
    attack = _autoattack_part(
        case,
        "fab-t",
        case.network().float(),
        n_iter=case.whole("n_iter"),
        target_class=case.whole("target_class"),
        alpha_max=case.number("alpha_max"),
        eta=case.number("eta"),
        beta=case.number("beta"),
    )
    found = attack.attack_single_run(case.x, case.labels, use_rand_start=False, is_targeted=True)
    return {"x_adv": found, "linf": (found - case.x).abs().flatten(1).amax(dim=1)}


def square_p_schedule(case: Case) -> dict[str, Any]:
    settings: Any = parse("square", queries=case.whole("n_queries"))
    attack = autoattack.component_attack(nn.Identity(), "square", settings, torch.device("cpu"))
    attack.p_init = case.number("p_init")
    iterations = case.expected.get("iterations", [])
    return {
        "iterations": iterations,
        "p": [attack.p_selection(number) for number in iterations],
        "s": [square_side(attack.p_selection(number), 32, 32) for number in iterations],
    }


def potentially_misclassified(case: Case) -> dict[str, Any]:
    model, images = case.network().eval(), torch.arange(len(case.labels))
    facts = diagnostics.gradient_facts(model, case.x, case.labels, images, case.number("eps"))
    return {
        "logit_margin_loss": facts["clean_margin"],
        "grad_l1": facts["gradient_norm_logits"],
        "flag": facts["potentially_misclassified"],
    }

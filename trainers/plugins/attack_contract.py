"""The contract of every attack of an evaluation: checks shared by the tests and `python -m sweep.check`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from trainers import models
from trainers.attack import AttackSettings, EvaluationAttack, Verdicts
from trainers.attacks import from_record, parse
from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.scoring.scorer import evaluate_attack
from trainers.plugins import registry
from trainers.plugins.contract import Broken, CheckResult
from trainers.values import as_float

SHAPE, CLASSES, IMAGES = (1, 8, 8), 10, 24
SETTINGS = AttackSettings(epsilon="0.1", classes=CLASSES, batch_size=IMAGES, queries=50)
TOLERANCE = 1e-5  # rounding of a sum over the pixels


def examine(name: str) -> Iterator[CheckResult]:
    """Run every check on the attack behind a name such as pgd-20, or on a plug-in's attack."""
    for promise, check in CHECKS.items():
        yield CheckResult(promise, _fault_of(check, name))


def _fault_of(check: Callable[[str], None], name: str) -> str | None:
    try:
        check(name)
    except Broken as broken:
        return str(broken)
    except (Exception, SystemExit) as error:
        # The attack under test may raise anything. Its author wants the line in their own file, not a traceback.
        return f"raised {type(error).__name__}: {error}{_raised_at(error)}"
    return None


def _raised_at(error: BaseException) -> str:
    files = {sys.modules[kind.__module__].__file__ for kind in registry.ATTACKS.loaded.values()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


class _Problem:
    """A small network that classifies three quarters of its images correctly; some pixels are 0 or 1."""

    def __init__(self, count: int = IMAGES) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: nn.Module = models.build("small_cnn", CLASSES, shape=SHAPE).eval()
            images = (1.4 * torch.rand(IMAGES, *SHAPE) - 0.2).clamp(0, 1)
        with torch.no_grad():
            labels = self.model(images).argmax(dim=1)
        labels[::4] = (labels[::4] + 1) % CLASSES
        self.images, self.labels = images[:count], labels[:count]

    def verdicts(self, attack: EvaluationAttack, batch_size: int = IMAGES) -> Verdicts:
        return evaluate_attack(self.model, self.images, self.labels, attack, batch_size=batch_size)

    def adversarial(self, attack: EvaluationAttack) -> Tensor:
        return attack.adversarial(self.model, self.images, self.labels, torch.arange(len(self.images))).detach()


def _shows_images(attack: EvaluationAttack) -> bool:
    """Return True if the attack returns images. Some, such as AutoAttack's phases, give only verdicts."""
    return type(attack).adversarial is not EvaluationAttack.adversarial


def is_described_by_its_record(name: str) -> None:
    attack = parse(name, SETTINGS)
    restored = from_record(attack.model_dump(mode="json", exclude_none=True))
    if restored != attack or restored.id != attack.id:
        raise Broken("its record describes another attack: make every setting a field with a JSON value")
    if not attack.cost > 0:
        raise Broken(f"its cost is {attack.cost}; return roughly how many forward-backward passes an image takes")
    if "@" not in name and attack.epsilon != "0" and parse(name, replace(SETTINGS, epsilon="0.2")).id == attack.id:
        raise Broken("it ignores the requested radius: pass settings.epsilon on in from_name")
    if parse(name, replace(SETTINGS, images=(0, 5))).images != (0, 5):
        raise Broken("it ignores the requested range of images: pass settings.images on in from_name")


def stays_in_the_ball(name: str) -> None:
    attack, problem = parse(name, SETTINGS), _Problem()
    if not _shows_images(attack):
        if type(attack).verdicts is EvaluationAttack.verdicts:
            raise Broken(f"{type(attack).__name__} defines neither adversarial(…) nor verdicts(…)")
        return
    before = problem.images.clone()
    adversarial = problem.adversarial(attack)
    if not torch.equal(problem.images, before):
        raise Broken("it changed its input images in place: work on a copy")
    if adversarial.shape != problem.images.shape:
        raise Broken(f"it returned shape {tuple(adversarial.shape)} for images of {tuple(problem.images.shape)}")
    if not bool(torch.isfinite(adversarial).all()):
        raise Broken("its images contain NaN or infinite values")
    if float(adversarial.min()) < 0 or float(adversarial.max()) > 1:
        raise Broken(
            f"its pixels lie in [{float(adversarial.min()):.4g}, {float(adversarial.max()):.4g}]: clamp them to [0, 1]"
        )
    size, radius = float(NORMS[attack.norm].size(adversarial - problem.images).max()), as_float(attack.epsilon)
    if size > radius + TOLERANCE:
        raise Broken(f"a perturbation has {attack.norm} size {size:.6g}, but the radius is {radius:.6g}: project it")


def leaves_the_model_alone(name: str) -> None:
    attack, problem = parse(name, SETTINGS), _Problem(8)
    attacked = problem.model
    before = {key: value.clone() for key, value in attacked.state_dict().items()}
    problem.verdicts(attack)
    if _shows_images(attack):
        problem.adversarial(attack)  # not protected by the evaluation's handling of modes and gradients
    if any(module.training for module in attacked.modules()):
        raise Broken("it left the model in train mode: do not change the mode, the evaluation sets it")
    for key, value in attacked.state_dict().items():
        if not torch.equal(value, before[key]):
            raise Broken(f"it changed the model's {key}")
    if any(parameter.grad is not None for parameter in attacked.parameters()):
        raise Broken("it left gradients on the model's parameters: use torch.autograd.grad(…, images)")
    if not all(parameter.requires_grad for parameter in attacked.parameters()):
        raise Broken("it switched off the gradients of the model's parameters")


def repeats_by_its_seed(name: str) -> None:
    attack, results = parse(name, SETTINGS), []
    for global_seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(global_seed)  # earlier draws in this process must not matter
            problem = _Problem()
            results.append(problem.adversarial(attack) if _shows_images(attack) else problem.verdicts(attack).correct)
    if not torch.equal(results[0], results[1]):
        raise Broken(
            "two runs with the same seed differ: draw from self.seed and indices (trainers.attacks.perturbation.noise)"
        )
    if attack.batch_size is None:
        whole, small = (_Problem().verdicts(attack, size).correct for size in (IMAGES, 7))
        if not torch.equal(whole, small) or (_shows_images(attack) and _moves_with_the_batch(attack)):
            raise Broken(
                "verdicts depend on the batch: draw from indices, or set batch_size to make it part of the name"
            )


def _moves_with_the_batch(attack: EvaluationAttack) -> bool:
    """Return True if the adversarial images depend on the batch beyond rounding.

    Rounding may flip a few signs; a different random draw flips about half of them.
    """
    problem = _Problem()
    half = torch.arange(IMAGES // 2, IMAGES)
    alone = attack.adversarial(problem.model, problem.images[half], problem.labels[half], half).detach()
    differs = (alone - problem.adversarial(attack)[half]).abs() > 1e-3
    return bool(differs.float().mean() > 0.1)


def never_beats_clean(name: str) -> None:
    problem = _Problem()
    attack = parse(name, SETTINGS)
    verdicts = problem.verdicts(attack)
    if verdicts.clean is None:
        raise Broken("its first phase does not report the clean predictions: return Verdicts(correct, clean)")
    with torch.no_grad():
        right = problem.model(problem.images).argmax(dim=1) == problem.labels
    if not torch.equal(verdicts.clean, right):
        raise Broken("its clean verdicts differ from the model's predictions on the clean images")
    better = int((verdicts.correct & ~right).sum())
    if better:
        raise Broken(f"{better} misclassified clean images count as robust: leave an image unchanged if need be")


CHECKS: dict[str, Callable[[str], None]] = {
    "is described in full by its record": is_described_by_its_record,
    "stays in the ball and in [0, 1]": stays_in_the_ball,
    "leaves the model's mode, weights and gradients alone": leaves_the_model_alone,
    "repeats its verdicts by its seed, whatever the batch": repeats_by_its_seed,
    "is never better than clean": never_beats_clean,
}

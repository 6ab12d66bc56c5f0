"""What every attack of an evaluation promises, as checks that the tests and `python -m sweep.check` share."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from trainers import models, registry
from trainers.attack import AttackSettings, EvaluationAttack, Verdicts
from trainers.attacks import from_record, parse
from trainers.contract import Broken, Finding
from trainers.evaluate import evaluate_attack
from trainers.perturbation.norms import NORMS
from trainers.values import as_float

SHAPE, CLASSES, IMAGES = (1, 8, 8), 10, 24
SETTINGS = AttackSettings(epsilon="0.1", classes=CLASSES, batch_size=IMAGES, queries=50)
TOLERANCE = 1e-5  # rounding of a sum over the pixels


def examine(name: str) -> Iterator[Finding]:
    """Every check of the attack behind a name such as pgd-20, or behind a plug-in's."""
    for promise, check in CHECKS.items():
        yield Finding(promise, _fault_of(check, name))


def _fault_of(check: Callable[[str], None], name: str) -> str | None:
    try:
        check(name)
    except Broken as broken:
        return str(broken)
    except (Exception, SystemExit) as error:
        # The attack under test may raise anything; its author wants the place in the own file, not a trace.
        return f"raised {type(error).__name__}: {error}{_place(error)}"
    return None


def _place(error: BaseException) -> str:
    files = {sys.modules[kind.__module__].__file__ for kind in registry.ATTACKS.loaded.values()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


class _Problem:
    """A small network that is right on three quarters of its images, some pixels of which are 0 or 1."""

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
    """Attacks that give verdicts alone, as AutoAttack's phases do, show no images to look at."""
    return type(attack).adversarial is not EvaluationAttack.adversarial


def is_described_by_its_record(name: str) -> None:
    attack = parse(name, SETTINGS)
    again = from_record(attack.model_dump(mode="json", exclude_none=True))
    if again != attack or again.id != attack.id:
        raise Broken("read from a record it is another attack: every setting must be a field with a JSON value")
    if not attack.cost > 0:
        raise Broken(f"its cost is {attack.cost}; say how many forward-backward passes an image takes, roughly")
    if "@" not in name and attack.epsilon != "0" and parse(name, replace(SETTINGS, epsilon="0.2")).id == attack.id:
        raise Broken("its radius is not the one asked for: hand settings.epsilon on in from_name")
    if parse(name, replace(SETTINGS, images=(0, 5))).images != (0, 5):
        raise Broken("it is not limited to the images asked for: hand settings.images on in from_name")


def stays_in_the_ball(name: str) -> None:
    attack, problem = parse(name, SETTINGS), _Problem()
    if not _shows_images(attack):
        if type(attack).verdicts is EvaluationAttack.verdicts:
            raise Broken(f"{type(attack).__name__} defines neither adversarial(…) nor verdicts(…)")
        return
    before = problem.images.clone()
    found = problem.adversarial(attack)
    if not torch.equal(problem.images, before):
        raise Broken("it changed the images that it was given: work on a copy")
    if found.shape != problem.images.shape:
        raise Broken(f"it returned a shape {tuple(found.shape)} for images of {tuple(problem.images.shape)}")
    if not bool(torch.isfinite(found).all()):
        raise Broken("its images are not finite")
    if float(found.min()) < 0 or float(found.max()) > 1:
        raise Broken(f"its pixels lie in [{float(found.min()):.4g}, {float(found.max()):.4g}]: clamp them to [0, 1]")
    size, radius = float(NORMS[attack.norm].size(found - problem.images).max()), as_float(attack.epsilon)
    if size > radius + TOLERANCE:
        raise Broken(f"a perturbation has {attack.norm} size {size:.6g}, but the radius is {radius:.6g}: project it")


def leaves_the_model_alone(name: str) -> None:
    attack, problem = parse(name, SETTINGS), _Problem(8)
    attacked = problem.model
    before = {key: value.clone() for key, value in attacked.state_dict().items()}
    problem.verdicts(attack)
    if _shows_images(attack):
        problem.adversarial(attack)  # without the evaluation's own care for modes and gradients
    if any(module.training for module in attacked.modules()):
        raise Broken("it left the model in train mode; the mode is the evaluation's business")
    for key, value in attacked.state_dict().items():
        if not torch.equal(value, before[key]):
            raise Broken(f"it changed the model's {key}")
    if any(parameter.grad is not None for parameter in attacked.parameters()):
        raise Broken("it left gradients on the model's parameters: use torch.autograd.grad(…, images)")
    if not all(parameter.requires_grad for parameter in attacked.parameters()):
        raise Broken("it switched off the gradients of the model's parameters")


def repeats_by_its_seed(name: str) -> None:
    attack, found = parse(name, SETTINGS), []
    for global_seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(global_seed)  # what the process drew before must not matter
            problem = _Problem()
            found.append(problem.adversarial(attack) if _shows_images(attack) else problem.verdicts(attack).correct)
    if not torch.equal(found[0], found[1]):
        raise Broken("two runs with the same seed differ: draw by self.seed and indices (trainers.perturbation.noise)")
    if attack.batch_size is None:
        whole, small = (_Problem().verdicts(attack, size).correct for size in (IMAGES, 7))
        if not torch.equal(whole, small) or (_shows_images(attack) and _moves_with_the_batch(attack)):
            raise Broken("verdicts depend on the batch: draw by indices, or set batch_size to make it part of the name")


def _moves_with_the_batch(attack: EvaluationAttack) -> bool:
    """Rounding differs between batches and may turn a sign here and there; another draw turns every second one."""
    problem = _Problem()
    half = torch.arange(IMAGES // 2, IMAGES)
    alone = attack.adversarial(problem.model, problem.images[half], problem.labels[half], half).detach()
    differs = (alone - problem.adversarial(attack)[half]).abs() > 1e-3
    return bool(differs.float().mean() > 0.1)


def never_beats_clean(name: str) -> None:
    problem = _Problem()
    attack = parse(name, SETTINGS)
    found = problem.verdicts(attack)
    if found.clean is None:
        raise Broken("its first phase does not say which clean images are right: give Verdicts(correct, clean)")
    with torch.no_grad():
        right = problem.model(problem.images).argmax(dim=1) == problem.labels
    if not torch.equal(found.clean, right):
        raise Broken("its clean verdicts are not those of the model")
    better = int((found.correct & ~right).sum())
    if better:
        raise Broken(f"{better} images that are wrong when clean count as robust: an attack may leave an image alone")


CHECKS: dict[str, Callable[[str], None]] = {
    "is described in full by its record": is_described_by_its_record,
    "stays in the ball and in [0, 1]": stays_in_the_ball,
    "leaves the model's mode, weights and gradients alone": leaves_the_model_alone,
    "repeats its verdicts by its seed, whatever the batch": repeats_by_its_seed,
    "is never better than clean": never_beats_clean,
}

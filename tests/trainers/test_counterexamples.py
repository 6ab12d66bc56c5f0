"""Counterexamples: kept small, read back without trust, and each of them fools the model within the ball."""

import io
import zipfile

import numpy as np
import pytest
import torch

from tests.trainers.tiny import tiny_problem
from trainers.attacks import parse
from trainers.attacks.scoring import counterexample_file, counterexamples
from trainers.attacks.scoring.counterexample_file import EXACT, SIGNS, BrokenCounterexamples, Counterexamples, decoded
from trainers.attacks.scoring.scorer import evaluate_phase
from trainers.values import as_float

IMAGES, VALUES = 40, 36
RADII = {"linf": "0.06", "l2": "0.6", "l1": "3"}


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(IMAGES)


def attacked(problem, name, norm="linf", phase="", **options):
    model, images, labels = problem
    attack = parse(name, norm=norm, epsilon=RADII[norm], batch_size=16, queries=80)
    found = evaluate_phase(
        model,
        images,
        labels,
        attack,
        phase,
        indices=torch.arange(len(images)),
        batch_size=16,
        counterexamples=True,
        **options,
    )
    return attack, found


def confirm(problem, attack, kept):
    """Every row: misclassified, in the ball, in [0, 1]."""
    model, images, labels = problem
    rows, where = np.arange(len(kept)), kept.indices.astype(np.int64)
    shown = counterexamples.images_of(kept, rows, images[where])
    judged = counterexamples.judge(model, shown, labels[where])
    assert bool((judged.wrong | judged.at_the_boundary).all())
    assert bool(counterexamples.inside(shown, images[where], attack.norm, as_float(attack.epsilon)).all())
    assert np.allclose(judged.margins.numpy(), kept.margins, atol=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize(("name", "phase"), [("pgd-10", ""), ("fgsm", ""), ("square", "square"), ("fab-t", "fab-t")])
def test_every_fooled_image_has_one(problem, name, phase, norm):
    attack, found = attacked(problem, name, norm, phase)
    model, images, labels = problem
    right = model(images).argmax(dim=1) == labels
    fell = (~found.correct if found.clean is None else right & ~found.correct).numpy()
    assert fell.sum() > 3
    assert np.array_equal(found.counterexamples.indices, np.flatnonzero(fell))
    confirm(problem, attack, decoded(found.counterexamples.encoded(), IMAGES, VALUES))


def test_the_strict_count_keeps_the_step_that_fooled_the_model(problem):
    attack, found = attacked(problem, "logit-scaling-10-strict")
    _, plain = attacked(problem, "logit-scaling-10")
    assert (~found.correct).sum() >= (~plain.correct).sum()
    assert np.array_equal(found.counterexamples.indices, np.flatnonzero((found.clean & ~found.correct).numpy()))
    confirm(problem, attack, found.counterexamples)


def test_attacks_without_images_of_their_own_keep_none(problem):
    assert attacked(problem, "clean")[1].counterexamples is None
    assert attacked(problem, "autoattack-rand", phase="apgd-ce")[1].counterexamples is None


def test_where_rounding_saves_the_image_finer_forms_are_kept():
    """The signs of the perturbation alone point elsewhere, and a small one is rounded to nothing."""
    weights = torch.linspace(1, 20, VALUES)

    class Line(torch.nn.Module):
        limit = 0.0

        def forward(self, batch):
            score = batch.flatten(1) @ weights - self.limit
            return torch.stack([score, -score], dim=1)

    model = Line()
    clean = torch.full((1, 1, 6, 6), 0.5)
    levels = []
    for size in (0.05, 0.006, 0.0002):  # of one pixel; all others go the other way, by almost nothing
        change = torch.full((1, 1, 6, 6), 1e-7)
        change.view(-1)[-1] = -size
        model.limit = float((clean + 0.5 * change).flatten(1) @ weights)
        kept = counterexamples.keep(
            model, clean, clean + change, torch.tensor([0]), np.array([7]), norm="linf", epsilon=0.06
        )
        assert kept.indices.tolist() == [7]
        levels.append(int(kept.levels[0]))
        shown = counterexamples.images_of(kept, np.array([0]), clean)
        assert bool(counterexamples.judge(model, shown, torch.tensor([0])).wrong)
    assert levels == [3, 15, EXACT] and SIGNS not in levels


def test_an_image_outside_of_the_ball_is_no_counterexample(problem):
    model, images, labels = problem
    right = (model(images).argmax(dim=1) == labels).nonzero().flatten()[:6]
    far = torch.zeros_like(images[right])
    kept = counterexamples.keep(model, images[right], far, labels[right], right.numpy(), norm="linf", epsilon=1e-6)
    assert len(kept) == 0


def some(problem) -> Counterexamples:
    return attacked(problem, "pgd-10")[1].counterexamples


def test_several_become_one_in_the_order_of_the_images(problem):
    kept, other = some(problem), attacked(problem, "square", phase="square")[1].counterexamples
    shifted = other.at(other.indices.astype(np.int64) + IMAGES)
    both = counterexample_file.joined([shifted, kept])
    assert np.array_equal(both.indices, np.concatenate([kept.indices, other.indices + IMAGES]))
    rows = np.arange(len(kept), len(both))
    assert np.array_equal(both.steps(rows), other.steps(np.arange(len(other))))
    assert np.array_equal(both.scales[rows], other.scales)


def test_the_same_counterexamples_are_the_same_bytes(problem):
    assert some(problem).encoded() == some(problem).encoded()


def changed(kept, **arrays):
    return Counterexamples(**{**vars(kept), **arrays}).encoded()


def repacked(data, change):
    """The archive with some members' bytes changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name)))
    return buffer.getvalue()


BROKEN = {
    "cut off": lambda kept: kept.encoded()[:-30],
    "no archive": lambda kept: b"PK\x05\x06 nothing",
    "empty": lambda kept: b"",
    "beyond the images": lambda kept: changed(kept, indices=kept.indices + IMAGES),
    "twice": lambda kept: changed(kept, indices=kept.indices * 0),
    "another length": lambda kept: changed(kept, scales=kept.scales[:-1]),
    "unknown levels": lambda kept: changed(kept, levels=kept.levels * 0 + 200),
    "not finite": lambda kept: changed(kept, scales=kept.scales * np.nan),
    "rows that are absent": lambda kept: changed(kept, signs=kept.signs[:-1], offsets=kept.offsets[:0]),
    "a pickle": lambda kept: repacked(
        kept.encoded(), lambda name, content: content.replace(b"'<f4'", b"'|O' ") if name == "scales.npy" else content
    ),
    "a shape that is not there": lambda kept: repacked(
        kept.encoded(),
        lambda name, content: content.replace(b"'shape': (", b"'shape': (9") if "margins" in name else content,
    ),
    "one more array": lambda kept: repacked(kept.encoded(), lambda name, content: content).replace(b"signs", b"sighs"),
    "a bomb": lambda kept: changed(kept, images=np.zeros((200, VALUES * 1000), np.float32)),
}


@pytest.mark.parametrize("what", BROKEN)
def test_nothing_that_a_file_says_is_believed(problem, what):
    with pytest.raises(BrokenCounterexamples):
        decoded(BROKEN[what](some(problem)), IMAGES, VALUES)


def test_an_image_of_another_size_is_refused(problem):
    with pytest.raises(BrokenCounterexamples, match="36 values, those of the data set 64"):
        decoded(some(problem).encoded(), IMAGES, 64)

"""`quick` and `curve` by their behaviour: in the ball, stronger than PGD where PGD sees nothing, whatever the batch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trainers import models
from trainers.attacks import parse
from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.perturbation.quick import Round, Search, rounds
from trainers.attacks.scoring.scorer import evaluate_attack, evaluate_phase

RADII = {"linf": "0.15", "l2": "0.8", "l1": "4"}


class Confident(nn.Module):
    """So sure of its answers that the cross-entropy, and with it PGD's gradient, is zero."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images):
        return 1e4 * self.model(images)


class Coarse(nn.Module):
    """Sees sixteen shades of grey: no gradient arrives at the images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model((images * 15).round() / 15)


class Plateau(nn.Module):
    """The second class needs all of eight patterns; where one of them is lost nothing has a slope any more."""

    def __init__(self) -> None:
        super().__init__()
        signs = torch.randn(64, generator=torch.Generator().manual_seed(0)).sign()
        self.register_buffer("patterns", torch.block_diag(*signs.view(8, 8)))

    def forward(self, images):
        seen = (images.flatten(1) - 0.5) @ self.patterns.T + 0.05
        return torch.stack([torch.full((len(images),), 0.2), seen.amin(dim=1).relu()], dim=1)


@pytest.fixture(scope="module")
def problem():
    """A small network, fitted to bright and dark halves, with images that it has right."""
    torch.manual_seed(0)
    model = models.build("small_cnn", 4, shape=(1, 8, 8))
    labels = torch.arange(64) % 4
    images = 0.25 + 0.5 * torch.rand(64, 1, 8, 8)
    for label in range(4):
        images[labels == label, :, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += (
            0.2
        )
    images = images.clamp(0, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model.eval(), images, labels


@pytest.mark.parametrize("norm", RADII)
@pytest.mark.parametrize("name", ["quick", "curve"])
def test_it_stays_in_the_ball_of_every_norm_and_lowers_accuracy_more_than_pgd(problem, name, norm):
    model, images, labels = problem
    attack = parse(name, epsilon=RADII[norm], norm=norm)
    found = attack.adversarial(model, images, labels, torch.arange(64))
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    assert float(NORMS[norm].size(found - images).max()) <= float(RADII[norm]) + 1e-5
    reached = evaluate_attack(model, images, labels, attack)
    pgd = evaluate_attack(model, images, labels, parse("pgd-20", epsilon=RADII[norm], norm=norm)).correct
    assert reached.clean is not None and reached.clean.all()
    assert int(reached.correct.sum()) <= int(pgd.sum()) < 64


def test_it_fools_a_network_whose_gradients_pgd_does_not_see(problem):
    plain, images, labels = problem
    masked = Confident(plain).eval()
    pgd, quick, unmasked = (
        evaluate_attack(model, images, labels, parse(name, epsilon="0.1")).correct
        for model, name in ((masked, "pgd-20"), (masked, "quick"), (plain, "quick"))
    )
    assert int(quick.sum()) < int(pgd.sum())
    assert torch.equal(quick, unmasked)


def test_it_fools_a_network_without_gradients_and_stays_in_the_ball(problem):
    plain, images, labels = problem
    coarse = Coarse(plain).eval()
    climbed = Search(coarse, images, labels, torch.arange(64), epsilon=0.15, norm="linf")
    climbed.run([Round(None, 20), Round(0, 20), Round(1, 20)], seed=0)
    attack = parse("quick", epsilon="0.15")
    found = attack.adversarial(coarse, images, labels, torch.arange(64))
    fell = coarse(found).argmax(dim=1) != labels
    assert float((found - images).abs().max()) <= 0.15 + 1e-6
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    assert int(fell.sum()) > int((~climbed.standing).sum()) + 10
    plainly = evaluate_attack(plain, images, labels, attack).correct
    assert int((~fell).sum()) <= int(plainly.sum()) + 6  # about as many as where gradients show the way
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    mixed = evaluate_phase(coarse, images[order], labels[order], attack, "", indices=order, batch_size=10)
    assert torch.equal(~fell[order], mixed.correct)


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.1), ("l2", 0.8)])
def test_where_noise_has_no_slope_the_way_begins_at_the_image(norm, epsilon):
    model, images, labels = Plateau(), torch.full((16, 1, 8, 8), 0.5), torch.zeros(16, dtype=torch.long)
    drawn = torch.rand(images.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    assert not model(NORMS[norm].start(images, epsilon, drawn))[:, 1].any()
    found = {}
    for all_of_them in (False, True):
        search = Search(model, images, labels, torch.arange(16), epsilon=epsilon, norm=norm)
        points = search.run([one for one in rounds(norm) if all_of_them or not one.flat], seed=0)
        found[all_of_them] = int((model(points).argmax(dim=1) != labels).sum())
        assert float(NORMS[norm].size(points - images).max()) <= epsilon + 1e-6
    assert found[True] == 16 and found[False] <= 4


@pytest.mark.parametrize("name", ["quick", "curve"])
def test_verdicts_and_distances_do_not_depend_on_the_batch(problem, name):
    model, images, labels = problem[0], problem[1][:24], problem[2][:24]
    attack = parse(name, epsilon="0.1")
    whole = evaluate_phase(model, images, labels, attack, "", indices=torch.arange(24))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    mixed = evaluate_phase(model, images[order], labels[order], attack, "", indices=order, batch_size=10)
    assert torch.equal(whole.correct[order], mixed.correct)
    if name == "curve":
        assert torch.allclose(whole.distances[order], mixed.distances, atol=2e-3)


def test_distances_are_those_of_points_that_fool(problem):
    model, images, labels = problem
    right, wrong = images[:8], (labels[:8] + 1) % 4
    attack = parse("curve", epsilon="0.9")
    found = evaluate_phase(model, images, labels, attack, "", indices=torch.arange(64))
    points = attack.adversarial(model, images, labels, torch.arange(64))
    assert torch.allclose(NORMS["linf"].size(points - images), found.distances, atol=1e-6)
    assert not (model(points).argmax(dim=1) == labels).any()
    closer = images + 0.5 * (points - images)
    assert (model(closer).argmax(dim=1) == labels).float().mean() > 0.9
    misread = evaluate_phase(model, right, wrong, attack, "", indices=torch.arange(8))
    assert (misread.distances == 0).all()


def test_what_lacks_much_of_the_radius_takes_no_part_in_later_rounds(problem):
    model, images, labels = problem
    asked = []
    hook = model.register_forward_hook(lambda _, inputs, __: asked.append(len(inputs[0])))
    search = Search(model, images, labels, torch.arange(64), epsilon=0.001, norm="linf")
    search.run([Round(None, 3), Round(0, 3, lacking=0.1)], seed=0)
    hook.remove()
    assert bool(search.standing.all()) and bool((search.lacks > 0.1).all())
    assert asked == [64, *[64] * 4]  # the images, one round of three steps, no slopes and no second


def test_with_two_classes_there_is_one_target(problem):
    torch.manual_seed(0)
    model = models.build("small_cnn", 2, shape=(1, 8, 8)).eval()
    images = torch.rand(6, 1, 8, 8)
    labels = model(images).argmax(dim=1)
    assert not evaluate_attack(model, images, labels, parse("quick", epsilon="0.9", classes=2)).correct.any()

"""Steps, projections and starts of the norms: by what they promise, and beside pyautoattack's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyautoattack.autopgd_base import APGDAttack, L1_projection

from tests.trainers.small_trials import small_trial
from tests.trainers.test_perturbation import objective
from tests.trainers.tiny import all_phases, tiny_problem
from trainers import attacks
from trainers.attacks.perturbation.noise import keyed_uniform
from trainers.attacks.perturbation.norms import NORMS
from trainers.attacks.perturbation.projected_ascent import ProjectedAscent
from trainers.loop.train import train

OTHERS = ("l2", "l1")
RADII = {"linf": 0.1, "l2": 0.6, "l1": 3.0}


def drawn(seed: int, count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of which some pixels are at the ends of [0, 1], and perturbations of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    images = (1.4 * torch.rand(count, 3, 5, 5, generator=generator) - 0.2).clamp(0, 1)
    scales = 10.0 ** torch.linspace(-3, 1, count).view(-1, 1, 1, 1)
    return images, scales * torch.randn(images.shape, generator=generator)


def nearest_by_bisection(images: torch.Tensor, points: torch.Tensor, radius: float) -> torch.Tensor:
    """The L1 projection from its optimality condition: one shrinkage for all coordinates, found by halving."""
    changes = (points - images).double()
    room = torch.where(changes > 0, 1 - images.double(), images.double())
    found = []
    for change, space in zip(changes, room, strict=True):
        low, high = 0.0, float(change.abs().max())

        def kept(amount, change=change, space=space):
            return torch.minimum((change.abs() - amount).clamp(min=0), space)

        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if kept(middle).sum() > radius else (low, middle)
        found.append(change.sign() * kept(high))
    return images.double() + torch.stack(found)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), radius=st.floats(0.001, 20.0), norm=st.sampled_from(OTHERS))
def test_a_projection_is_in_the_ball_and_in_the_box_and_leaves_what_is_there_alone(seed, radius, norm):
    images, perturbations = drawn(seed)
    found = NORMS[norm].project(images, images + perturbations, radius)
    assert found.min() >= 0 and found.max() <= 1
    assert (NORMS[norm].size(found - images) <= radius * (1 + 1e-5) + 1e-6).all()
    assert torch.allclose(NORMS[norm].project(images, found, radius), found, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), radius=st.floats(0.01, 20.0))
def test_the_l1_projection_is_the_nearest_point_and_pyautoattack_s(seed, radius):
    images, perturbations = drawn(seed)
    found = NORMS["l1"].project(images, images + perturbations, radius)
    assert torch.allclose(
        found.double(), nearest_by_bisection(images, images + perturbations, radius), atol=2e-5, rtol=1e-4
    )
    theirs = images + perturbations + L1_projection(images, perturbations, radius)
    assert torch.allclose(found, theirs, atol=2e-4)


def test_each_image_may_have_a_radius_of_its_own_and_a_radius_of_nothing_leaves_the_image():
    images, perturbations = drawn(3)
    radii = torch.tensor([0.0, 0.1, 0.5, 1.0, 4.0]).view(-1, 1, 1, 1)
    for norm in OTHERS:
        together = NORMS[norm].project(images, images + perturbations, radii)
        assert torch.equal(together[:1], images[:1])
        for number in range(1, 5):
            alone = NORMS[norm].project(
                images[number : number + 1], (images + perturbations)[number : number + 1], float(radii[number])
            )
            assert torch.allclose(together[number : number + 1], alone, atol=1e-6)


def test_the_l2_step_is_that_of_pyautoattack():
    images, gradients = drawn(7)
    theirs = APGDAttack(None, norm="L2", eps=0.5)
    theirs.init_hyperparam(images)
    # The package's first step, with the gradient itself in place of a model's.
    moved = images + 0.2 * theirs.normalize(gradients)
    length = (moved - images).flatten(1).norm(dim=1).clamp(max=0.5).view(-1, 1, 1, 1)
    expected = (images + theirs.normalize(moved - images) * length).clamp(0, 1)
    assert torch.allclose(NORMS["l2"].moves(images, 0.5, 0.2)(images, gradients), expected, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from(("linf", "l2", "l1")))
def test_a_small_step_climbs_a_linear_function_and_is_as_long_as_it_should(seed, norm):
    images, gradients = drawn(seed)
    points = NORMS[norm].moves(images, 1.0, 0.01)(images.clone(), gradients.clone())
    assert ((points - images) * gradients).flatten(1).sum(dim=1).gt(0).all()
    assert (NORMS[norm].size(points - images) <= 0.01 + 1e-6).all()
    inner = images.clamp(0.1, 0.9)  # where no pixel is at the box, the step has its whole length
    moved = NORMS[norm].moves(inner, 1.0, 0.01)(inner.clone(), gradients.clone())
    assert torch.allclose(NORMS[norm].size(moved - inner), torch.full((5,), 0.01), rtol=1e-3)


def test_the_l1_step_goes_where_the_box_lets_it():
    image = torch.tensor([[0.0, 1.0, 0.5, 0.5]])
    gradients = torch.tensor([[-9.0, 8.0, 2.0, 1.0]])
    assert torch.equal(NORMS["l1"].direction(image, gradients), torch.tensor([[0.0, 0.0, 1.0, 0.0]]))
    assert torch.equal(NORMS["l1"].direction(image, torch.zeros(1, 4)), torch.zeros(1, 4))


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_a_start_is_in_the_ball_and_keyed_by_image(norm):
    images, _ = drawn(1)
    noise = keyed_uniform(0, torch.arange(5), images)
    start = NORMS[norm].start(images, RADII[norm], noise)
    assert start.min() >= 0 and start.max() <= 1 and torch.isfinite(start).all()
    sizes = NORMS[norm].size(start - images)
    assert (sizes <= RADII[norm] * (1 + 1e-5)).all() and (sizes > 0.2 * RADII[norm]).all()
    ends = NORMS[norm].start(images, RADII[norm], torch.full_like(images, -1.0))
    assert torch.isfinite(ends).all()


@pytest.mark.parametrize("norm", OTHERS)
@pytest.mark.parametrize("start", ["uniform", "gauss", "none"])
def test_pgd_in_other_norms_stays_inside_restores_the_mode_and_lowers_accuracy(norm, start):
    model, images, labels = tiny_problem(40)
    model.train()
    attack = ProjectedAscent(RADII[norm], RADII[norm] / 4, 10, start=start, mode="eval", norm=norm)
    found = attack(model, images, objective(labels))
    assert model.training
    model.eval()
    assert (NORMS[norm].size(found - images) <= RADII[norm] * (1 + 1e-5)).all()
    assert found.min() >= 0 and found.max() <= 1
    before = (model(images).argmax(1) == labels).float().mean()
    assert (model(found).argmax(1) == labels).float().mean() < before - 0.2


@pytest.mark.parametrize(("norm", "corner"), [("l2", [0.441, 0.559, 0.0, 0.931]), ("l1", [0.5, 0.5, 0.0, 0.99])])
def test_pgd_on_a_linear_model_reaches_the_furthest_point(norm, corner):
    model = torch.nn.Linear(4, 2, bias=False).double()
    model.weight.data = torch.tensor([[3.0, -3.0, 5.0, 3.0], [0.0] * 4]).double()
    images = torch.tensor([[0.5, 0.5, 0.02, 0.99]]).double()
    radius, step = {"l2": (0.104, 0.02), "l1": (0.02, 0.002)}[norm]
    attack = ProjectedAscent(radius, step, 40, start="none", mode="eval", norm=norm)
    found = attack(model, images, objective(torch.tensor([0])))
    assert torch.allclose(found, torch.tensor([corner]).double(), atol=3e-3)


@pytest.mark.parametrize("norm", OTHERS)
def test_verdicts_in_other_norms_do_not_depend_on_the_batch(norm):
    model, images, labels = tiny_problem(30)
    attack = attacks.parse(f"pgd-5@{norm}:{RADII[norm] / 4}")
    whole = all_phases(model, images, labels, attack)
    assert 0 < int(whole.correct.sum()) < int(whole.clean.sum())
    assert torch.equal(whole.correct, all_phases(model, images, labels, attack, batch_size=7).correct)


def test_a_training_in_l2_differs_from_one_in_linf_and_selects_in_its_norm(tmp_path):
    ball = {"epsilon": "1", "step_size": "0.5", "steps": 2}
    curves = {}
    for norm in ("linf", "l2"):
        config = small_trial("at", recipe={"epochs": 2, "batch_size": 32, "attack": {"norm": norm, **ball}})
        config = config.model_copy(update={"selection": config.selection.model_copy(update={"epsilon": "1"})})
        found = train(config, folder=tmp_path / norm)
        assert found["status"] in ("done", "collapsed")
        curves[norm] = [row["test_pgd_accuracy"] for row in found["curve"]]
    # The whole box against a ball of length one: no image withstands the first.
    assert max(value for value in curves["linf"] if value is not None) < max(curves["l2"])


def test_the_dual_norm_is_the_slope_along_the_steepest_direction():
    gradients = torch.tensor([[3.0, -4.0, 0.0]])
    slopes = {name: NORMS[name].dual(gradients).item() for name in NORMS}
    assert slopes == {"linf": 7.0, "l2": 5.0, "l1": 4.0}

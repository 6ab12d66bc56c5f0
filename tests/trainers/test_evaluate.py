"""The scorer: verdicts by image whatever the batches, selection accuracy."""

import pytest
import torch
from torch import nn

from tests.trainers.tiny import all_phases, tiny_problem
from trainers.attacks import parse
from trainers.attacks.scoring.scorer import accuracy, margin_accuracy, pgd_accuracy

OWN = ("clean", "fgsm", "pgd-10", "cw-20", "logit-scaling-10", "logit-scaling-0.1-strict", "spsa-3")


@pytest.mark.parametrize("name", OWN)
def test_any_cut_into_shards_and_batches_gives_the_same_verdicts(name):
    model, images, labels = tiny_problem(37)
    attack = parse(name, epsilon="0.05")
    whole = all_phases(model, images, labels, attack)
    bounds = [0, 5, 18, 37]
    parts = [
        all_phases(model, images[a:b], labels[a:b], attack, first=a, batch_size=7)
        for a, b in zip(bounds, bounds[1:], strict=False)
    ]
    assert torch.equal(whole.correct, torch.cat([part.correct for part in parts]))
    assert torch.equal(whole.clean, torch.cat([part.clean for part in parts]))
    if name != "clean":
        assert 0 < whole.correct.sum() < whole.clean.sum()


def test_another_place_in_the_data_set_is_another_random_start():
    model, images, labels = tiny_problem(60)
    attack = parse("pgd-10", epsilon="0.05").model_copy(update={"steps": 0})
    here = all_phases(model, images, labels, attack, first=0).correct
    there = all_phases(model, images, labels, attack, first=1000).correct
    assert not torch.equal(here, there)


def test_uint8_images_are_divided_by_255():
    model, images, labels = tiny_problem(20)
    bytes_ = (images * 255).round().to(torch.uint8)
    attack = parse("pgd-10", epsilon="0.05")
    assert torch.equal(
        all_phases(model, bytes_, labels, attack).correct,
        all_phases(model, bytes_.float() / 255, labels, attack).correct,
    )


def test_the_strict_count_needs_every_step_right():
    model, images, labels = tiny_problem(60)
    final, strict = (all_phases(model, images, labels, parse(f"logit-scaling-100{s}", epsilon="0.05")).correct
                     for s in ("", "-strict"))  # fmt: skip
    assert (strict <= final).all()


def test_selection_accuracy_is_that_of_the_evaluation_and_keeps_the_mode():
    model, images, labels = tiny_problem(50)
    model.train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    found = pgd_accuracy(model, images, labels, epsilon=0.05, step_size=0.0125, steps=10, batch_size=9)
    expected = all_phases(model, images, labels, parse("pgd-10", epsilon="0.05")).correct.float().mean()
    assert found == pytest.approx(float(expected))
    assert accuracy(model, images, labels, batch_size=9) == pytest.approx(46 / 50)
    assert model.training and model.bn.training
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_margin_losses_of_selection_break_more_than_none():
    model, images, labels = tiny_problem(50)
    settings = {"epsilon": 0.05, "step_size": 0.0125, "steps": 10}
    clean = accuracy(model, images, labels)
    for loss in ("cw", "cw_clamped_above", "cw_until_wrong"):
        assert pgd_accuracy(model, images, labels, loss=loss, **settings) < clean - 0.1


class Line(nn.Module):
    """Class 0 where the pixel is brighter than a half, else class 1; class 2 is the nearest only beyond 0.9."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, images):
        pixel = images.flatten(1)
        return self.scale * torch.cat([pixel, torch.full_like(pixel, 0.5), 6 * pixel - 4.9], dim=1)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_margin_accuracy_counts_the_images_that_no_target_breaks(scale):
    pixels = torch.tensor([0.45, 0.55, 0.58, 0.7, 0.8, 0.93])  # wrong; broken to 1, 1; standing; standing; broken to 2
    images, labels = pixels.view(-1, 1, 1, 1), torch.zeros(6, dtype=torch.long)
    settings = {"epsilon": 0.1, "step_size": 0.025, "steps": 10}
    assert margin_accuracy(Line(scale), images, labels, **settings) == pytest.approx(2 / 6)
    assert margin_accuracy(Line(scale), images, labels, **{**settings, "epsilon": 0.0}) == pytest.approx(5 / 6)


def test_margin_accuracy_sees_through_confidence_that_hides_the_gradient_of_the_cross_entropy():
    model, images, labels = tiny_problem(50)
    settings = {"epsilon": 0.05, "step_size": 0.0125, "steps": 10}
    confident = nn.Sequential(model, Scaled(1e5)).eval()
    plain = margin_accuracy(model, images, labels, **settings)
    masked = margin_accuracy(confident, images, labels, **settings)
    assert masked == pytest.approx(plain)
    assert masked < pgd_accuracy(confident, images, labels, **settings) - 0.1


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, logits):
        return self.factor * logits

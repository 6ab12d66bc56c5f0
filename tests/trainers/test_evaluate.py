"""The scorer: verdicts by image whatever the batches, selection accuracy."""

import pytest
import torch

from tests.trainers.tiny import all_phases, tiny_problem
from trainers.attacks import parse
from trainers.evaluate import accuracy, pgd_accuracy

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

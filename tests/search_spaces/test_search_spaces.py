"""What a search varies: legal values, the paper's own among them."""

import subprocess
import sys
from pathlib import Path

import pytest

import search_spaces
from sweep.studies.grid import grid_points
from trainers import composition

TUNED = ("sovr", "tsovr", "trades", "mart", "mail", "gairat", "mma")
PLACES = [
    ("cifar10", "preact_resnet18"),
    ("cifar10", "wrn_34_10"),
    ("cifar100", "preact_resnet18"),
    ("svhn", "preact_resnet18"),
    ("digits", "small_cnn"),
]


def contains(distribution, value):
    return distribution._contains(distribution.to_internal_repr(value))


def test_every_tuned_method_of_the_paper_has_a_space():
    assert set(TUNED) <= set(search_spaces.names())
    assert set(search_spaces.names()) <= set(composition.method_names())


@pytest.mark.parametrize("kind", search_spaces.KINDS)
@pytest.mark.parametrize("name", search_spaces.names())
def test_spaces_vary_hyperparameters_within_their_legal_values(name, kind):
    space = search_spaces.space(name, kind)
    assert space
    for key, distribution in space.items():
        choices = getattr(distribution, "choices", None)
        for value in choices or (distribution.low, distribution.high):
            assert key in composition.resolved_hyperparameters(name, {key: value})


@pytest.mark.parametrize(("dataset", "model"), PLACES)
@pytest.mark.parametrize(
    "name", [*search_spaces.names(), "sovr+awp", "sovr+seat", "sovr+ddpm", "tsovr+awp", "tsovr+ddpm"]
)
def test_the_value_of_the_paper_lies_in_all_spaces_but_its_own_coarse_grid(name, dataset, model):
    value = search_spaces.paper_value(name, dataset, model)
    assert set(value) == set(search_spaces.space(name, "paper"))
    for kind in ("fine", "continuous"):
        space = search_spaces.space(name, kind)
        assert set(value) == set(space)
        assert all(contains(space[key], value[key]) for key in space)


@pytest.mark.parametrize(
    ("name", "dataset", "model", "value"),
    [
        ("sovr", "cifar10", "preact_resnet18", (40, 0.4)),
        ("sovr", "cifar10", "wrn_34_10", (30, 0.4)),
        ("sovr", "cifar100", "preact_resnet18", (50, 0.6)),
        ("sovr", "svhn", "preact_resnet18", (20, 0.2)),
        ("sovr+awp", "cifar10", "wrn_34_10", (40, 0.4)),
        ("sovr+seat", "cifar10", "wrn_34_10", (50, 0.5)),
        ("sovr+ddpm", "cifar10", "wrn_28_10_silu", (40, 0.2)),
        ("tsovr", "cifar10", "preact_resnet18", (80, 0.8)),
        ("tsovr", "cifar10", "wrn_34_10", (20, 0.8)),
        ("tsovr", "cifar100", "preact_resnet18", (50, 0.5)),
        ("tsovr", "svhn", "preact_resnet18", (20, 0.8)),
        ("tsovr+awp", "cifar10", "wrn_34_10", (100, 1.2)),
        ("tsovr+ddpm", "cifar10", "wrn_28_10_silu", (100, 1.6)),
    ],
)
def test_the_pairs_of_the_paper_are_kept_as_published(name, dataset, model, value):
    assert tuple(search_spaces.paper_value(name, dataset, model).values()) == value


def test_the_papers_grid_is_five_by_five():
    assert len(grid_points(search_spaces.space("sovr"))) == 25 and len(grid_points(search_spaces.space("tsovr"))) == 30
    assert len(grid_points(search_spaces.space("sovr", "fine"))) == 81


@pytest.mark.parametrize(
    ("radius", "choices", "ends"),
    [
        (8 / 255, (0.0471, 0.0784, 0.1255), (0.02, 0.25)),  # to the digit: they name searches
        (0.2, (0.3, 0.5, 0.8), (0.1275, 1.0)),  # no margin beyond 1 is legal
        (0.3, (0.45, 0.75, 1.0), (0.1912, 1.0)),
        (1 / 255, (0.00588, 0.0098, 0.01569), (0.0025, 0.03125)),
    ],
)
def test_lengths_are_multiples_of_the_radius_of_training(radius, choices, ends):
    assert search_spaces.space("mma", "paper", radius)["d_max"].choices == choices
    assert search_spaces.paper_value("mma", "digits", "small_cnn", radius) == {"d_max": choices[-1]}
    wide = search_spaces.space("mma", "continuous", radius)["d_max"]
    assert (wide.low, wide.high, wide.log) == (*ends, True)
    assert search_spaces.space("sovr", "paper", radius) == search_spaces.space("sovr")


def test_steps_do_not_leave_rounding_in_the_value():
    space = search_spaces.space("sovr", "fine")["lam"]
    values = [space.low + step * space.step for step in range(9)]
    rounded = [search_spaces.rounded({"lam": value, "M": 40, "flag": True}) for value in values]
    assert [entry["lam"] for entry in rounded] == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert rounded[0]["M"] == 40 and rounded[0]["flag"] is True


def test_a_method_without_a_file_has_nothing_to_search():
    assert search_spaces.space("at") == {}
    assert search_spaces.paper_value("my_loss", "cifar10", "wrn_34_10") is None


def test_an_unknown_kind_of_space_is_refused():
    with pytest.raises(ValueError, match="unknown search space 'coarse'; known: paper, fine, continuous"):
        search_spaces.space("sovr", "coarse")


def test_spaces_load_no_torch():
    code = "import sys, search_spaces as s; [s.space(n) for n in s.names()]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0

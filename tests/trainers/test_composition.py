"""Names such as sovr+awp, and hyperparameters given to them."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from trainers import composition

PAPER_METHODS = {"st", "at", "ovr", "sovr", "trades", "tsovr", "mart", "mma", "gairat", "mail", "ewat"}


def test_every_method_of_the_paper_is_found():
    assert PAPER_METHODS | {"weighted_ce", "weighted_ovr"} <= set(composition.method_names())


@pytest.mark.parametrize(
    "name", ["sovr+awp", "tsovr+awp", "sovr+seat", "sovr+ddpm", "tsovr+ddpm", "trades+awp", "at+awp"]
)
def test_the_compositions_of_the_paper_are_understood(name):
    base, wrapper = name.split("+")
    assert composition.parse(name) == (base, (wrapper,))


def test_the_order_of_wrappers_does_not_make_another_method():
    assert composition.canonical("sovr+seat+awp") == composition.canonical("sovr+awp+seat") == "sovr+awp+seat"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tradse", "unknown method 'tradse'; did you mean 'trades'? known: at, ewat"),
        ("at+at", "'at+at' composes two methods, at and at"),
        ("sovr+trades", "composes two methods, sovr and trades"),
        ("sovr+awp+awp", "+awp 2 times"),
        ("sovr+apw", "unknown wrapper 'apw' in 'sovr+apw'; did you mean 'awp'?"),
        ("awp", "no method before its wrapper"),
        ("sovr+seat+ddpm", "both average the weights"),
        ("", "unknown method ''"),
        ("sovr+", "unknown wrapper ''"),
    ],
)
def test_nonsense_is_refused_with_its_reason(name, message):
    with pytest.raises(ValueError) as caught:
        composition.parse(name)
    assert message in str(caught.value)


def test_all_faults_of_the_hyperparameters_come_in_one_message():
    with pytest.raises(ValueError) as caught:
        composition.build("sovr", {"lamb": 0.4, "M": 40.5, "label_smoothing": 2})
    message = str(caught.value)
    assert "unknown hyperparameter 'lamb'; did you mean 'lam'? known: M, lam, label_smoothing" in message
    assert "M = 40.5 must be a whole number" in message
    assert "label_smoothing = 2.0 must be at most 1.0" in message


@pytest.mark.parametrize(
    ("hyperparameters", "word"),
    [
        ({"lam": "much"}, "number"),
        ({"lam": math.nan}, "finite"),
        ({"lam": math.inf}, "finite"),
        ({"M": True}, "number"),
    ],
)
def test_values_that_are_no_finite_numbers_are_refused(hyperparameters, word):
    with pytest.raises(ValueError, match=word):
        composition.build("sovr", hyperparameters)


def test_equal_settings_resolve_equally_and_completely():
    assert composition.resolved_hyperparameters("sovr", {"M": 40.0, "lam": 1}) == {
        "M": 40,
        "lam": 1.0,
        "label_smoothing": 0.0,
    }
    assert type(composition.resolved_hyperparameters("sovr", {"M": 40.0})["M"]) is int
    assert composition.resolved_hyperparameters("gairat", {"Lambda": "inf"})["Lambda"] == math.inf


def test_every_default_of_the_specification_is_a_named_option():
    resolved = composition.resolved_hyperparameters
    assert resolved("tsovr")["margin_on"] == "clean"
    assert resolved("trades")["forwards"] == "awp"
    assert resolved("ewat")["detach_weights"] is True
    assert (resolved("mail")["bias"], resolved("mail")["slope"]) == (-0.5, 10.0)
    assert (resolved("gairat")["Lambda"], resolved("gairat")["weight_function"]) == (3.0, "Tanh")
    assert resolved("mma")["d_max"] == 0.1255
    assert resolved("mart")["beta"] == resolved("trades")["beta"] == 6.0


@pytest.mark.parametrize(
    ("name", "shown"), [("sovr+awp", "SOVR+AWP"), ("at", "AT"), ("weighted_ovr", "Weighted OVR"), ("st", "ST")]
)
def test_display_names_are_those_of_the_tables(name, shown):
    assert composition.display_name(name) == shown


def test_listing_and_parsing_names_loads_no_torch():
    code = "import sys; from trainers import composition as c; c.parse('sovr+awp'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.parametrize(("name", "key"), [("sovr", "M"), ("sovr", "lam"), ("mma", "search_steps")])
def test_a_number_of_thousands_of_digits_is_refused_in_words(name, key):
    with pytest.raises(ValueError, match=f"{key} .*too large") as caught:
        composition.resolved_hyperparameters(name, {key: 10**4000})
    assert len(str(caught.value)) < 200


def test_a_whole_number_beyond_all_floats_is_refused_where_a_method_is_built():
    with pytest.raises(ValueError, match="search_steps is too large"):
        composition.build("mma", {"search_steps": 10**4000})

"""The e-value against its own integrals, its intervals against its decisions, its error rate against a simulation."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid

from benchmarks.sequential import chosen_claims, decided_at
from reports.analysis.sequential import SCALE, growth, half_width, log_e_value, look, number_words, outcome_words

VALUES = [1.3, -0.4, 2.2, 0.9]


def moments(values):
    values = np.asarray(values, dtype=float)
    return len(values), float(values.mean()), float(((values - values.mean()) ** 2).sum())


@pytest.mark.parametrize("values", [VALUES, VALUES[:2], [5.0, 5.5, 4.9]])
def test_the_closed_form_is_the_ratio_of_the_two_marginal_likelihoods(values):
    data, n = np.array(values), len(values)
    sigma = np.geomspace(0.02, 2000, 3000)[:, None]
    effect = np.linspace(-8 * SCALE, 8 * SCALE, 3001)[None, :]

    def likelihood(effect):  # over d sigma / sigma, the right Haar measure, which is uniform in log sigma
        squares = sum((value - effect * sigma) ** 2 for value in data)
        return np.exp(-squares / (2 * sigma**2)) * sigma**-n

    prior = np.exp(-(effect**2) / (2 * SCALE**2)) / (SCALE * math.sqrt(2 * math.pi))
    inner = trapezoid(likelihood(effect) * prior, effect[0], axis=1)
    ratio = trapezoid(inner, np.log(sigma[:, 0])) / trapezoid(likelihood(0.0)[:, 0], np.log(sigma[:, 0]))
    assert math.exp(float(log_e_value(*moments(values)))) == pytest.approx(ratio, rel=1e-4)


def test_the_e_value_is_one_at_one_seed_and_does_not_depend_on_the_unit():
    assert float(log_e_value(1, 3.7, 0.0)) == pytest.approx(0)
    assert float(log_e_value(*moments(np.array(VALUES) * 1e-4))) == pytest.approx(float(log_e_value(*moments(VALUES))))


def test_its_expectation_under_the_null_stays_one():
    random = np.random.default_rng(3)
    n, mean = 4, random.standard_normal((400_000, 4))
    squares = ((mean - mean.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    values = np.exp(log_e_value(n, mean.mean(axis=1), squares))
    assert values.mean() == pytest.approx(1, abs=4 * values.std() / math.sqrt(len(values)))


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_interval_ends_where_the_e_value_of_its_ends_reaches_the_level(alpha):
    n, mean, squares = moments([3.1, 2.4, 2.9, 3.3, 2.2])
    width = half_width(n, squares, alpha)
    for end in (mean - width, mean + width):
        assert math.exp(float(log_e_value(n, mean - end, squares))) == pytest.approx(1 / alpha)


def test_a_decision_is_an_interval_beyond_the_margin_and_stays_whatever_comes_later():
    values = [-20.0, -22.0, -21.0, -19.5]
    seen = look(values, direction=-1)
    assert seen.verdict == "holds" and seen.n == 4 and seen.high < 0 and seen.e_value >= 20 and seen.to_go == 0
    assert look([*values, 500.0, 500.0], direction=-1) == seen
    assert look(values, direction=1).verdict == "does not hold"
    assert look(values, direction=-1, margin=-20.5).verdict == "undecided"
    assert look(values, direction=-1, margin=-10.0).verdict == "holds"
    assert "decided after 4 seeds (sequential)" in outcome_words(seen)
    assert "collapsed or failed" in outcome_words(seen, left_out=1)


def test_three_seeds_never_decide_and_have_no_bounded_interval():
    seen = look([30.0, 30.0, 30.0])
    assert not seen.decided and math.isinf(seen.high) and "unbounded" in number_words(seen, 0.05)
    assert look([30.0]) is None and look([]) is None


def test_a_few_equal_differences_of_one_image_are_no_certainty():
    assert not look([0.5] * 4, resolution=0.5).decided
    assert look([0.5] * 6, resolution=0.1).decided
    assert not look([0.5] * 40).decided and math.isinf(look([0.5] * 40).high)  # how it is rounded is not known
    assert look([20.0, 20.5, 20.0, 20.0], resolution=0.5).decided


@pytest.mark.parametrize("resolution", [0.0, 0.1, 5.0])
@pytest.mark.parametrize(("value", "margin"), [(0.0, 0.0), (0.3, 0.3), (-20.1, -20.1)])
def test_ties_decide_nothing_in_either_direction(value, margin, resolution):
    for direction in (1, -1):
        seen = look([value] * 60, direction=direction, margin=margin, resolution=resolution)
        assert seen.n == 60 and not seen.decided and seen.e_value <= 1 and seen.to_go is None
    assert float(log_e_value(4, 0.0, 0.0)) < 0


def test_the_seeds_to_go_decide_if_mean_and_spread_stay():
    seen = look([1.0, -0.2, 1.3, 0.6])
    assert not seen.decided and seen.to_go is not None
    squares = seen.spread**2
    for more, enough in ((seen.to_go - 1, False), (seen.to_go, True)):
        n = seen.n + more
        assert bool(log_e_value(n, seen.estimate, squares * (n - 1)) >= math.log(20)) is enough
    assert look([1.0, -1.0, 1.0, -1.0]).to_go is None


def test_the_clearer_claim_promises_more_growth_and_an_unknown_one_comes_first():
    clear, vague = look([5.0, 6.0]), look([1.0, -0.7])
    assert growth(None, 0.0, 2) > growth(clear, 0.0, 2) > growth(vague, 0.0, 2)


def test_a_claim_that_its_first_seeds_suggested_is_wrong_more_often_than_its_level(monkeypatch):
    monkeypatch.setattr("benchmarks.sequential.RUNS", 1500)
    before, after, family = chosen_claims(np.random.default_rng(7)).values()
    assert before < 0.05 < after < family


def test_looking_after_every_seed_is_wrong_in_fewer_than_five_of_a_hundred_runs():
    random = np.random.default_rng(5)
    at = decided_at(random.standard_normal((4000, 60)))
    share = float((at <= 60).mean())
    assert 0.005 < share < 0.05
    assert float((decided_at(random.standard_normal((500, 60)) + 2) <= 12).mean()) > 0.95

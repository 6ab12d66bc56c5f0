"""Tests for few seeds, against scipy, values worked out by hand, and simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats import contingency_tables
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

from reports.statistics import (
    Sample,
    compare,
    compare_family,
    detectable_difference,
    detectable_effect,
    holm,
    interval,
    mcnemar,
    paired_bootstrap,
    seeds_needed,
    undecided_level,
    welch_power,
)

SOVR, EWAT, AT = Sample(49.4, 0.3, 3), Sample(48.2, 0.7, 3), Sample(48.0, 0.2, 3)


def test_sovr_against_ewat_from_the_papers_printed_numbers():
    result = compare(SOVR, EWAT)
    assert result.student == pytest.approx(0.052, abs=5e-4)
    assert result.welch == pytest.approx(0.081, abs=5e-4)
    assert compare(SOVR, EWAT, "greater").student == pytest.approx(0.026, abs=5e-4)
    assert compare(SOVR, EWAT, "less").student == pytest.approx(1 - 0.0262, abs=5e-4)


def test_printed_numbers_give_what_scipy_gives():
    for first, second in [(SOVR, EWAT), (SOVR, AT), (Sample(24.3, 0.2, 3), Sample(23.7, 0.3, 5))]:
        ours = compare(first, second)
        numbers = (first.mean, first.std, first.n, second.mean, second.std, second.n)
        assert ours.student == pytest.approx(stats.ttest_ind_from_stats(*numbers).pvalue, rel=1e-10)
        assert ours.welch == pytest.approx(stats.ttest_ind_from_stats(*numbers, equal_var=False).pvalue, rel=1e-10)


@pytest.mark.parametrize("sides", ["two-sided", "greater", "less"])
def test_raw_values_give_what_scipy_gives(sides):
    first, second = [50.1, 49.2, 50.4], [48.0, 47.1, 48.8, 47.9]
    ours = compare(Sample.of(first), Sample.of(second), sides)
    assert ours.student == pytest.approx(stats.ttest_ind(first, second, alternative=sides).pvalue, rel=1e-10)
    welch = stats.ttest_ind(first, second, equal_var=False, alternative=sides)
    assert ours.welch == pytest.approx(welch.pvalue, rel=1e-10)
    bounds = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((bounds.low, bounds.high))


def test_a_worked_example():
    # Means 2 and 4, both variances 1: t = -2 / sqrt(2/3), 4 degrees of freedom for both tests.
    result = compare(Sample.of([1, 2, 3]), Sample.of([3, 4, 5]))
    assert result.student == result.welch == pytest.approx(0.0704840, abs=1e-6)
    # Hedges: d = -2, and the exact factor for 4 degrees of freedom is gamma(2) / (sqrt(2) gamma(1.5)) = 0.797885.
    assert result.hedges_g == pytest.approx(-1.595769, abs=1e-6)


def test_the_interval_of_a_mean_is_students():
    low, high = interval(Sample.of([47.8, 48.0, 48.2]))
    # t(0.975, 2) = 4.302653, standard error 0.2 / sqrt(3)
    assert (low, high) == pytest.approx((48 - 0.496828, 48 + 0.496828), abs=1e-5)
    assert interval(Sample.of([48.0])) is None


def test_a_single_seed_gives_no_p_value_but_a_reason():
    result = compare(Sample.of([50.0]), AT)
    assert (result.student, result.welch, result.hedges_g, result.significant) == (None, None, None, None)
    assert "n=1" in result.undefined
    assert result.difference == pytest.approx(2.0)


def test_no_variation_gives_no_p_value_rather_than_certainty():
    result = compare(Sample.of([50.0] * 3), Sample.of([49.0] * 3))
    assert result.welch is None and "no variation" in result.undefined


def test_one_constant_sample_can_still_be_tested():
    first, second = [50.0, 50.0, 50.0], [48.0, 49.0, 47.0]
    result = compare(Sample.of(first), Sample.of(second))
    assert result.welch == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)


def test_an_empty_sample_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Sample.of([])


def test_holm_steps_down_and_skips_what_could_not_be_tested():
    # Sorted 0.01, 0.02, 0.04: times 3, 2, 1, made monotone.
    assert holm([0.04, None, 0.01, 0.02]) == [pytest.approx(0.04), None, pytest.approx(0.03), pytest.approx(0.04)]
    assert holm([None]) == [None]
    draws = list(np.random.default_rng(0).random(20) ** 3)
    assert holm(draws) == pytest.approx(list(multipletests(draws, method="holm")[1]))


def test_a_family_is_corrected_over_its_tests_only():
    family = compare_family([AT, SOVR, None, EWAT, Sample.of([40.0])], 0)
    assert family[0] is None and family[2] is None
    assert family[4].welch_holm is None
    assert family[1].welch_holm == pytest.approx(2 * compare(SOVR, AT).welch)
    assert family[1].significant and not family[3].significant


def test_the_detectable_difference_is_found_in_four_of_five_simulations():
    draws = np.random.default_rng(0)
    effect = detectable_effect(3)
    first, second = draws.normal(effect, 1, (20_000, 3)), draws.normal(0, 1, (20_000, 3))
    found = (stats.ttest_ind(first, second, axis=1).pvalue < 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.01)
    assert detectable_difference(Sample(1, 0.5, 3), Sample(0, 0.5, 3)) == pytest.approx(0.5 * effect)
    assert math.isinf(detectable_effect(1))


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 50, 200])
def test_the_detectable_effect_is_that_of_statsmodels(seeds):
    expected = TTestIndPower().solve_power(nobs1=seeds, alpha=0.05, power=0.8, alternative="two-sided")
    assert detectable_effect(seeds) == pytest.approx(float(np.squeeze(expected)), rel=1e-4)


@pytest.mark.parametrize("level", [0.05, 0.05 / 8])
@pytest.mark.parametrize(("difference", "std"), [(3, 1), (2, 0.3), (1, 1)])
def test_welch_finds_the_difference_with_the_seeds_needed_in_four_of_five_simulations(difference, std, level):
    observed = Sample(50 + difference, 1, 3), Sample(50, std, 3)
    needed = seeds_needed(*observed, level)
    draws = np.random.default_rng(0)

    def found(n):
        first, second = draws.normal(50 + difference, 1, (20_000, n)), draws.normal(50, std, (20_000, n))
        return (stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue < level).mean()

    assert found(needed) == pytest.approx(welch_power(*observed, needed, level), abs=0.01)
    assert found(needed) > 0.79 and (needed == 4 or found(needed - 1) < 0.81)


def test_seeds_needed_are_more_than_there_are_or_unknown():
    assert seeds_needed(Sample(60, 1, 3), Sample(50, 1, 5)) == 4
    assert seeds_needed(Sample(50, 1, 3), Sample(50, 1, 3)) is None
    assert seeds_needed(Sample(60, 0, 3), Sample(50, 0, 3)) is None
    assert seeds_needed(Sample.of([50.0]), Sample.of([49.0])) is None


@pytest.mark.parametrize("middle", [49.4, 48.8])  # with p below and above 0.05 before Holm
def test_the_seeds_advised_give_the_verdict_after_holm_in_four_of_five_simulations(middle):
    family = [Sample(mean, 0.5, 3) for mean in (48, middle, 55, 48.2, 48.3)]
    first, base = family[1], family[0]
    compared = compare_family(family, 0)
    assert compared[1].significant is False and compared[2].significant
    assert undecided_level(compared) == pytest.approx(0.05 / 3)
    needed = seeds_needed(first, base, undecided_level(compared))
    draws = np.random.default_rng(0)
    decided = 0
    for _ in range(1000):
        drawn = [Sample.of(draws.normal(one.mean, one.std, needed)) for one in (base, first)]
        decided += bool(compare_family([*drawn, *family[2:]], 0)[1].significant)
    assert 0.77 < decided / 1000 < 0.95


def test_mcnemar_is_the_exact_binomial_on_the_images_that_differ():
    first, second = np.zeros((2, 100), bool), np.zeros((2, 100), bool)
    first[:, :9] = True
    second[0, 8:10] = True
    second[1] = first[1]
    # Only the first model survives 8 images, only the second 1.
    assert mcnemar(first, second) == pytest.approx([stats.binomtest(1, 9, 0.5).pvalue, 1.0])
    with pytest.raises(ValueError, match="cannot be paired"):
        mcnemar(first, second[:, :50])


def test_mcnemar_is_statsmodels_on_ten_thousand_images():
    first, second = np.random.default_rng(3).random((2, 10_000)) < [[0.5], [0.52]]
    both = [[int((first == a).astype(int) @ (second == b)) for b in (True, False)] for a in (True, False)]
    expected = contingency_tables.mcnemar(both, exact=True).pvalue
    assert 1e-6 < expected < 0.1
    assert float(mcnemar(first, second)) == pytest.approx(expected)


@pytest.mark.parametrize("images", [100, 1000])
def test_the_paired_bootstrap_interval_is_that_of_resampled_images(images):
    draws = np.random.default_rng(1)
    first, second = draws.random((3, images)) < 0.95, draws.random((3, images)) < 0.85
    difference, low, high = paired_bootstrap(first, second)
    per_image = first.mean(axis=0) - second.mean(axis=0)
    assert difference == pytest.approx(per_image.mean())
    means = np.concatenate([per_image[draws.integers(0, images, (5000, images))].mean(axis=1) for _ in range(8)])
    width = means.std()
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.06 * width)


def test_models_that_agree_on_every_image_have_no_interval():
    verdicts = np.array([[True, False, True]])
    assert paired_bootstrap(verdicts, verdicts) == (0, 0, 0)
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_bootstrap(verdicts, verdicts[:, :2])

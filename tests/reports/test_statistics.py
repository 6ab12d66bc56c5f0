"""Tests for few seeds, against scipy, values worked out by hand, and simulation."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats
from statsmodels.stats import contingency_tables
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

from reports.analysis.power import detectable_difference, power, seeds_needed, t3_critical, welch_critical
from reports.analysis.statistics import (
    Sample,
    compare,
    compare_family,
    compare_with_best,
    holm,
    interval,
    mcnemar,
    paired_bootstrap,
    paired_p,
    t3_p,
    undecided_level,
    welch_t,
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


def largest_modulus_tail(t, freedom, pairs):
    """By adaptive quadrature over the spread, an independent way to what t3_p computes."""

    half = freedom / 2
    scale = math.log(2) + half * math.log(half) - special.gammaln(half)

    def integrand(spread):
        density = math.exp(scale + (freedom - 1) * math.log(spread) - half * spread**2)
        return density * (1 - (1 - 2 * special.ndtr(-t * spread)) ** pairs)

    return integrate.quad(integrand, 1e-12, 12, limit=500, epsabs=1e-12)[0]


@pytest.mark.parametrize("groups", [2, 3, 9])
@pytest.mark.parametrize(
    ("t", "freedom"), [(2.5, 4.0), (8.0, 2.1), (30.0, 1.0), (3.2, 18.0), (3.0, 230.0), (3.0, 500.0)]
)
def test_t3_is_the_tail_of_the_studentized_maximum_modulus(t, freedom, groups):
    pairs = groups * (groups - 1) // 2
    assert t3_p(t, freedom, groups) == pytest.approx(largest_modulus_tail(t, freedom, pairs), rel=1e-6)


def test_t3_has_the_published_critical_values():
    # Stoline and Ury (1979), 5 %, ten pairs, at 5, 10, 20 and 60 degrees of freedom.
    assert t3_critical(5)(np.array([5.0, 10.0, 20.0, 60.0])) == pytest.approx([4.31, 3.47, 3.11, 2.90], abs=0.005)


def test_between_two_methods_t3_is_welch():
    (none, one) = compare_with_best([SOVR, EWAT], 0)
    assert none is None
    assert one.t3 == pytest.approx(one.welch, rel=1e-9)
    assert one.deciding == one.t3


def test_t3_lies_between_games_howell_and_bonferroni():
    methods = [Sample(mean, std, 3) for mean, std in ((50, 0.3), (48, 0.6), (47, 0.2), (49.5, 1.0))]
    for sample, one in zip(methods[1:], compare_with_best(methods, 0)[1:], strict=True):
        t, freedom = welch_t(sample, methods[0])
        games_howell = stats.studentized_range.sf(abs(t) * math.sqrt(2), 4, freedom)
        assert games_howell < one.t3 < min(1.0, 6 * one.welch)


def test_the_best_is_compared_with_those_that_can_be_tested():
    found = compare_with_best([SOVR, None, AT, Sample.of([40.0]), EWAT], 0)
    assert found[0] is None and found[1] is None
    assert found[3].significant is None and "n=1" in found[3].undefined
    t, freedom = welch_t(AT, SOVR)
    assert found[2].t3 == t3_p(t, freedom, 3)
    assert compare_with_best([None, AT], 0) == [None, None]


@pytest.mark.parametrize("n", [3, 10])
def test_nine_equal_methods_are_told_from_the_best_in_at_most_one_of_twenty_studies(n):
    draws = np.random.default_rng(n)
    spreads = np.r_[np.full(8, 5.0), 1.0]
    studies = 800
    wrong = {"t3": 0, "holm": 0}
    for values in draws.normal(0, 1, (studies, 9, n)) * spreads[None, :, None]:
        samples = [Sample.of(row) for row in values]
        best = int(np.argmax([sample.mean for sample in samples]))
        wrong["t3"] += any(one is not None and one.significant for one in compare_with_best(samples, best))
        wrong["holm"] += any(one is not None and one.significant for one in compare_family(samples, best))
    assert wrong["t3"] / studies < 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert wrong["holm"] > wrong["t3"]


def test_the_paired_test_is_scipys():
    first, second = [50.1, 49.2, 50.4], [48.0, 47.5, 48.1]
    assert paired_p(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-10)
    assert paired_p([1.0], [2.0]) is None
    assert paired_p([1.0, 2.0], [2.0, 3.0]) is None


@pytest.mark.parametrize("level", [0.05, 0.05 / 11])
@pytest.mark.parametrize(
    ("stds", "n"), [((1, 1), 2), ((1, 1), 3), ((3, 1), 3), ((9, 0.3), 3), ((9, 0.3), 2), ((2, 1), 10)]
)
def test_the_detectable_difference_is_found_in_four_of_five_simulations(stds, n, level):
    difference = detectable_difference(Sample(0, stds[0], n), Sample(0, stds[1], n), welch_critical(level))
    draws = np.random.default_rng(0)
    first, second = draws.normal(difference, stds[0], (20_000, n)), draws.normal(0, stds[1], (20_000, n))
    found = (stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue < level).mean()
    assert found == pytest.approx(0.8, abs=0.01)


def test_what_the_best_can_be_told_from_is_found_in_four_of_five_simulations():
    first, second = Sample(0, 2.0, 3), Sample(0, 0.5, 3)
    difference = detectable_difference(first, second, t3_critical(9))
    draws = np.random.default_rng(0)
    others = [Sample(-1000, 1.0, 3)] * 7
    found = 0
    for _ in range(1000):
        pair = [Sample.of(draws.normal(mean, one.std, 3)) for mean, one in ((difference, first), (0, second))]
        found += bool(compare_with_best([*pair, *others], 0)[1].significant)
    assert found / 1000 == pytest.approx(0.8, abs=0.04)


def test_a_difference_that_cannot_be_tested_cannot_be_found():
    assert detectable_difference(Sample.of([1.0]), AT, welch_critical()) is None
    assert detectable_difference(Sample(1, 0, 3), Sample(0, 0, 3), welch_critical()) is None


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 50, 200])
def test_with_students_critical_value_the_power_is_that_of_statsmodels(seeds):
    effect = float(np.squeeze(TTestIndPower().solve_power(nobs1=seeds, alpha=0.05, power=0.8)))
    student = stats.t.ppf(0.975, 2 * (seeds - 1))
    found = power(effect, (1.0, 1.0), (seeds, seeds), lambda freedom: np.full_like(freedom, student))
    assert found == pytest.approx(0.8, abs=1e-3)  # statsmodels also counts the wrong sign


@pytest.mark.parametrize("level", [0.05, 0.05 / 8])
@pytest.mark.parametrize(("difference", "std"), [(3, 1), (2, 0.3), (1, 1)])
def test_welch_finds_the_difference_with_the_seeds_needed_in_four_of_five_simulations(difference, std, level):
    observed = Sample(50 + difference, 1, 3), Sample(50, std, 3)
    needed = seeds_needed(*observed, welch_critical(level))
    draws = np.random.default_rng(0)

    def found(n):
        first, second = draws.normal(50 + difference, 1, (20_000, n)), draws.normal(50, std, (20_000, n))
        return (stats.ttest_ind(first, second, axis=1, equal_var=False).pvalue < level).mean()

    assert found(needed) == pytest.approx(
        power(difference, (1, std), (needed, needed), welch_critical(level)), abs=0.01
    )
    assert found(needed) > 0.79 and (needed == 4 or found(needed - 1) < 0.81)


def test_seeds_needed_are_more_than_there_are_or_unknown():
    assert seeds_needed(Sample(60, 1, 3), Sample(50, 1, 5), welch_critical()) == 4
    assert seeds_needed(Sample(50, 1, 3), Sample(50, 1, 3), welch_critical()) is None
    assert seeds_needed(Sample(60, 0, 3), Sample(50, 0, 3), welch_critical()) is None
    assert seeds_needed(Sample.of([50.0]), Sample.of([49.0]), welch_critical()) is None


@pytest.mark.parametrize("middle", [49.4, 48.8])  # with p below and above 0.05 before Holm
def test_the_seeds_advised_give_the_verdict_after_holm_in_four_of_five_simulations(middle):
    family = [Sample(mean, 0.5, 3) for mean in (48, middle, 55, 48.2, 48.3)]
    first, base = family[1], family[0]
    compared = compare_family(family, 0)
    assert compared[1].significant is False and compared[2].significant
    assert undecided_level(compared) == pytest.approx(0.05 / 3)
    needed = seeds_needed(first, base, welch_critical(undecided_level(compared)))
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

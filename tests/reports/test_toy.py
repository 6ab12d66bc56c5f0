"""The toy problem's closed forms against numbers computed elsewhere, against Runge-Kutta and at their limits."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from trainers.measures import closed_forms as toy


def _reference_rows() -> list[dict]:
    here = Path(__file__).parents[1] / "oracles.json.gz"
    if here.exists():
        cases = json.loads(gzip.decompress(here.read_bytes()))["cases"]
    elif os.environ.get("ROBUSTSWEEP_SHARED"):
        cases = json.loads((Path(os.environ["ROBUSTSWEEP_SHARED"]) / "oracles.json").read_bytes())["cases"]
    else:
        pytest.skip("no reference numbers at hand; set ROBUSTSWEEP_SHARED to the folder that holds oracles.json")
    (case,) = [case for case in cases if case["family"] == "lambert_trajectories"]
    return case["expected"]["rows"]


def test_every_quantity_equals_the_reference_table():
    rows = _reference_rows()
    assert len(rows) == 16
    for row in rows:
        ours = toy.trajectory_row(row["K"], row["w"], row["t"])
        assert ours.keys() == row.keys()
        for name, expected in row.items():
            if expected is None:
                assert ours[name] is None, (row, name)
            else:
                assert ours[name] == pytest.approx(expected, rel=1e-12, abs=1e-14), (row, name)


def test_all_logits_start_at_zero_for_the_other_classes_too():
    for logits in (toy.ovr_logits(3.0, 0.0), toy.ce_logits(10, 3.0, 0.0), toy.ce_logits(100, 0.5, 0.0)):
        np.testing.assert_allclose(logits, 0.0, atol=1e-15)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_closed_forms_equal_the_runge_kutta_solution(classes):
    weights = [0.5, 1.0, 2.0]
    for loss in ("ovr", "ce"):
        times, path = toy.integrate(loss, classes, weights, until=20.0, step=0.05)
        for index, weight in enumerate(weights):
            closed = toy.ovr_logits(weight, times) if loss == "ovr" else toy.ce_logits(classes, weight, times)
            np.testing.assert_allclose(path[:, index, 0], closed[0], atol=2e-6)
            np.testing.assert_allclose(path[:, index, 1:], closed[1][:, None].repeat(classes - 1, 1), atol=2e-6)


def test_runge_kutta_has_fourth_order():
    def error(step: float) -> float:
        times, path = toy.integrate("ovr", 2, [1.0], until=4.0, step=step)
        return float(np.abs(path[:, 0, 0] - toy.ovr_logits(1.0, times)[0]).max())

    assert 12 < error(0.4) / error(0.2) < 20


def test_closed_forms_stay_finite_and_exact_where_the_exponential_overflows():
    times = np.array([1e3, 1e6, 1e15, 1e300])
    true = toy.ovr_logits(5.0, times)[0]
    # z + e^z = wt + 1 is what the flow conserves; in logarithms it survives e^z > 1e300.
    np.testing.assert_allclose(np.logaddexp(np.log(true), true), np.log(5.0 * times + 1.0), rtol=1e-14)
    margin = -toy.ce_margin_loss(100, 5.0, times)
    np.testing.assert_allclose(
        np.logaddexp(np.log(margin), margin - np.log(99.0)), np.log(500.0 * times + 1.0) - np.log(99.0), rtol=1e-14
    )


def test_the_ratio_of_the_margins_goes_to_two():
    ratios = toy.ovr_margin_loss(1.0, [1e2, 1e30, 1e300]) / toy.ce_margin_loss(10, 1.0, [1e2, 1e30, 1e300])
    assert ratios[0] == pytest.approx(1.335, abs=1e-3)
    assert np.all(np.diff(ratios) > 0)
    assert ratios[-1] == pytest.approx(2.0, abs=0.01)


def test_ovr_margin_is_the_smaller_one_early_in_training():
    assert toy.ovr_margin_loss(1.0, 0.5) > toy.ce_margin_loss(10, 1.0, 0.5)
    assert toy.ovr_margin_loss(1.0, 10.0) < toy.ce_margin_loss(10, 1.0, 10.0)


def test_approximation_of_cross_entropy_is_undefined_where_its_logarithm_is():
    edge = (9 * np.log(9.0) - 1) / 10
    values = toy.ce_margin_loss_approximation(10, 1.0, [0.0, edge * 0.999, edge * 1.001, 1e6])
    assert np.isnan(values[:2]).all() and np.isfinite(values[2:]).all()
    assert values[-1] == pytest.approx(float(toy.ce_margin_loss(10, 1.0, 1e6)), abs=2e-5)

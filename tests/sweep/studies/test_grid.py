"""The points of a stepped space, and distributions that hold a value beyond their own range."""

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from sweep.errors import UserError
from sweep.studies.grid import grid_points, size, widened

STEPPED = FloatDistribution(0.2, 1.0, step=0.2)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (STEPPED, 0.6),
        (STEPPED, 0.2 + 0.4000000000000001),
        (FloatDistribution(0.1, 1.0), 0.123),
        (IntDistribution(20, 100, step=20), 40),
        (CategoricalDistribution(("a", "b")), "b"),
    ],
)
def test_a_distribution_that_holds_the_value_stays_as_it_is(item, value):
    assert widened(item, value) is item


@pytest.mark.parametrize(
    ("item", "value", "expected"),
    [
        (STEPPED, 0.3, FloatDistribution(0.2, 1.0)),
        (STEPPED, 1.2, FloatDistribution(0.2, 1.2)),
        (FloatDistribution(0.1, 1.0), 0.05, FloatDistribution(0.05, 1.0)),
        (IntDistribution(20, 100, step=20), 30, IntDistribution(20, 100)),
        (IntDistribution(20, 100, step=20), 120, IntDistribution(20, 120)),
        (CategoricalDistribution(("a", "b")), "c", CategoricalDistribution(("a", "b", "c"))),
    ],
)
def test_a_value_beyond_a_distribution_widens_it_until_optuna_takes_it(item, value, expected):
    assert widened(item, value) == expected
    with pytest.raises(ValueError):
        create_trial(params={"x": value}, distributions={"x": item}, value=0.0)
    create_trial(params={"x": value}, distributions={"x": expected}, value=0.0)


def test_a_stepped_space_has_points_and_a_size_and_a_continuous_one_has_neither():
    space = {"lam": STEPPED, "M": IntDistribution(20, 60, step=20)}
    assert grid_points(space)[:2] == [{"M": 20, "lam": 0.2}, {"M": 20, "lam": 0.4}]
    assert size(space, [{"lam": 0.2, "M": 20}, {"lam": 0.3, "M": 20}]) == len(grid_points(space)) + 1 == 16
    continuous = {"lam": FloatDistribution(0.0, 1.0)}
    assert size(continuous, []) == float("inf")
    with pytest.raises(UserError, match="lam is continuous"):
        grid_points(continuous)

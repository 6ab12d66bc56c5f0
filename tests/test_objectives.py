"""How well an objective orders models of different methods, on columns made by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from benchmarks.objectives import MethodModels, correlations, lines

AUTOATTACK = {"AT": [60.0, 62.0], "SOVR": [64.0, 63.0], "MAIL": [50.0, 48.0], "ST": [0.0, 0.0]}
CLEAN = {"AT": [90.0, 91.0], "SOVR": [88.0, 89.0], "MAIL": [95.0, 94.0], "ST": [99.0, 99.0]}
PGD = {"AT": [65.0, 66.0], "SOVR": [70.0, 69.0], "MAIL": [71.0, 72.0], "ST": [1.0, 0.0]}


@pytest.fixture
def columns():
    return [
        MethodModels(name, np.column_stack([CLEAN[name], PGD[name], attacked]), np.array(attacked))
        for name, attacked in AUTOATTACK.items()
    ]


def test_objectives_are_ranked_on_the_models_that_withstand_something(columns):
    rest = [name for name in AUTOATTACK if name != "ST"]
    expected = [
        spearmanr([one for name in rest for one in values[name]], [one for name in rest for one in AUTOATTACK[name]])
        for values in (CLEAN, PGD, AUTOATTACK)
    ]
    assert correlations(columns) == pytest.approx([one.statistic for one in expected])


def test_every_column_is_shown_the_most_robust_first_and_the_margin_beside_pgd(columns):
    text = lines(columns)
    assert [line.split(" | ")[0] for line in text[2:6]] == ["| SOVR", "| AT", "| MAIL", "| ST"]
    assert "| SOVR | 2 | 88.5 | 69.5 | 63.5 | 63.5 |" in text
    assert "rank correlation with AutoAttack, margin: 1.00 (1.00 to 1.00)" in text
    assert text[-1] == "(6 models of 3 methods)"

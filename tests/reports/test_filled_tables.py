"""Which of the paper's tables its studies fill as shipped."""

import pytest
from hand_made import PAPER

from sweep.studies.model import Study
from sweep.trials.cells import evaluation_attacks


@pytest.mark.parametrize("number", [1, 2, 5, 6])
def test_the_shipped_studies_run_every_attack_of_a_table(number):
    (table,) = [one for one in PAPER.tables if one.number == number]
    keys = [cell.key for cell in table.cells() if cell.key.measure != "worst"]
    for name in {key.study for key in keys}:
        asked = {(attack.name, attack.epsilon) for attack in evaluation_attacks(Study.load(name))}
        for key in keys:
            if key.study == name:
                radii = {epsilon for attack, epsilon in asked if attack == key.measure}
                assert radii and (key.epsilon is None or key.epsilon in radii), key

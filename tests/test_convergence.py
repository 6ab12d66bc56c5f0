"""What is compared when `digits` is trained twice as long, and what such a comparison says by chance."""

import math

import pytest
import yaml
from scipy.stats import t

from benchmarks.convergence import doubled, exceeding, lines
from reports.analysis.statistics import Sample
from sweep.studies.model import Study


def test_twice_the_epochs_keep_every_share_of_the_training(tmp_path):
    (tmp_path / "longer.yaml").write_text(yaml.safe_dump(doubled(), sort_keys=False))
    once, twice = Study.load("digits"), Study.load(tmp_path / "longer.yaml")
    assert once.labels == twice.labels and not twice.searches()
    for label in once.labels:
        one, two = once.config(label), twice.config(label)
        assert two.recipe.epochs == 2 * one.recipe.epochs
        assert two.recipe.schedule.at == tuple(2 * epoch for epoch in one.recipe.schedule.at)
        assert two.selection.from_epoch == 2 * one.selection.from_epoch
        warmups = [config.hyperparameters.get("warmup_epochs", 0) for config in (one, two)]
        warmups += [config.wrappers["awp"].warmup_epochs for config in (one, two) if "awp" in config.wrappers]
        assert warmups[1::2] == [2 * epochs for epochs in warmups[::2]]
        assert two.recipe.learning_rate == one.recipe.learning_rate


@pytest.mark.parametrize("seeds", [3, 10])
def test_columns_that_rise_by_chance_are_as_many_as_students_distribution_says(seeds):
    found = exceeding([60.0] * 4, [5.0] * 4, seeds, runs=50_000)
    share = t.sf(math.sqrt(seeds / 2), seeds - 1)  # of a difference of two means over a standard deviation
    assert found.mean() / 4 == pytest.approx(share, abs=0.005)
    assert (found > 0).mean() == pytest.approx(1 - (1 - share) ** 4, abs=0.01)


def test_a_column_with_a_lost_seed_is_shown_and_not_judged():
    ours = {"AT": Sample.of([60, 61, 62]), "MMA": Sample.of([70, 71, 72])}
    text = "\n".join(lines(ours, {"AT": Sample.of([63, 64, 65]), "MMA": Sample.of([70, 71])}))
    assert "| AT | 61.0±1.0 | 64.0±1.0 | +3.0 | **no** |" in text
    assert "seeds are missing" in text and "1 of 1 columns" in text


def test_a_column_of_zeros_leaves_the_others_their_p():
    ours = {"ST": Sample.of([0, 0, 0]), "MMA": Sample.of([70, 71, 72])}
    text = "\n".join(lines(ours, {"ST": Sample.of([0, 0, 0]), "MMA": Sample.of([80, 81, 82])}))
    assert "| ST | 0.0±0.0 | 0.0±0.0 | +0.0 | yes | 1.00 |" in text
    assert "| MMA | 71.0±1.0 | 81.0±1.0 | +10.0 | **no** | 0.00 |" in text

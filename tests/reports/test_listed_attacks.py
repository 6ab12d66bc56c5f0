"""A study that lists its attacks shows them: those in its own ball in the main table, others in one of their own."""

import pytest
import yaml

from reports.analysis.results import Results
from reports.store.load import load
from reports.tables.study import main_measures, study_tables
from reports.tables.table import headline_measure
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from tests.sweep import stored
from tests.sweep.tiny_study import TINY

BALL = {"norm": "l2", "epsilon": "0.5"}


def shown(folder, attacks):
    attack = {**BALL, "step_size": "0.1", "steps": 1}
    content = {key: value for key, value in TINY.items() if key != "search"}
    content |= {"train": {**TINY["train"], "attack": attack}, "selection": {**TINY["selection"], "epsilon": "0.5"}}
    content["evaluation"] = {"epsilon": "0.5", "images": 10, "attacks": attacks}
    (folder / "listed.yaml").write_text(yaml.safe_dump({**content, "name": "listed"}))
    study, store = Study.load(folder / "listed.yaml"), open_store(folder / "store")
    cells = planned.expand(study)
    for cell in cells:
        stored.write_trial(store, cell)
        for number in range(len(attacks)):
            store.write_record(stored.evaluation(study, cell, attack=number, right=9 - number))
    store.write_record(planned.manifest(study, cells))
    return Results.beside_papers(load(store), None)


@pytest.mark.parametrize(
    "attacks, measures",
    [
        (["clean", "pgd-50", "apgd-ce", "pgd-20@linf:4/255"], ["pgd-50", "apgd-ce", "clean"]),
        (["clean", "square", "autoattack", "pgd-20"], ["autoattack", "square", "pgd-20", "clean"]),
        (["clean", "logit-scaling-10"], ["clean"]),
    ],
)
def test_the_main_table_has_the_studys_own_attacks_and_ranks_by_the_first(tmp_path, attacks, measures):
    results = shown(tmp_path, attacks)
    main = study_tables(results, "listed")[0]
    assert main_measures(results, "listed") == measures and headline_measure(main) == measures[0]
    rows = main.blocks[0].rows[: len(measures)]
    assert all(cell.sample is not None for row in rows for cell in row.cells)


def test_what_was_asked_for_in_another_ball_is_shown(tmp_path):
    tables = study_tables(shown(tmp_path, ["clean", "pgd-50", "pgd-20@linf:4/255"]), "listed")
    (apart,) = (table for table in tables if table.name == "listed_apart")
    assert [column.header for column in apart.columns] == ["PGD-20, Linf, ε = 4/255"]
    assert all(cell.sample is not None and cell.sample.mean == 70.0 for cell in apart.cells())

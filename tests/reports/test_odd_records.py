"""Names and records that nobody would write on purpose: the report is made, and says what it can."""

import shutil
import subprocess

import pandas as pd
import pytest
import synthetic
from hand_made import QuickStore, add_evaluation, add_study, results_of

from reports import write_reports
from reports.figures.draw import draw_all
from reports.page.trials import study_trials
from reports.tables.latex import PREAMBLE, numbers, render
from reports.tables.markdown import code
from reports.tables.study import study_tables
from reports.tables.table import Block, Column, Key, Row, Table, TableCell
from tests.patience import patience
from tests.records import evaluation_record
from trainers.attacks import parse

AT, SOVR = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491]


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def test_a_study_without_a_single_method_has_a_report(store, tmp_path):
    add_study(store, "full", {"at": AT, "sovr": SOVR})
    add_study(store, "empty", {"at": [None]}, cells=[])
    write_reports(store.uri, None, tmp_path / "out", figures=False)
    text = (tmp_path / "out" / "tables.md").read_text("utf-8")
    assert "- `studies/empty.json`: broken: it has no cell" in text and "49.4±0.3" in text


def test_a_study_without_a_single_method_has_a_page(store, tmp_path):
    add_study(store, "empty", {"at": [None]}, cells=[])
    assert (tmp_path / "out" / "report.html") in write_reports(store.uri, None, tmp_path / "out")


def test_an_unreadable_radius_does_not_stop_the_tables(store):
    trials = add_study(store, "one", {"at": AT})
    record = evaluation_record(trials["at", 0], "autoattack", 0.4)
    store.write_record(record.model_copy(update={"attack": {**record.attack, "epsilon": "wide"}}))
    titles = [table.title for table in study_tables(results_of(store), "one")]
    assert any("larger radii" in title for title in titles)


def test_hyperparameters_that_are_no_numbers_do_not_stop_the_figures(tmp_path):
    odd = {
        "at": synthetic.METHODS["at"],
        "sovr": ("SOVR", "sovr", {"M": "many", "lam": "wide"}, *synthetic.METHODS["sovr"][3:]),
        "sovr2": ("SOVR2", "sovr", {"M": 20, "lam": "x"}, *synthetic.METHODS["sovr"][3:]),
        "ce": ("CE", "weighted_ce", {"weight": "heavy"}, *synthetic.METHODS["at"][3:]),
        "ovr": synthetic.METHODS["ovr"],
    }
    store = synthetic.write_store(tmp_path / "store", methods=odd, seeds=(0,), failed=(), components=False)
    record = store.search_record("synthetic-sovr")
    record.candidates[1].hyperparameters["M"] = "many"
    store.write_record(record)
    drawn = {path.name for path in draw_all(results_of(store), tmp_path / "plots", pdf=False)}
    assert {"synthetic-search_landscape.svg", "synthetic-margin_trajectories.svg"} <= drawn


def test_studies_whose_names_differ_in_signs_alone_have_macros_of_their_own(store):
    add_study(store, "one-2", {"at": AT})
    add_study(store, "one_2", {"at": SOVR})
    results = results_of(store)
    tables = [table for study in ("one-2", "one_2") for table in study_tables(results, study)]
    text = numbers(results, tables)
    assert r"\newcommand{\OneTwoAtAutoattackMean}{$48.0$}" in text
    assert r"\newcommand{\OneTwoAtAutoattackXMean}{$49.4$}" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_a_row_may_begin_with_a_bracket_or_a_star(tmp_path):
    cells = (TableCell(Key("one", "at", "clean")),)
    rows = tuple(Row(name, cells) for name in ("[2pt]", "*x", "[", "]"))
    table = Table("odd\nname", "[t]", (Column("[c]"),), (Block("[b]", rows),))
    (tmp_path / "odd.tex").write_text(PREAMBLE + render(table) + r"\end{document}", "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "odd.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(120))
    assert run.returncode == 0, run.stdout[-1500:]


def test_no_name_becomes_a_formula_in_a_spreadsheet_and_numbers_stay(store, tmp_path):
    names = {"at": "-1+cmd|' /C calc'!A0", "sovr": "+SUM(A1)"}
    add_study(store, "one", {"at": AT, "sovr": SOVR}, names=names)
    write_reports(store.uri, None, tmp_path, figures=False)
    table = pd.read_csv(tmp_path / "tables.csv")
    own = table[table["study"] == "one"]
    assert set(own["column"]) == {f"'{name}" for name in names.values()}
    assert "-2±0" in set(own["shown"].dropna())


def test_a_name_shown_as_code_ends_neither_the_code_nor_the_cell():
    assert code("a`|b\nc") == "`a\\|b c`"


def test_two_evaluations_of_one_attack_are_both_listed(store):
    trials = add_study(store, "one", {"at": AT[:1]})
    add_evaluation(store, trials["at", 0], parse("autoattack", seed=1), 0.5, images=200)
    lines = dict(study_trials(results_of(store), "one", 0)[0].evaluations)
    assert lines["AutoAttack, ε = 8/255, best_test"] == ("50.00 % of 200; 48.00 % of 1000",)

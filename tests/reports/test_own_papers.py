"""Which papers stand in a report: those that the studies name, beside these studies, and none beside others."""

import re
from pathlib import Path

import pytest
from hand_made import PAPER, QuickStore, add_evaluation, add_study, results_of
from typer.testing import CliRunner

from reports import papers, write_reports
from reports.__main__ import app
from reports.analysis.claims import judge as claims
from reports.analysis.claims.sources import InPrint, Ours
from reports.store.freshness import fingerprint
from sweep.errors import UserError
from sweep.store.records.manifest import Manifest
from sweep.studies.model import Study
from tests import records
from trainers.attacks import parse

ROOT = Path(__file__).parents[2]
LEADERBOARD = ROOT / "docs" / "papers" / "leaderboard"
AT, TRADES = [0.480, 0.482, 0.478], [0.501, 0.503, 0.499]


def add(store, name, named=None, labels=("at", "trades")):
    accuracies = dict(zip(labels, (AT, TRADES), strict=True))
    trials = add_study(store, name, accuracies, title=name.title(), epsilon="8/255", attacks=[])
    for (label, seed), trial in trials.items():
        add_evaluation(store, trial, parse("autoattack", epsilon="8/255"), accuracies[label][seed])
    if named is not None:
        before = store.usable(Manifest, f"studies/{name}.json")
        store.write_record(before.model_copy(update={"study": {**before.study, "papers": [str(one) for one in named]}}))


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def diff(store, *words):
    found = CliRunner().invoke(app, ["--store", store.uri, "diff", *words])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_study_of_ones_own_shows_nothing_of_the_shipped_paper(store, tmp_path):
    add(store, "mine", named=[])
    add(store, "older")  # written before studies named papers
    out = tmp_path / "out"
    write_reports(store.uri, None, out)
    words = [PAPER.title, *PAPER.authors.split(", "), *PAPER.studies, "SOVR", "OVR", "the paper", "Theory", "Claims of"]
    words += [table.spec["title"] for table in PAPER.tables] + [claim["claim"] for claim in PAPER.claims]
    foreign = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))
    files = [path for path in out.rglob("*") if path.suffix in (".md", ".tex", ".csv", ".html", ".json")]
    assert len(files) >= 6
    for path in files:
        text = re.sub(r'src="data:[^"]*"', "", path.read_text("utf-8"))
        assert foreign.findall(text) == [], path.name
    assert "compared with no paper" in diff(store)


def test_two_papers_stand_in_one_report_each_beside_its_own_studies(store, tmp_path):
    add(store, "cifar10_wrn", named=[PAPER.name, LEADERBOARD])
    add(store, "digits", named=[PAPER.name], labels=("at", "sovr"))
    add(store, "mine", named=[])
    results = results_of(store)
    assert [paper.name for paper in results.papers] == [PAPER.name, "leaderboard"]
    out = tmp_path / "out"
    write_reports(store.uri, None, out, figures=False)
    text = (out / "tables.md").read_text("utf-8")
    assert (
        "leaderboard: Leaderboard, CIFAR10, WRN-34-10" in text
        and f"{PAPER.name}: {PAPER.tables[0].spec['title']}" in text
    )
    shown = diff(store, "--all")
    assert shown.count("# Our numbers beside the paper's") == 2
    assert "The same claims on Digits" in shown and "The same claims on Mine" not in shown
    leaderboard = results.beside(results.papers[1])
    assert not leaderboard.compares("digits") and claims.judge(Ours(leaderboard))[0].id == "trades-first"


def test_a_paper_that_is_gone_is_left_out_and_named(store):
    add(store, "mine", named=["/gone/paper"])
    results = results_of(store)
    assert results.papers == ()
    assert [one.path for one in results.data.problems] == ["paper /gone/paper of study mine"]


def test_the_papers_numbers_are_part_of_what_a_report_is_made_from(store, tmp_path):
    CliRunner().invoke(app, ["new-paper", "own", "--in", str(tmp_path)])
    add(store, "mine", named=[tmp_path / "own"])
    before = fingerprint(store.uri, None, None)
    assert fingerprint(store.uri, None, None) == before
    table = tmp_path / "own" / "table1_main.yaml"
    table.write_text(table.read_text().replace('"0.0", "0.0"', '"50.0", "51.0"'))
    assert fingerprint(store.uri, None, None) != before


def test_the_skeleton_is_a_paper_that_loads_and_is_written_once(tmp_path):
    found = CliRunner().invoke(app, ["new-paper", "own", "--in", str(tmp_path)])
    assert found.exit_code == 0, found.output
    paper = papers.load(tmp_path / "own")
    assert len(paper.tables[0].cells()) == 4 and [one.id for one in claims.judge(InPrint(paper))] == ["trades-beats-at"]
    again = CliRunner().invoke(app, ["new-paper", "own", "--in", str(tmp_path)])
    assert isinstance(again.exception, UserError) and "delete it first" in str(again.exception)
    odd = CliRunner().invoke(app, ["new-paper", "a/b", "--in", str(tmp_path)])
    assert isinstance(odd.exception, UserError)


def test_the_worked_example_has_the_printed_numbers_and_its_claim_stays_open():
    example = papers.load(LEADERBOARD)
    printed = {
        (one.key.label, one.key.measure): one.sample.mean
        for one in PAPER.tables[0].cells()
        if one.key.study == "cifar10_wrn"
    }
    for cell in example.tables[0].cells():
        assert cell.sample.mean == printed[cell.key.label, cell.key.measure]
        assert cell.text in (ROOT / "docs" / "PAPERS.md").read_text("utf-8")
    assert [one.verdict for one in claims.judge(InPrint(example))] == ["undecided"]


def test_a_folder_beside_the_study_is_found_from_anywhere(tmp_path, monkeypatch):
    CliRunner().invoke(app, ["new-paper", "own", "--in", str(tmp_path)])
    path = tmp_path / "mine.yaml"
    path.write_text("title: t\ndataset: digits\nmodel: small_cnn\npapers: [own, sovr]\nmethods: {at: {}}\n")
    monkeypatch.chdir("/")
    assert Study.load(path).papers == (str(tmp_path / "own"), "sovr")
    assert records.manifest("m") is not None


def test_the_comparison_starts_with_what_was_run_and_fits_a_terminal(store):
    add(store, "cifar10_rn18", labels=("at", "sovr"))
    add(store, "digits", labels=("at", "sovr"))
    shown = diff(store)
    assert max(map(len, shown.splitlines())) <= 120
    headings = [line for line in shown.splitlines() if line.startswith("#")]
    assert headings[1] == "## What was run" and "– not run" not in shown.split("## Claims")[0]
    assert "`cifar10_rn18`" in shown and "| at" not in headings
    everything = diff(store, "--all")
    assert len(everything) > 2 * len(shown) and "Contradiction 1" in everything and "Contradiction 1" not in shown

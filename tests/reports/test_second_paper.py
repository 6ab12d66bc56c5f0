"""A paper is a folder: another one has its own tables, claims and page, and no word of the shipped one."""

import re
from pathlib import Path

import pytest
from hand_made import PAPER, QuickStore, add_evaluation, add_study
from typer.testing import CliRunner

from reports import papers, write_reports
from reports.__main__ import app
from sweep.errors import UserError
from trainers.attacks import parse

TINY = Path(__file__).parent / "papers" / "tiny"
PLAIN, CAREFUL = [0.301, 0.303, 0.299], [0.320, 0.323, 0.317]
METHODS = [name.upper() for name in PAPER.method_order]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = QuickStore(tmp_path_factory.mktemp("second") / "store")
    accuracies = {"careful": CAREFUL, "plain": PLAIN}
    trials = add_study(store, "rings", accuracies, title="Rings", epsilon="4/255", attacks=[])
    for (label, seed), trial in trials.items():
        add_evaluation(store, trial, parse("autoattack", epsilon="4/255"), accuracies[label][seed])
    return store


@pytest.fixture(scope="module")
def out(store):
    folder = store.root.parent / "out"
    write_reports(store.uri, None, folder, paper=TINY)
    for name, more in (("diff", []), ("in_print", ["--paper"])):
        run = CliRunner().invoke(app, ["--store", store.uri, "diff", "--against", str(TINY), *more])
        assert run.exit_code == 0, run.output
        (folder / f"{name}.md").write_text(run.output, encoding="utf-8")
    return folder


def test_its_tables_are_filled_in_its_order_and_compared_with_its_baseline(out):
    text = (out / "tables.md").read_text("utf-8")
    assert "### Table 1: Accuracy on rings" in text and "Compared with PLAIN" in text
    line = next(line for line in text.splitlines() if line.startswith("| Rings"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["30.1±0.2", "**32.0±0.3**"]
    assert "as the paper did" not in text


def test_its_cells_and_claims_are_judged(out):
    ours, in_print = ((out / name).read_text("utf-8") for name in ("diff.md", "in_print.md"))
    assert "2 of the paper's 2 distinct cells have a number of ours; 2 of 2 comparable ones are within noise" in ours
    assert "its 2 cells equal the paper's" in in_print
    for text in (ours, in_print):
        assert "1 claims: ✅ holds 1" in text and "CAREFUL 32.0±0.3, PLAIN 30.1±0.2" in text


def test_the_page_cites_it(out):
    page = (out / "report.html").read_text("utf-8")
    assert "Ada Example, Bo Sample: Careful Training of Small Networks (2031)." in page
    assert "Careful training withstands more than plain training" in page


def test_no_word_of_the_shipped_paper_is_in_what_it_writes(out):
    words = [
        *METHODS,
        *PAPER.symbols.values(),
        PAPER.title,
        *PAPER.authors.split(", "),
        *PAPER.studies,
        "cross-entropy",
    ]
    words += [table.spec["title"] for table in PAPER.tables] + [effect.title for effect in PAPER.effects]
    words += [claim["claim"] for claim in PAPER.claims] + [one.title for one in PAPER.contradictions]
    foreign = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words))
    files = [path for path in out.rglob("*") if path.suffix in (".md", ".tex", ".csv", ".html", ".json")]
    assert len(files) == 8
    for path in files:
        text = re.sub(r'src="data:[^"]*"', "", path.read_text("utf-8"))
        assert foreign.findall(text) == [], path.name


def test_a_paper_that_is_not_there_or_broken_is_named(tmp_path):
    with pytest.raises(UserError, match=f"no paper is named 'sovvr'; did you mean {PAPER.name!r}"):
        papers.load("sovvr")
    (tmp_path / "paper.yaml").write_text((TINY / "paper.yaml").read_text("utf-8") + "baselines: x\n", "utf-8")
    with pytest.raises(UserError, match="baselines"):
        papers.load(tmp_path)

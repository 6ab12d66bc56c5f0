"""LaTeX, macros and CSV of the same tables."""

import shutil
import subprocess

import pandas as pd
import pytest
from hand_made import QuickStore, add_evaluation, add_study

from reports import write_reports
from reports.tables.latex import escape

AT, SOVR, EWAT = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491], [0.475, 0.482, 0.489]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("latex")
    store = QuickStore(folder / "store")
    names = {"mine": "50% of #1 & {x}_y^z \\ λ ε 日本 é"}
    accuracies = {"at": AT, "sovr": SOVR, "ewat": EWAT, "gairat": [0.3, None, None], "mine": [None] * 3}
    trials = add_study(store, "digits_8x8", accuracies, names=names, statuses={("gairat", 0): "failed"})
    add_evaluation(store, trials["ewat", 0], "autoattack", 0.475, warnings=("w",))
    add_study(store, "cifar10_awp", {"at+awp": AT, "sovr+awp": SOVR})
    write_reports(store.uri, None, folder / "out", figures=False)
    return folder / "out"


def test_the_document_has_booktabs_bold_underline_and_marks(out):
    text = (out / "tables.tex").read_text(encoding="utf-8")
    assert r"\toprule" in text and r"\documentclass" in text
    assert r"$\bm{49.4\pm 0.3}$" in text and r"\underline{$48.2\pm 0.7$}$^\dagger$" in text
    assert r"\multicolumn{4}{c}{AWP (WRN-34-10)}" in text
    assert r"50\% of \#1 \& \{x\}\_y\textasciicircum{}z \textbackslash{} $\lambda$ $\varepsilon$ ?? é" in text


def test_two_hyphens_stay_two():
    assert escape("run --set a-b ---") == "run -{}-set a-b -{}-{}-"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
def test_the_document_and_the_macros_compile(out, tmp_path):
    for name in ("tables.tex", "numbers.tex"):
        shutil.copy(out / name, tmp_path)
    user = r"\documentclass{article}\input{numbers}\begin{document}\DigitsEightXEightSovrAutoattack\end{document}"
    (tmp_path / "paper.tex").write_text(user)
    for name in ("tables.tex", "paper.tex"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stdout[-2000:]
        assert "Overfull \\hbox" not in run.stdout


def test_every_number_is_one_macro_with_its_parts(out):
    lines = (out / "numbers.tex").read_text(encoding="utf-8").splitlines()
    names = [line.split("{")[1].rstrip("}") for line in lines if line.startswith("\\newcommand")]
    assert len(names) == len(set(names))
    assert all(name[1:].isalpha() for name in names)
    assert r"\newcommand{\DigitsEightXEightSovrAutoattack}{$49.4\pm 0.3$}" in lines
    assert r"\newcommand{\DigitsEightXEightSovrAutoattackN}{3}" in lines
    assert r"\newcommand{\CifarOneZeroAwpSovrPlusAwpAutoattackMean}{$49.4$}" in lines


def test_control_signs_do_not_reach_tex():
    assert escape("a\x00b\x1bc") == "a?b?c"


def test_the_csv_has_one_line_per_cell_with_values_and_tests(out):
    frame = pd.read_csv(out / "tables.csv")
    assert set(frame["table"]) >= {"digits_8x8_main", "main", "lambda_cifar100"}
    main = frame[(frame["table"] == "digits_8x8_main") & (frame["row"] == "AutoAttack")].set_index("label")
    assert (
        main.loc["sovr", "best"] == 1 and main.loc["ewat", "tied"] == 1 and main.loc["ewat", "autoattack_warned"] == 1
    )
    assert main.loc["ewat", "p_student"] == pytest.approx(0.0525, abs=1e-4)
    assert main.loc["ewat", "p_welch"] == pytest.approx(0.0805, abs=1e-4)
    assert main.loc["sovr", "values"] == "[49.4, 49.7, 49.1]"
    assert main.loc["mine", "n"] == 0 and main.loc["gairat", "failed"] == 1


def test_no_format_calls_cells_tied_that_no_test_compared(tmp_path):
    store = QuickStore(tmp_path / "store")
    add_study(store, "one", {"at": AT[:1], "sovr": SOVR[:1]})
    write_reports(store.uri, None, tmp_path / "out", figures=False)
    text = (tmp_path / "out" / "tables.tex").read_text(encoding="utf-8")
    assert r"\underline" not in text and "No test was possible" in text
    table = pd.read_csv(tmp_path / "out" / "tables.csv")
    robust = table[(table["study"] == "one") & (table["measure"] == "autoattack")].set_index("label")
    assert robust["best"].to_dict() == {"at": 0, "sovr": 1}
    assert pd.isna(robust.loc["at", "tied"]) and robust.loc["sovr", "tied"] == 0

"""The tables of studies and of the paper, from hand-made records to Markdown."""

import pytest
import synthetic
from hand_made import QuickStore, add_evaluation, add_study, add_trial, results_of

from reports import write_reports, writing
from reports.analysis.statistics import Sample
from reports.store import freshness
from reports.store.load import load
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from reports.tables.table import Key, Rounding, best_index, signed
from sweep.store.numerics import NUMERICS_VERSION
from trainers.attacks import parse

AT, SOVR, EWAT = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491], [0.475, 0.482, 0.489]


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def row(table, header):
    cells = next(one.cells for block in table.blocks for one in block.rows if one.header == header)
    return {column.header: cell for column, cell in zip(table.columns, cells, strict=True)}


def markdown_of(store, tmp_path):
    write_reports(store.uri, None, tmp_path / "out", figures=False)
    return (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([48.0, 48.2, 47.8], "48.0±0.2"),
        ([50.35, 50.44, 50.53], "50.44±0.09"),
        ([36.7, 37.7, 38.7], "37.7±1"),
        ([20.0, 37.7, 55.4], "37.7±18"),
        ([48.0, 48.0, 48.0], "48.0±0"),
        ([48.04], "48.0"),
        # 0.096 rounds up to 0.1, and the mean follows.
        ([50.0, 50.096, 50.192], "50.1±0.1"),
    ],
)
def test_numbers_are_rounded_as_the_paper_does(values, text):
    assert Rounding().text(Sample.of(values)) == text


def test_margins_show_three_digits():
    assert Rounding(0, 3).text(Sample(-0.0293, 0.02, 3)) == "-0.0293±0.02"
    assert Rounding(0, 3).text(Sample(-0.68, 0.02, 3)) == "-0.68±0.02"
    assert Rounding(0, 3).text(Sample(-2.251, 0.007, 3)) == "-2.251±0.007"
    assert Rounding(0).text(Sample(19.4, 1.2, 3)) == "19±1"


def test_a_difference_that_rounds_to_nothing_keeps_its_sign():
    """An interval from -0.03 contains zero, one from +0.03 does not."""
    assert [signed(value) for value in (-0.03, 0.03, 0.04999, -0.0004)] == ["-0.03", "+0.03", "+0.05", "-0.0004"]
    assert [signed(value) for value in (0.0, -0.0, -1e-15, 0.05001, -0.06, 3)] == [
        *("+0.0", "+0.0", "+0.0", "+0.1", "-0.1", "+3.0")
    ]
    assert signed(-0.004, 2) == "-0.004"


def test_the_main_table_has_a_column_per_label_and_marks_the_best(store):
    add_study(store, "one", {"sovr": SOVR, "at": AT, "ewat": EWAT})
    table = study_tables(results_of(store), "one")[0]
    assert [column.header for column in table.columns] == ["AT", "EWAT", "SOVR"]
    robust = row(table, "AutoAttack")
    assert [cell.text for cell in robust.values()] == ["48.0±0.2", "48.2±0.7", "49.4±0.3"]
    assert [cell.best for cell in robust.values()] == [False, False, True]
    # T3 over three pairs: AT stays significantly below the best, EWAT does not.
    assert [cell.tied for cell in robust.values()] == [False, True, False]
    assert [cell.text for cell in row(table, "PGD-20").values()] == ["50.0±0.2", "50.2±0.7", "51.4±0.3"]
    assert all(cell.best for cell in row(table, "Clean").values())


def test_nothing_is_tied_where_no_test_was_possible_and_the_caption_says_so(store):
    add_study(store, "one", {"at": AT[:1], "sovr": SOVR[:1]})
    table = study_tables(results_of(store), "one")[0]
    assert not any(cell.tied for cell in table.cells())
    caption = " ".join(table.notes)
    assert "No test was possible" in caption and "nderlined" not in caption and "Welch" not in caption


def test_the_caption_does_not_say_that_untested_cells_differ(store):
    add_study(store, "one", {"at": AT, "sovr": SOVR, "ewat": EWAT[:1]})
    caption = " ".join(study_tables(results_of(store), "one")[0].notes)
    assert "All others that were tested differ significantly" in caption and "No test was possible" in caption


def test_equal_means_are_all_the_best_whatever_their_last_bit(store):
    # In percent these two means of 731 / 1080 differ in the last bit.
    accuracies = {"at": [240, 261, 230], "sovr": [236, 265, 230]}
    trials = add_study(store, "one", {label: [0.1] * 3 for label in accuracies})
    for (label, seed), trial in trials.items():
        add_evaluation(store, trial, "autoattack", accuracies[label][seed] / 360, images=360)
    at, sovr = row(study_tables(results_of(store), "one")[0], "AutoAttack").values()
    assert at.sample.mean != sovr.sample.mean
    assert at.best and sovr.best and not at.tied and not sovr.tied


def test_the_first_of_equal_means_is_the_reference_whatever_its_last_bit():
    low, high = Sample(67.685185, 1.0, 3), Sample(67.685185 * (1 + 2e-16), 1.0, 3)
    assert low.mean < high.mean
    assert best_index([None, low, high]) == best_index([None, high, low]) == 1
    assert best_index([None, low, high], "lowest") == best_index([None, high, low], "lowest") == 1
    assert best_index([low, Sample(67.7, 1.0, 3)]) == 1 and best_index([low, None]) is None


def test_columns_follow_the_papers_order_then_wrappers_then_others(store):
    labels = ["zeta", "sovr+awp", "tsovr", "at", "st", "at+awp", "alpha+awp", "alpha", "trades", "ovr"]
    add_study(store, "one", {label: [0.5] for label in labels})
    order = ["st", "at", "ovr", "trades", "tsovr", "at+awp", "sovr+awp", "alpha", "zeta", "alpha+awp"]
    assert list(results_of(store).labels["one"]) == order


def test_holes_failures_and_collapses_are_seen(store, tmp_path):
    statuses = {("trades", 2): "collapsed", ("mart", 0): "failed", ("mma", 0): "collapsed", ("mma", 1): "collapsed"}
    accuracies = {
        "at": AT,
        "trades": [0.488, 0.491, 0.1],
        "mart": [0.1, 0.5, None],
        "mail": [None] * 3,
        "mma": [0.1, 0.1],
    }
    add_study(store, "one", accuracies, statuses=statuses)
    text = markdown_of(store, tmp_path)
    line = next(line for line in text.splitlines() if line.startswith("| AutoAttack"))
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    # One seed allows no test: nothing is underlined.
    assert cells == ["48.0±0.2", "**50.0**§ (n=1)", "collapsed‡", "0/3", "49.0±0.2‡ (n=2)"]
    assert "‡ A training collapsed" in text and "§ A training failed" in text and "Holes:" in text
    assert "--methods mart --seeds 0 --retry-failed" in text


def test_a_collapsed_training_is_never_averaged_in(store):
    trials = add_study(store, "one", {"at": [0.48, 0.482, 0.1]}, statuses={("at", 2): "collapsed"})
    add_evaluation(store, trials["at", 2], "autoattack", 0.1)
    cell = results_of(store).cell(Key("one", "at", "autoattack"))
    assert cell.sample.n == 2 and cell.sample.mean == pytest.approx(48.1)


def test_autoattacks_warnings_become_daggers(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "gairat": EWAT})
    add_evaluation(store, trials["gairat", 1], "autoattack", 0.48, warnings=("gradients are zero",))
    text = markdown_of(store, tmp_path)
    assert "†" in next(line for line in text.splitlines() if line.startswith("| AutoAttack"))
    assert "† AutoAttack warned" in text


def test_the_table_shows_the_headline_checkpoint_and_says_so(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    for trial in trials.values():
        add_evaluation(store, trial, "autoattack", 0.30, checkpoint="last")
    results = results_of(store)
    main, others = study_tables(results, "one")[:2]
    assert row(main, "AutoAttack")["AT"].text == "48.0±0.2"
    assert "checkpoint best_test" in " ".join(main.notes)
    assert row(others, "AutoAttack, last")["AT"].text == "30.0±0"
    assert row(others, "AutoAttack, best_test")["AT"].text == "48.0±0.2"


def test_a_study_evaluated_at_another_checkpoint_only_shows_that_one(store):
    trials = add_study(store, "one", {"at": [None]})
    add_trial(store, trials["at", 0])
    add_evaluation(store, trials["at", 0], "autoattack", 0.4, checkpoint="last")
    table = study_tables(results_of(store), "one")[0]
    assert row(table, "AutoAttack")["AT"].text == "40.0"
    assert "checkpoint last: the last epoch" in " ".join(table.notes)


def test_the_evaluation_that_the_study_asked_for_counts(store):
    trials = add_study(store, "one", {"at": [0.48]})
    add_evaluation(store, trials["at", 0], parse("autoattack", seed=1), 0.3, images=2000)
    assert results_of(store).cell(Key("one", "at", "autoattack")).sample.mean == pytest.approx(48.0)


def test_the_caption_counts_the_images_of_the_numbers_shown_only(store):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    for trial in trials.values():
        add_evaluation(store, trial, parse("autoattack", seed=1), 0.3, images=100)
        add_evaluation(store, trial, parse("autoattack", epsilon="16/255"), 0.2, images=200)
    assert "on 1,000 test images" in study_tables(results_of(store), "one")[0].notes[0]


def test_the_caption_counts_the_images_of_a_clean_accuracy_that_an_attack_left(store):
    trials = add_study(store, "one", {"at": [None]}, attacks=[])
    add_trial(store, trials["at", 0])
    add_evaluation(store, trials["at", 0], "fgsm", 0.5, images=100)
    add_evaluation(store, trials["at", 0], "cw-100", 0.4, images=300)
    assert "on 300 test images" in study_tables(results_of(store), "one")[0].notes[0]


def test_captions_name_protocol_checkpoint_attack_radius_and_test(store, tmp_path):
    add_study(store, "one", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    caption = " ".join(study_tables(results_of(store), "one")[0].notes)
    for word in (
        "Protocol paper",
        "best_test",
        "AutoAttack",
        "ε = 8/255",
        "Dunnett's T3",
        "two-sided",
        "ddof=1",
        "1,000",
    ):
        assert word in caption


def test_the_tests_table_gives_both_p_values_and_the_way_to_decide(store, tmp_path):
    add_study(store, "digits", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    text = markdown_of(store, tmp_path)
    against_best = text[text.index("against SOVR, the best") :]
    line = next(line for line in against_best.splitlines() if line.startswith("| EWAT"))
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[4:6] == ["0.052", "0.081"] and "undecided" in cells
    assert f"`python -m sweep.decide --study digits 'sovr > ewat' --store {tmp_path}" in text
    assert "EWAT against SOVR: if means and spreads stay as observed, about 4 more seeds would decide this" in text


def test_names_cannot_break_the_table(store, tmp_path):
    add_study(store, "one", {"at": AT, "evil": SOVR}, names={"evil": "a|b\n<script>*x*</script>"}, title="`x` <b>")
    text = markdown_of(store, tmp_path)
    assert "<script>" not in text and "a\\|b \\<script\\>" in text
    table = [line for line in text.splitlines() if line.startswith(("|", "|:"))][:3]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1


def test_the_papers_tables_are_filled_by_study_and_method(store):
    used = {"sovr": {"M": 60, "lam": 0.4}}
    add_study(store, "cifar10_rn18", {"at": AT, "sovr": SOVR}, hyperparameters=used)
    tables = paper_tables(results_of(store))
    assert [table.number for table in tables] == [1, 2, 3, 4, 5, 6, 7]
    line = row(tables[0], "CIFAR10 (RN18)")
    assert (line["AT"].text, line["SOVR"].text, line["MART"].hole) == ("48.0±0.2", "49.4±0.3", "—")
    assert line["SOVR"].departs == ("M 60 instead of 40",)  # nothing searched it
    assert tables[1].filled == 0
    assert row(tables[2], "CIFAR10 (RN18)")["AT"].text == "-2±0"


def test_a_column_of_the_table_on_lambda_is_filled_by_its_own_value_only(store):
    used = {"sovr": {"M": 50, "lam": 0.6}}
    add_study(store, "cifar100_rn18", {"at": AT, "sovr": SOVR}, hyperparameters=used)
    line = row(paper_tables(results_of(store))[6], "CIFAR100 (RN18)")
    assert line["SOVR (λ=0.5)"].sample is None
    assert line["SOVR (λ=0.6)"].text == "49.4±0.3"
    assert line["AT"].text == "48.0±0.2"


def test_the_ratio_of_margins_is_taken_seed_by_seed(store):
    trials = add_study(store, "trajectories_cifar10_rn18", {"at": [0.5, 0.5], "ovr": [0.5, 0.5]})
    for label, seed, margin in [("at", 0, -1.0), ("at", 1, -2.0), ("ovr", 0, -1.8), ("ovr", 1, -3.4)]:
        add_trial(store, trials[label, seed], curve=[{"epoch": 0, "train_margin": margin}])
    cell = paper_tables(results_of(store))[3].blocks[0].rows[0].cells[0]
    assert cell.sample.values == pytest.approx((1.8, 1.7))


def test_a_caption_says_where_trainings_were_computed_with_what_rounds_differently(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    assert "which round differently" not in markdown_of(store, tmp_path)
    add_trial(store, trials["sovr", 1], versions={"torch": "2.13.0+cu130"}, device="NVIDIA H100")
    text = markdown_of(store, tmp_path)
    assert "with different devices, which round differently: NVIDIA H100, cpu." in text
    assert "with different builds of torch, which round differently: 2.13.0, 2.13.0+cu130." in text


def test_a_caption_names_threads_where_they_differ_on_a_cpu(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    for place, kind, threads in ((("at", 0), "cpu", 1), (("at", 1), "cpu", 1), (("sovr", 1), "cuda", 8)):
        add_trial(store, trials[place], device_kind=kind, threads=threads)
    assert "numbers of threads" not in markdown_of(store, tmp_path)
    add_trial(store, trials["sovr", 0], device_kind="cpu", threads=2)
    text = markdown_of(store, tmp_path)
    assert "with different numbers of threads, which round differently: 1, 2." in text
    assert "kinds of device" not in text


def test_a_caption_begins_with_data_that_differ_and_names_both(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    for place, sha256 in ((("at", 0), "a"), (("at", 1), "a")):
        add_trial(store, trials[place], data={"cifar10": sha256 * 64})
    assert "NO COMPARISON" not in markdown_of(store, tmp_path)  # those that do not say are not compared
    add_trial(store, trials["sovr", 1], data={"cifar10": "b" * 64})
    note = next(iter(study_tables(results_of(store), "one"))).notes[0]
    assert note == (
        "NO COMPARISON: models of one were made on different data under the name 'cifar10' (2 on sha256 "
        "aaaaaaaaaaaaaaaa…, 1 on sha256 bbbbbbbbbbbbbbbb…); train them again in another store."
    )
    assert note in markdown_of(store, tmp_path)


def test_a_caption_says_which_trainings_are_of_another_numerics_version(store, tmp_path):
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR})
    assert "numerics version" not in markdown_of(store, tmp_path)
    add_trial(store, trials["sovr", 1], numerics=NUMERICS_VERSION - 1)
    wanted = f"one shows 1 training of numerics version {NUMERICS_VERSION - 1}; this version makes version "
    assert f"{wanted}{NUMERICS_VERSION} and trains anew." in markdown_of(store, tmp_path)


def test_the_same_records_give_the_same_bytes(store, tmp_path):
    add_study(store, "one", {"at": AT, "sovr": SOVR, "ewat": EWAT})
    first = write_reports(store.uri, None, tmp_path / "a", figures=False)
    second = write_reports(store.uri, None, tmp_path / "b", figures=False)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_an_empty_store_has_a_report_too(store, tmp_path):
    store.root.mkdir()
    assert "holds no study yet" in markdown_of(store, tmp_path)


def test_broken_records_are_named_in_the_report(store, tmp_path):
    trials = add_study(store, "one", {"at": AT})
    (store.root / "trials" / trials["at", 0][:16] / "record.json").write_text("{")
    text = markdown_of(store, tmp_path)
    assert "## Left out" in text and trials["at", 0][:16] in text
    assert "48.0±0.3 (n=2)" in text


def test_figures_are_drawn_again_only_when_a_record_changed(tmp_path):
    store = synthetic.write_store(
        tmp_path / "store", methods={"at": synthetic.METHODS["at"]}, search=False, diagnostics=False
    )
    page = tmp_path / "out" / "report.html"

    def redrawn() -> bool:
        before = page.stat().st_mtime_ns
        write_reports(store.uri, None, tmp_path / "out", keep_current=True)
        return page.stat().st_mtime_ns != before

    write_reports(store.uri, None, tmp_path / "out", keep_current=True)
    assert not redrawn()
    record = next(path for path in store.paths("evaluations") if path.endswith(".json"))
    store.delete(record)
    assert redrawn() and not redrawn()
    (tmp_path / "out" / "plots" / "made_from.txt").unlink()  # as if the drawing had been killed
    assert redrawn()
    picture = tmp_path / "out" / "plots" / "synthetic-hero.png"
    picture.unlink()
    assert redrawn() and picture.exists()
    for name in ("plots/index.json", "tables.csv", "numbers.tex"):
        (tmp_path / "out" / name).unlink()
        assert redrawn() and (tmp_path / "out" / name).exists() and not redrawn()


def test_of_a_current_report_nothing_is_read(store, tmp_path, monkeypatch):
    add_study(store, "one", {"at": AT})
    written = write_reports(store.uri, None, tmp_path / "out")
    monkeypatch.delattr(writing, "write")
    assert write_reports(store.uri, None, tmp_path / "out", keep_current=True) == written
    assert {path.name for path in written} >= {"tables.md", "tables.tex", "tables.csv", "numbers.tex", "report.html"}


def test_figures_are_drawn_again_when_the_code_that_draws_them_changed(tmp_path, monkeypatch):
    sources = tmp_path / "reports"
    (sources / "templates").mkdir(parents=True)
    monkeypatch.setattr(freshness, "SOURCES", sources)
    marks = []
    for name, text in [("hero.py", "a"), ("hero.py", "b"), ("templates/report.css", "c"), ("tables.md", "d")]:
        (sources / name).write_text(text)
        marks.append(freshness.fingerprint(tmp_path / "store", None, None))
    # The last is what a report itself writes, which is no source.
    assert len(set(marks)) == 3 and marks[3] == marks[2]


def test_a_record_that_arrives_while_a_report_is_made_is_in_the_next(store, tmp_path, monkeypatch):
    trials = add_study(store, "one", {"at": AT})

    def slow_load(*arguments):
        data = load(*arguments)
        add_evaluation(store, trials["at", 0], "fgsm", 0.6)
        return data

    monkeypatch.setattr(writing, "load", slow_load)
    page = write_reports(store.uri, None, tmp_path / "out")[-1]
    assert "FGSM" not in page.read_text("utf-8")
    monkeypatch.undo()
    write_reports(store.uri, None, tmp_path / "out", keep_current=True)
    assert "FGSM" in page.read_text("utf-8")

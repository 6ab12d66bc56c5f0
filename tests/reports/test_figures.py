"""Figures: what is drawn equals the tables, what is missing says why, and the same numbers give the same bytes."""

import html
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import synthetic
from hand_made import PAPER, QuickStore, add_diagnostics, results_of, trial_hash
from matplotlib import rc_context
from matplotlib.text import Text

from reports.analysis.results import Results
from reports.figures import bars, gradients, hero, margins, search, style, trade_off, training_curves
from reports.figures.draw import declared, draw_all, read_index
from reports.figures.view import MissingResults, StudyView
from reports.page.page import write_page
from reports.tables.study import study_tables
from reports.tables.table import Key
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import CandidateEntry
from sweep.store.records.trial import Checkpoint
from tests.records import TRIAL

EVERYTHING = {
    **{label: synthetic.METHODS[label] for label in ("st", "at", "ovr", "gairat", "sovr", "sovr+awp")},
    "sovr_m20": synthetic.ABLATIONS["sovr_m20"],
    "sovr_l6": synthetic.ABLATIONS["sovr_l6"],
}
HOSTILE = "</script><img src=x onerror=alert(1)>$\\frac{x}\x00\x1b[31m"


@pytest.fixture(autouse=True)
def figure_style():
    with rc_context(style.RC):
        yield


@pytest.fixture(scope="module")
def full_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    synthetic.write_store(folder, methods=EVERYTHING, failed=(("gairat", 2),), transfers=True)
    return folder


def view_of(folder: Path, study: str = "synthetic") -> StudyView:
    return StudyView(results_of(folder), study)


def drawn(name: str, view: StudyView):
    return next(figure for figure in declared(PAPER) if figure.name == name).draw(view)


@pytest.fixture
def view(full_store) -> StudyView:
    return view_of(full_store)


def test_every_figure_is_drawn_twice_with_the_same_bytes(full_store, tmp_path):
    first = draw_all(results_of(full_store), tmp_path / "first", pdf=False)
    entries = read_index(tmp_path / "first")
    assert [entry.name for entry in entries] == [figure.name for figure in declared(PAPER)]
    assert [entry.name for entry in entries if not entry.files] == []
    assert all(entry.caption and entry.title for entry in entries)
    assert {entry.width for entry in entries} == {style.FULL, style.HALF}
    assert {entry.name for entry in entries if entry.narrow} == {"hero", "overfitting", "transfer", "curve"}
    assert len(first) == 2 * (len(entries) + 4) + 1
    for path in first:
        if path.suffix == ".svg":
            ElementTree.parse(path)
            assert b"<dc:date>" not in path.read_bytes()
        elif path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
    second = draw_all(results_of(full_store), tmp_path / "second", pdf=False)
    assert [a.name for a, b in zip(first, second, strict=True) if a.read_bytes() != b.read_bytes()] == []


def test_a_png_has_160_pixels_to_the_inch(tmp_path):
    figure, _ = style.canvas(7.6, 2.5)
    svg, png = style.save(figure, tmp_path / "one", pdf=False)
    assert [int.from_bytes(png.read_bytes()[start : start + 4]) for start in (16, 20)] == [1216, 400]
    assert (ElementTree.parse(svg).getroot().get("width") or "").startswith("547.2")


def test_a_pdf_has_no_date_and_fonts_that_journals_take(view, tmp_path):
    figures = [hero.draw(view)[0], hero.draw(view)[0]]
    first, second = (style.save(figure, tmp_path / str(number))[2] for number, figure in enumerate(figures))
    content = first.read_bytes()
    assert first.suffix == ".pdf" and content.startswith(b"%PDF") and content == second.read_bytes()
    assert b"/CreationDate" not in content and b"/Type3" not in content


def test_a_study_without_results_lists_every_figure_with_reason_and_command(tmp_path):
    store = synthetic.write_store(tmp_path / "store", methods={"at": synthetic.METHODS["at"]}, search=False)
    for path in store.paths("trials") + store.paths("evaluations") + store.paths("diagnostics"):
        store.delete(path)
    draw_all(results_of(tmp_path / "store"), tmp_path / "out", pdf=False)
    toy, *others = read_index(tmp_path / "out")
    assert toy.files
    assert len(others) == len(declared(PAPER)) - 1
    for entry in others:
        assert not entry.files and entry.reason, entry
        assert entry.command.startswith(("python -m sweep.run --study ", "python -m sweep.transfer --study ")), entry


def test_an_empty_store_gives_the_toy_problem_only(tmp_path):
    QuickStore(tmp_path / "store").write("readme", b"")
    drawn = draw_all(results_of(tmp_path / "store"), tmp_path / "out", pdf=False)
    assert [path.name for path in drawn] == ["toy_trajectories.svg", "toy_trajectories.png", "index.json"]


def test_bars_have_the_heights_of_the_tables(view):
    figure, caption = bars.draw(view)
    assert "run alone" in caption
    heights = sorted(round(bar.get_height(), 6) for axis in figure.axes for bar in axis.patches if bar.get_height() > 0)
    expected = []
    for method in view.methods:
        for attack, *_ in bars.ATTACKS:
            sample = view.results.cell(Key("synthetic", method.label, attack)).sample
            assert sample is not None
            expected.append(round(sample.mean, 6))
    assert heights == sorted(value for value in expected if value > 0)


def test_bars_show_phases_when_the_components_were_not_run_alone(tmp_path):
    synthetic.write_store(tmp_path, methods={"at": synthetic.METHODS["at"]}, components=False, diagnostics=False)
    figure, caption = bars.draw(view_of(tmp_path))
    assert "after each phase" in caption
    assert len(figure.axes[0].patches) == len(bars.ATTACKS)


def test_failed_and_collapsed_trials_are_in_no_figure(tmp_path):
    store = synthetic.write_store(tmp_path, methods=EVERYTHING, failed=(("gairat", 2),))
    collapsed = trial_hash("synthetic", "at", 0)
    record = store.trial_record(collapsed)
    store.write_record(record.model_copy(update={"status": "collapsed", "reason": "loss is NaN"}))
    counts = {method.label: method.accuracies("autoattack").size for method in view_of(tmp_path).methods}
    assert counts["gairat"] == 2 and counts["at"] == 2 and counts["sovr"] == 3


def test_hero_is_sorted_and_leaves_standard_training_out(view):
    figure, _ = hero.draw(view)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    best_first = sorted(
        (method for method in view.methods if method.base != "st"), key=lambda one: one.accuracies("autoattack").mean()
    )
    assert names == [method.name for method in best_first]


def test_trade_off_has_a_line_of_equal_sum_through_sovr(view):
    figure, _ = trade_off.draw(view)
    sums = [float(method.accuracies("clean").mean() + method.accuracies("autoattack").mean()) for method in view.methods
            if method.base == "sovr"]  # fmt: skip
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--" and len(line.get_xdata()) == 2]
    totals = [float(x + y) for line in dashed for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    assert any(total == pytest.approx(max(sums)) for total in totals)
    assert {text.get_text() for text in figure.axes[0].texts} >= {"SOVR", "AT", "SOVR+AWP"}


WRN, AWP, RN18, SVHN = "cifar10_wrn", "cifar10_awp", "cifar10_rn18", "svhn_rn18"


def write_two(folder: Path, first: str, second: str, **options) -> None:
    """Two studies of the paper; the second has the combination with AWP beside AT."""
    chosen = {label: synthetic.METHODS[label] for label in ("st", "at", "sovr")}
    synthetic.write_store(folder, name=first, methods=chosen, components=False, search=False, **options)
    combined = {label: synthetic.METHODS[label] for label in ("at", "sovr+awp")}
    synthetic.write_store(folder, name=second, methods=combined, components=False, search=False, **options)


def test_the_trade_off_of_several_studies_has_all_their_methods_and_a_line_through_each_sovr(tmp_path):
    write_two(tmp_path, WRN, AWP, diagnostics=False)
    results = results_of(tmp_path)
    views = [StudyView(results, name) for name in (WRN, AWP)]
    figure, caption = trade_off.draw_together(*views)
    axis = figure.axes[0]
    points = sorted((c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in axis.containers)
    expected = sorted(
        (method.accuracies("clean").mean(), method.accuracies("autoattack").mean())
        for view in views
        for method in view.adversarial_methods
    )
    assert points == expected and len(points) == 4
    sums = {round(sum(line.get_xydata()[0]), 6) for line in axis.lines if line.get_linestyle() == "--"}
    through = [method for view in views for method in view.methods if method.base == "sovr"]
    assert sums == {
        round(float(one.accuracies("clean").mean() + one.accuracies("autoattack").mean()), 6) for one in through
    }
    assert caption.count("best epoch on test") == 2


def test_the_rates_of_several_studies_stand_in_one_picture_on_one_scale(tmp_path):
    write_two(tmp_path, RN18, SVHN, seeds=(0,))
    results = results_of(tmp_path)
    views = [StudyView(results, name) for name in (RN18, SVHN)]
    figure, _ = gradients.draw_rates_together(*views)
    assert len(figure.axes) == 2 and figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    for view, axis in zip(views, figure.axes, strict=True):
        heights = sorted(bar.get_height() for bar in axis.patches)
        rates = [
            100 * m.summaries(key, "best_test")[0] for m in view.adversarial_methods for key, *_ in gradients.RATES
        ]
        assert heights == pytest.approx(sorted(rates)) and len(rates) == 4


def test_a_figure_of_several_studies_needs_two_and_says_which_are_not_stored(tmp_path):
    write_two(tmp_path / "store", WRN, AWP, diagnostics=False, seeds=(0,))
    draw_all(results_of(tmp_path / "store"), tmp_path / "out", pdf=False)
    (entry,) = [one for one in read_index(tmp_path / "out") if one.study is None and one.name not in PAPER.theory]
    assert entry.name == "trade_off_combinations" and len(entry.files) == 2
    command = "python -m sweep.run --study cifar10_seat --store "
    assert f"Not in the store: cifar10_seat, cifar10_ddpm (`{command}" in entry.caption
    assert entry.caption.endswith("(Figure 7 of the paper.)")


def test_a_caption_names_the_papers_figure_where_the_paper_has_that_study():
    assert PAPER.figure_number("margin_histograms", RN18) == "(Figures 2, 4 and 8 of the paper.)"
    assert PAPER.figure_number("margin_histograms", "svhn_rn18") == "(Figures 11 and 12 of the paper.)"
    assert PAPER.figure_number("margin_histograms", "digits") == PAPER.figure_number("hero", RN18) == ""
    assert PAPER.figure_number("toy_trajectories", None) == "(Figure 3(a) of the paper.)"
    known = {figure.name for figure in declared(PAPER)} | {one.name for one in PAPER.together}
    assert set(PAPER.numbers) <= known
    assert all(next(f for f in declared(PAPER) if f.name == one.figure).together for one in PAPER.together)


def test_histograms_hold_every_training_image_once(view):
    figure, _ = margins.draw_logit(view)
    outlines = [axis.patches for axis in figure.axes if axis.get_visible()]
    assert len(outlines) == 2 * len(view.methods)
    for correct, wrong, total in outlines:
        assert correct.get_data().values.sum() <= 100 + 1e-6
        assert wrong.get_data().values.sum() == pytest.approx(100)
        np.testing.assert_allclose(wrong.get_data().baseline, correct.get_data().values)
        np.testing.assert_allclose(total.get_data().values, wrong.get_data().values)


def test_a_method_spread_far_wider_than_the_others_has_a_margin_axis_of_its_own(tmp_path):
    chosen = {label: synthetic.METHODS[label] for label in ("at", "ovr", "trades", "ewat")}
    wide = ("WIDE", "mma", {}, *synthetic.METHODS["at"][3:6], -60.0)
    synthetic.write_store(tmp_path / "a", methods={**chosen, "mma": wide}, seeds=(0,), failed=())
    figure, caption = margins.draw_logit(view_of(tmp_path / "a"))
    spans = {axis.get_title(loc="left"): axis.get_xlim() for axis in figure.axes if axis.get_title(loc="left")}
    assert spans["AT"] == spans["OVR"] == spans["TRADES"] != spans["WIDE"]
    assert spans["WIDE"][1] - spans["WIDE"][0] > 4 * (spans["AT"][1] - spans["AT"][0])
    assert "those on grey" in caption
    synthetic.write_store(tmp_path / "b", methods=chosen, seeds=(0,), failed=())
    assert "those on grey" not in margins.draw_logit(view_of(tmp_path / "b"))[1]


def test_margins_that_are_no_numbers_leave_their_panel_out(tmp_path):
    chosen = {label: synthetic.METHODS[label] for label in ("at", "ovr")}
    store = synthetic.write_store(tmp_path, methods=chosen, seeds=(0,), failed=())
    broken = {"train_margin": np.full(5, np.nan), "train_correct": np.ones(5, bool)}
    for checkpoint in ("best_test", "last"):
        add_diagnostics(store, trial_hash("synthetic", "ovr", 0), {}, broken, checkpoint=checkpoint)
    figure, _ = margins.draw_logit(view_of(tmp_path))
    assert [title for axis in figure.axes if (title := axis.get_title(loc="left"))] == ["AT"]


def test_the_rows_of_the_margins_are_those_of_the_caption(tmp_path):
    """The paper's histograms of SVHN at epoch 100; a study that asks for them has them once they are measured."""
    chosen = {label: synthetic.METHODS[label] for label in ("at", "ovr")}
    store = synthetic.write_store(tmp_path, methods=chosen, seeds=(0,), failed=())
    manifest = store.manifest("synthetic")
    asked = {**manifest.study, "evaluation": {**manifest.study["evaluation"], "diagnosed": ["epoch-100"]}}
    store.write_record(manifest.model_copy(update={"study": asked}))
    figure, caption = margins.draw_logit(view_of(tmp_path))
    assert notes(figure) == {"best", "last"} and "Upper rows best epoch on test, lower rows last" in caption
    arrays = {"train_margin": np.linspace(-2, 1, 50), "train_correct": np.ones(50, bool)}
    add_diagnostics(store, trial_hash("synthetic", "at", 0), {}, arrays, checkpoint="epoch-100")
    figure, caption = margins.draw_logit(view_of(tmp_path))
    assert notes(figure) == {"epoch 100", "best", "last"}
    assert "Upper rows epoch 100 and best epoch on test, lower rows last" in caption


def notes(figure):
    return {text.get_text().partition("\n")[0] for axis in figure.axes for text in axis.texts}


def test_a_legend_is_never_wider_than_its_figure(view):
    view.searches = view.searches[:1]  # one narrow panel
    for draw in (search.draw_history, search.draw_landscape, bars.draw):
        figure, _ = draw(view)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().width <= figure.bbox.width


def test_names_and_sums_in_the_trade_off_cover_neither_each_other_nor_a_marker(view):
    figure, _ = trade_off.draw(view)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    boxes = [Text.get_window_extent(text) for text in axis.texts]
    assert len(boxes) > len(view.adversarial_methods)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize(
    ("checkpoint", "legend"),
    [("best_validation", "best epoch on validation, per seed"), ("best_test", "best epoch on test, per seed")],
)
def test_diamonds_mark_the_epochs_whose_weights_the_tables_show(tmp_path, checkpoint, legend):
    store = synthetic.write_store(tmp_path, methods={"at": synthetic.METHODS["at"]}, diagnostics=False, search=False)
    store.write_record(store.manifest("synthetic").model_copy(update={"checkpoint": checkpoint}))
    for record in list(store.records(EvaluationRecord, store.paths("evaluations"))):
        store.write_record(EvaluationRecord(**{**record.model_dump(), "checkpoint": checkpoint}))
    chosen = {}
    for seed in range(3):
        record = store.trial_record(trial_hash("synthetic", "at", seed))
        epochs = {"best_test": 20 + seed, "best_validation": 10 + seed}
        kept = {name: Checkpoint(epoch=at, sha256="c" * 64) for name, at in epochs.items()}
        store.write_record(record.model_copy(update={"checkpoints": kept}))
        chosen[epochs[checkpoint] + 1] = 100 * record.curve[epochs[checkpoint]]["test_pgd_accuracy"]
    figure, caption = training_curves.draw(view_of(tmp_path))
    (diamonds,) = [line for line in figure.axes[0].lines if line.get_marker() == "D"]
    assert dict(zip(diamonds.get_xdata(), diamonds.get_ydata(), strict=True)) == pytest.approx(chosen)
    assert legend in [text.get_text() for text in figure.legends[0].texts]
    assert "tables" in caption


def test_without_curves_on_test_images_the_held_out_images_are_shown(tmp_path):
    store = synthetic.write_store(tmp_path, methods={"at": synthetic.METHODS["at"]}, diagnostics=False, search=False)
    for seed in range(3):
        record = store.trial_record(trial_hash("synthetic", "at", seed))
        curve = [
            {
                **row,
                "test_pgd_accuracy": None,
                "test_clean_accuracy": None,
                "validation_pgd_accuracy": 0.5 if odd else None,
            }
            for odd, row in ((number % 2, row) for number, row in enumerate(record.curve))
        ]
        store.write_record(record.model_copy(update={"curve": tuple(curve)}))
    figure, caption = training_curves.draw(view_of(tmp_path))
    assert [text.get_text() for text in figure.legends[0].texts][:2] == ["training, as trained", "validation, PGD"]
    assert figure.axes[0].get_title(loc="left").endswith("(n=3)") and "on the held-out images" in caption


def test_effect_of_m_starts_at_adversarial_training_and_keeps_lambda(view):
    figure, _ = drawn("effect_of_m", view)
    container = figure.axes[2].containers[0]
    assert list(container.lines[0].get_xdata(orig=False)) == [0.0, 20.0, 40.0]
    by_label = {method.label: method for method in view.methods}
    expected = [by_label[label].accuracies("autoattack").mean() for label in ("at", "sovr_m20", "sovr")]
    np.testing.assert_allclose(container.lines[0].get_ydata(orig=False), expected)
    assert container.get_label() == "SOVR, λ = 0.4"


def test_effect_of_lambda_needs_two_values(tmp_path):
    synthetic.write_store(tmp_path, methods={"sovr": synthetic.METHODS["sovr"]}, diagnostics=False, failed=())
    with pytest.raises(MissingResults, match="lam"):
        drawn("effect_of_lambda", view_of(tmp_path))


def test_margin_trajectories_state_the_ratio_at_the_last_epoch(view):
    figure, caption = drawn("margin_trajectories", view)
    assert {line.get_label() for line in figure.axes[0].lines} >= {"CE, w=1", "OVR, w=1"}
    by_label = {method.label: method for method in view.methods}

    def last(label: str) -> float:
        return float(np.mean([curve[-1] for curve in by_label[label].curves("train_margin")]))

    assert f"{last('ovr') / last('at'):.2f} for w=1" in caption


def test_margin_trajectories_tell_weights_apart(tmp_path):
    synthetic.write_store(tmp_path, methods=synthetic.TRAJECTORIES, diagnostics=False, components=False, search=False)
    figure, caption = drawn("margin_trajectories", view_of(tmp_path))
    lines = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    assert {line.get_label() for line in lines} == {"CE, w=1", "CE, w=5", "OVR, w=1", "OVR, w=5"}
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 4
    assert "for w=1" in caption and "for w=5" in caption


def test_no_ratio_is_stated_while_a_mean_margin_is_still_wrong_sided(tmp_path):
    methods = {
        "ce": ("CE", "weighted_ce", {"weight": 1.0}, 80, 50, 47, 0.1),
        "ovr": ("OVR", "weighted_ovr", {"weight": 1.0}, 80, 50, 47, -3.0),
    }
    synthetic.write_store(tmp_path, methods=methods, diagnostics=False, components=False, search=False)
    assert "for w=1" not in drawn("margin_trajectories", view_of(tmp_path))[1]


def test_search_history_rises_and_marks_the_chosen_candidate(view):
    figure, _ = search.draw_history(view)
    steps = [line for axis in figure.axes for line in axis.lines if line.get_label() == "best so far"]
    assert len(steps) == 2
    for line in steps:
        assert np.all(np.diff(line.get_ydata()) >= 0)
    chosen = [line for axis in figure.axes for line in axis.lines if line.get_label() == "chosen"]
    assert [line.get_ydata()[0] for line in chosen] == [line.get_ydata()[-1] for line in steps]


@pytest.mark.parametrize(
    "candidates",
    [
        [({"M": 40, "lam": 0.4}, 0.5, "done")],
        [({"beta": b}, 0.4 + b / 100, "pruned" if b == 2 else "done") for b in (1.0, 2.0, 6.0)],
        [({"M": m, "lam": m / 100}, 0.5, "done") for m in range(10, 100, 10)],
        [({"M": 40, "lam": 0.4}, None, "open"), ({}, 0.3, "done")],
    ],
    ids=["one candidate", "one hyperparameter", "all on a line", "holes"],
)
def test_searches_of_any_shape_can_be_drawn(tmp_path, candidates):
    store = synthetic.write_store(tmp_path, methods={"sovr": synthetic.METHODS["sovr"]}, diagnostics=False)
    entries = [
        CandidateEntry(index=index, generation=0, trial=TRIAL, hyperparameters=values, value=value, state=state)
        for index, (values, value, state) in enumerate(candidates)
    ]
    for name in ("synthetic-sovr", "synthetic-tsovr"):
        changes = {"candidates": tuple(entries), "chosen": None, "status": "running"}
        store.write_record(store.search_record(name).model_copy(update=changes))
    view = view_of(tmp_path)
    for draw in (search.draw_landscape, search.draw_history):
        figure, _ = draw(view)
        figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("papers", "method", "legend", "sentence"),
    [
        (["sovr"], "sovr", "the paper's value", "the paper's values, M = 40, lam = 0.4"),
        (["sovr"], "cat_at", "the study's value", "the study's own values, M = 40, lam = 0.4"),
        ([], "sovr", "the study's value", "the study's own values, M = 40, lam = 0.4"),
    ],
)
def test_values_are_the_papers_only_beside_a_paper_that_has_them(tmp_path, papers, method, legend, sentence):
    store = synthetic.write_store(tmp_path, methods={"sovr": synthetic.METHODS["sovr"]}, diagnostics=False)
    record = store.search_record("synthetic-sovr")
    store.write_record(record.model_copy(update={"method": method, "own_value": record.paper_value}))
    manifest = store.manifest("synthetic")
    store.write_record(manifest.model_copy(update={"study": {**manifest.study, "papers": papers}}))
    view = StudyView(Results.read(tmp_path), "synthetic")
    for draw in (search.draw_landscape, search.draw_history):
        figure, _ = draw(view)
        squares = {line.get_label() for line in figure.axes[0].lines if line.get_marker() == "s"}
        assert squares == {legend}
    page = write_page(view.results, study_tables(view.results, "synthetic"), [], tmp_path / "out").read_text()
    assert sentence in html.unescape(page)


def test_one_seed_and_hostile_names_still_give_wellformed_files(tmp_path):
    methods = {HOSTILE: (HOSTILE, "at", {}, *synthetic.METHODS["at"][3:]), "sovr": synthetic.METHODS["sovr"]}
    synthetic.write_store(tmp_path / "store", title=HOSTILE, methods=methods, seeds=(5,), failed=())
    drawn = draw_all(results_of(tmp_path / "store"), tmp_path / "out", pdf=False)
    assert len(drawn) > 20
    for path in drawn:
        if path.suffix == ".svg":
            elements = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
            assert not elements & {"script", "img", "foreignObject"}, path


def test_methods_differ_in_marker_or_dash_and_not_in_colour_alone():
    names = ["st", "at", "ovr", "mart", "mma", "gairat", "mail", "ewat", "sovr", "trades", "tsovr", "sovr+awp", "other"]
    styles = style.method_styles(((name, name) for name in names), PAPER.looks)
    for first, second in combinations(names, 2):
        shape = [(styles[name].marker, styles[name].dash, styles[name].filled) for name in (first, second)]
        assert shape[0] != shape[1], (first, second)


def test_variants_of_one_method_can_be_told_apart():
    styles = style.method_styles(((f"sovr_{index}", "sovr") for index in range(8)), PAPER.looks)
    assert len({(one.marker, one.dash) for one in styles.values()}) == 8


def test_figures_load_neither_torch_nor_ray_nor_pyplot():
    code = "import sys, reports.figures.draw as draw, reports.papers as papers; draw.declared(papers.load())"
    code += "; print(*({'torch', 'ray', 'matplotlib.pyplot'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []

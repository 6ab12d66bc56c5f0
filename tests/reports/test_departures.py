"""A cell of the paper's tables that ran with other settings than the shipped study carries a mark, and says what."""

import subprocess
import sys

import pytest
from hand_made import PAPER, QuickStore, add_diagnostics, add_evaluation, add_study, results_of

from reports.analysis.claims import judge as claims
from reports.analysis.claims.sources import Ours
from reports.comparison.departures import Departures, joined
from reports.comparison.diff import text as diff_text
from reports.comparison.diff import text_in_print
from reports.page.page import write_page
from reports.tables import latex, spreadsheet
from reports.tables.markdown import render
from reports.tables.paper import paper_tables
from reports.tables.table import Key
from sweep import studies
from sweep.studies.model import Study
from sweep.trials import cells as plan
from trainers.attacks import parse
from trainers.data import dataset_facts

AT, SOVR = [0.480, 0.482, 0.478], [0.494, 0.497, 0.491]


def fill(folder, name, overrides=(), accuracies=None, images=None, chosen=None):
    """A store with the manifest that a run of the shipped study with these overrides would leave.

    `chosen` is what its searches chose.
    """
    store = QuickStore(folder)
    study = Study.load(name, overrides)
    cells = plan.expand(study, chosen)
    made = plan.manifest(study, cells)
    kept = ("title", "study", "dataset", "model", "epsilon", "protocol", "checkpoint", "config_by_label", "searches")
    facts = {key: getattr(made, key) for key in kept}
    trials = add_study(
        store,
        name,
        accuracies,
        hyperparameters={cell.label: cell.hyperparameters for cell in cells if cell.label in accuracies},
        **facts,
    )
    attacked = images or dataset_facts(study.dataset).test_images
    for (label, seed), trial in trials.items():
        if made.evaluation.wants_diagnostics:
            add_diagnostics(store, trial, {"train_margin_mean": -2.0 - 0.1 * seed})
        for attack, more in (("clean", 0.3), ("pgd-20", 0.02), ("autoattack", 0.0)):
            accuracy = accuracies[label][seed] + more
            described = parse(attack, epsilon=made.epsilon)
            add_evaluation(store, trial, described, accuracy, images=attacked, checkpoint=made.checkpoint)
    return results_of(store)


def departing(results):
    return [cell for table in paper_tables(results) for cell in table.cells() if cell.departs]


@pytest.mark.parametrize("name", studies.shipped())
def test_a_shipped_study_as_it_is_departs_nowhere(tmp_path, name):
    results = fill(tmp_path, name, accuracies=dict.fromkeys(Study.load(name).labels, [0.48]))
    assert departing(results) == []
    found = Departures(results)
    for label in results.labels[name]:
        for measure in ("autoattack", "clean", "margin"):
            assert found.of(results.cell(Key(name, label, measure, None, None))) == (), label
    assert all(not claim.departing for claim in claims.judge(Ours(results)))


def test_every_study_of_the_papers_tables_is_shipped_so_that_it_can_be_compared():
    assert PAPER.studies <= set(studies.shipped())


def test_departing_cells_are_marked_in_every_form_and_the_caption_says_what_departs(tmp_path):
    overrides = ["train.epochs=1", "train_images=2000", "methods.sovr.train.weight_decay=0.1"]
    results = fill(tmp_path / "store", "cifar10_rn18", overrides, {"at": AT, "sovr": SOVR, "mma": AT})
    table = paper_tables(results)[0]
    shown = {cell.label: cell for cell in table.cells() if cell.key.measure == "autoattack" and cell.label}
    both = ("epochs 1 instead of 200", "training images used 2000 instead of all")
    assert shown["at"].departs == both
    assert shown["sovr"].departs == (both[0], "weight decay 0.1 instead of 0.0005", both[1])
    # MMA ends after so many steps, whatever the epochs say.
    assert shown["mma"].departs == both[1:]
    (caption,) = [note for note in table.notes if "¶" in note]
    assert caption == (
        "¶ Not the paper's settings. cifar10_rn18: epochs 1 instead of 200 (AT, SOVR); training images used 2000 "
        "instead of all (AT, MMA, SOVR); weight decay 0.1 instead of 0.0005 (SOVR)."
    )
    assert "| 48.0±0.2¶" in render(table)
    assert r"$^\P$" in latex.cell_text(shown["at"])
    line = next(line for line in spreadsheet.cells([table]).splitlines() if ",cifar10_rn18,at,autoattack," in line)
    assert line.endswith(",epochs 1 instead of 200; training images used 2000 instead of all")
    page = write_page(results, [table], [], tmp_path).read_text("utf-8")
    assert 'title="¶ Not the paper&#39;s settings. epochs 1 instead of 200; training images' in page


def test_diff_and_claims_say_the_same(tmp_path):
    fill(tmp_path, "cifar10_rn18", ["train.epochs=1"], {"at": AT, "sovr": SOVR})
    written = diff_text(results_of(tmp_path))
    line = next(one for one in written.splitlines() if "`sovr`" in one and "AutoAttack" in one)
    assert "49.4±0.3¶" in line
    assert "cifar10\\_rn18: epochs 1 instead of 200 (AT, SOVR)." in written
    claim = next(one for one in written.splitlines() if "SOVR 49.4±0.3, AT 48.0±0.2" in one)
    assert claim.rstrip("| ").endswith("¶ epochs 1 instead of 200 (SOVR, AT)")
    judged = {claim.id: claim for claim in claims.judge(Ours(results_of(tmp_path)))}
    assert judged["sovr-beats-at"].departing == 1
    assert "¶" not in text_in_print(PAPER)


def test_a_part_is_only_blamed_for_its_own_numbers(tmp_path):
    accuracies = {"at": AT, "sovr": SOVR, "mart": AT, "gairat": AT}
    results = fill(tmp_path, "cifar10_rn18", ["methods.mart.train.epochs=3"], accuracies)
    judged = {claim.id: claim for claim in claims.judge(Ours(results))}
    blamed = [part.departs for part in judged["weighted-fall-to-autoattack"].parts if part.verdict != "not run"]
    assert blamed == ["epochs 3 instead of 200 (MART)", ""]


def test_fewer_attacked_images_are_a_departure_of_accuracies_only(tmp_path):
    results = fill(tmp_path, "svhn_rn18", (), {"at": AT}, images=500)
    marked = departing(results)
    assert {cell.key.measure for cell in marked} >= {"autoattack", "clean"}
    assert {text for cell in marked for text in cell.departs} == {"test images attacked 500 instead of 26,032"}
    assert all(cell.key.measure != "margin" for cell in marked)


def test_the_choice_of_the_epoch_matters_to_margins_only_by_the_images_held_out(tmp_path):
    margin = Key("cifar10_rn18", "at", "margin", None, "last")

    def found(overrides, folder, key=margin):
        results = fill(tmp_path / folder, "cifar10_rn18", overrides, {"at": AT})
        return Departures(results).of(results.cell(key))

    assert found(["selection.steps=10"], "a") == ()
    key = Key("cifar10_rn18", "at", "autoattack")
    assert found(["selection.steps=10"], "a", key) == ("choice of the epoch: steps 10 instead of 20",)
    assert found(["selection.protocol=heldout", "selection.validation=500"], "b") == (
        "training images held out 500 instead of 0",
    )


def test_a_ratio_departs_where_either_of_its_margins_does(tmp_path):
    name = "trajectories_cifar10_rn18"
    results = fill(tmp_path, name, ["methods.at.train.epochs=3"], {"at": AT, "ovr": AT})
    (cell,) = departing(results)
    assert cell.label == "ovr" and cell.departs == ("epochs 3 instead of 200",)


def test_changed_hyperparameters_are_a_setting_and_what_a_search_chose_fills_no_cell_of_the_paper(tmp_path):
    chosen = {"sovr": {"M": 60, "lam": 0.4}}
    overrides = ["methods.mart.hyperparameters.beta=2.0"]
    results = fill(tmp_path, "cifar10_rn18", overrides, {"mart": AT, "sovr": SOVR}, chosen=chosen)
    table = paper_tables(results)[0]
    assert {cell.label: cell.departs for cell in table.cells() if cell.sample and cell.key.measure == "clean"} == {
        "mart": ("beta 2.0 instead of 6.0",),
        "sovr": (),
    }
    assert results.hyperparameters["cifar10_rn18", "sovr"]["M"] == 40 and "M = 60" not in " ".join(table.notes)


def test_a_name_that_is_not_shipped_is_not_compared(tmp_path):
    store = QuickStore(tmp_path)
    add_study(store, "my_own", {"at": AT})
    results = results_of(store)
    assert Departures(results).of(results.cell(Key("my_own", "at", "autoattack"))) == ()


def test_methods_with_the_same_departures_are_named_together():
    assert joined({"AT": ["a", "b"], "SOVR": ["a", "b"], "MMA": ["c"]}) == "a; b (AT, SOVR); c (MMA)"


def test_comparing_loads_neither_torch_nor_ray():
    imports = "import sys, reports.comparison.departures as d"
    code = f"{imports}; d.shipped('digits', 'at'); print({{'torch', 'ray'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"

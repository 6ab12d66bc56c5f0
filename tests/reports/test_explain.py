"""What a cell departs in is listed with its effect, or with a command that would measure it and does."""

import shlex

import pytest
from hand_made import QuickStore, add_diagnostics, add_evaluation, results_of

from reports.analysis.results import Results
from reports.comparison.departures import Departures
from reports.comparison.explanation.subject import find
from reports.comparison.explanation.text import explained, text
from reports.tables.table import Key
from sweep import cli
from sweep.errors import UserError
from sweep.store.records.manifest import Manifest
from sweep.studies.model import Study
from sweep.trials import cells as plan
from tests.sweep import stored
from trainers.attacks import parse

SHORT = ["train.epochs=20", "test_images=500"]
SHORT_NAMES = ("recipe.epochs", "test_images")
USUAL = {
    "recipe.precision": "bf16 instead of float32 with a GPU's convolutions in tf32",
    "recipe.compile": "yes instead of no",
    "recipe.deterministic": "yes instead of no",
    "recipe.channels_last": "no instead of yes",
}


def fill(store, study, accuracy, images=None, checkpoints=(), chosen=None, made=None):
    """Records as a run of the study would leave them; `accuracy` is AutoAttack's, half a point apart by seed."""
    cells = plan.expand(study, dict.fromkeys(study.searches(), chosen or {}))
    manifest: Manifest = plan.manifest(study, cells)
    for cell in cells:
        stored.write_trial(store, cell, command=f"python -m sweep.run --study {study.name}", **(made or {}))
        for checkpoint in dict.fromkeys([manifest.checkpoint, *checkpoints]):
            attack = parse("autoattack", epsilon=manifest.epsilon)
            value = accuracy + 0.005 * (cell.seed - 1) + (0.02 if checkpoint != manifest.checkpoint else 0.0)
            add_evaluation(store, cell.trial, attack, value, images=images or 1000, checkpoint=checkpoint)
    store.write_record(manifest)


def by_setting(store, name):
    results = results_of(store)
    return {one.setting: one for one in explained(results, find(results, name))}


def run_of(command):
    """The study that a printed command would run."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "sweep.run"]
    given: dict[str, list[str]] = {}
    for name, value in zip(words[3::2], words[4::2], strict=True):
        given.setdefault(name, []).append(value)
    first, _, last = given["--seeds"][-1].partition("-")
    seeds = range(int(first), int(last or first) + 1)
    return Study.load(given["--study"][0], given["--set"], given["--methods"][-1].split(","), list(seeds))


def commands(found):
    return {name: one.effect.split("`")[1] for name, one in found.items() if "would measure it: `" in one.effect}


@pytest.fixture
def store(tmp_path):
    return QuickStore(tmp_path / "store")


def test_a_cell_as_the_paper_has_it_departs_in_nothing(store):
    fill(store, Study.load("cifar10_rn18", methods=["at"]), 0.48, images=10_000)
    assert by_setting(store, "table1/cifar10_rn18/at") == {}
    assert "No recorded setting departs" in text(results_of(store), "cifar10_rn18/at/autoattack")


def test_every_departure_is_listed_and_its_command_changes_that_setting_alone(store):
    fill(store, Study.load("cifar10_rn18", SHORT, ["sovr"], [0, 1, 2, 3]), 0.40, images=500)
    before = Study.load("cifar10_rn18", [*SHORT, "search.sovr.pin=true"], ["sovr"]).config("sovr")
    found = by_setting(store, "cifar10_rn18/sovr/autoattack")
    assert list(found) == ["recipe.epochs", "test_images", "n"]
    assert found["recipe.epochs"].words == "epochs 20 instead of 200" and found["n"].words == "n 4 instead of 3"
    for setting, command in commands(found).items():
        study = run_of(command)
        after = study.config("sovr")
        changed = {"recipe.epochs": after.recipe.epochs == 200, "test_images": after.test_images is None}
        assert changed.pop(setting) and not any(changed.values())
        assert after.model_copy(update={"recipe": before.recipe, "test_images": before.test_images}) == before
        assert study.name not in ("cifar10_rn18",) and study.seeds == (0, 1, 2, 3)


COMPUTED = ["train.precision=bf16", "train.compile=true", "train.deterministic=true", "train.channels_last=false"]


@pytest.mark.parametrize("change", COMPUTED)
def test_how_the_network_is_computed_departs_too_and_every_command_keeps_it(store, change):
    setting = change.partition("=")[0].replace("train", "recipe")
    fill(store, Study.load("cifar10_rn18", [*SHORT, change], ["at"]), 0.40, images=500)
    found = by_setting(store, "cifar10_rn18/at/autoattack")
    assert set(found) == {setting, *SHORT_NAMES}
    assert found[setting].words.endswith(USUAL[setting])
    cell = results_of(store).cell(Key("cifar10_rn18", "at", "autoattack"))
    assert found[setting].words in Departures(results_of(store)).of(cell)
    kept = Study.load("cifar10_rn18", [change], ["at"]).config("at")
    for name, command in commands(found).items():
        recipe, plain = run_of(command).config("at").recipe, Study.load("cifar10_rn18", methods=["at"]).config("at")
        for one in ("precision", "compile", "deterministic", "channels_last"):
            wanted = plain.recipe if name == setting else kept.recipe
            assert getattr(recipe, one) == getattr(wanted, one)


def test_the_device_and_precision_of_the_records_are_listed_where_they_are_not_the_papers(store):
    study = Study.load("cifar10_rn18", methods=["at"])
    fill(store, study, 0.48, images=10_000, made={"device_kind": "cuda", "precision": "tf32"})
    assert by_setting(store, "cifar10_rn18/at/autoattack") == {}
    fill(store, study, 0.48, images=10_000, made={"device_kind": "cpu", "precision": "ieee"})
    (found,) = by_setting(store, "cifar10_rn18/at/autoattack").values()
    assert found.words == "trained on cpu instead of a GPU; precision ieee, as recorded, instead of tf32"
    assert found.effect.startswith("unknown")


def test_what_the_command_measures_is_the_effect_that_is_shown_next_time(store):
    fill(store, Study.load("cifar10_rn18", SHORT, ["at"]), 0.40, images=500)
    command = commands(by_setting(store, "cifar10_rn18/at/autoattack"))["recipe.epochs"]
    fill(store, run_of(command), 0.46, images=500)
    effect = by_setting(store, "cifar10_rn18/at/autoattack")["recipe.epochs"].effect
    assert effect.startswith("+6.0 (cifar10\\_rn18\\_recipe\\_epochs/at against cifar10\\_rn18/at, 95 %")
    other = by_setting(store, "cifar10_rn18/at/autoattack")["test_images"].effect
    assert other.startswith("unknown; this command would measure it")


def test_other_values_of_a_setting_are_told_but_not_taken_for_the_papers(store):
    fill(store, Study.load("cifar10_rn18", SHORT, ["at"]), 0.40, images=500)
    fill(store, Study.load("cifar10_rn18", ["name=longer", *SHORT, "train.epochs=50"], ["at"]), 0.43, images=500)
    effect = by_setting(store, "cifar10_rn18/at/autoattack")["recipe.epochs"].effect
    assert effect.startswith("unknown") and "at other values: +3.0 (20 to 50" in effect


def test_the_choice_of_the_epoch_is_known_from_the_same_trainings(store):
    heldout = ["selection.protocol=heldout", "selection.validation=500"]
    fill(store, Study.load("cifar10_rn18", heldout, ["at"]), 0.40, images=10_000)
    effect = by_setting(store, "cifar10_rn18/at/autoattack")["selection.protocol"].effect
    again = run_of(effect.split("`")[1]).config("at").selection
    assert (again.protocol, again.validation) == ("paper", 500)  # held-out training keeps no such weights
    fill(store, Study.load("cifar10_rn18", heldout, ["at"]), 0.40, images=10_000, checkpoints=["best_test"])
    effect = by_setting(store, "cifar10_rn18/at/autoattack")["selection.protocol"].effect
    assert effect.startswith("+2.0 (the same trainings at best\\_test")


def test_a_margin_is_explained_as_its_table_has_it_and_by_what_can_move_it(store):
    heldout = ["selection.protocol=heldout", "selection.validation=500", "test_images=500"]
    study = Study.load("cifar10_rn18", [*heldout, "train.epochs=20"], ["at"])
    fill(store, study, 0.40, images=500)
    for cell in plan.expand(study):
        for checkpoint, margin in (("last", -2.15), ("best_validation", -2.02)):
            add_diagnostics(store, cell.trial, {"train_margin_mean": margin}, checkpoint=checkpoint)
    subject = find(results_of(store), "cifar10_rn18/at/margin")
    assert subject.cell.key.checkpoint == "last" and subject.cell.sample.mean == pytest.approx(-2.15)
    assert list(by_setting(store, "cifar10_rn18/at/margin")) == ["recipe.epochs", "selection.validation"]
    assert find(results_of(store), "cifar10_rn18/at/autoattack").cell.key.checkpoint is None


def test_every_command_for_a_study_that_is_not_the_papers_is_one_that_loads(store):
    fill(store, Study.load("digits", ["train.epochs=3"], ["at"]), 0.5, images=360)
    results = results_of(store)
    found = by_setting(store, "digits/at/autoattack")
    assert {"dataset", "model", "recipe.epochs", "recipe.attack.epsilon", "evaluation.epsilon"} <= set(found)
    assert "not a setting of the paper" in text(results, "digits/at/autoattack")
    names = {run_of(command).name for command in commands(found).values()}
    assert len(names) == len(commands(found)) > 8


def test_a_cell_that_is_not_there_is_refused_with_what_is(store):
    fill(store, Study.load("cifar10_rn18", methods=["at"]), 0.48)
    results = results_of(store)
    for name, message in (
        ("at", "must look like"),
        ("table1/cifar10_rn18/svr", "the paper has no such cell; table 1 has"),
        ("cifar10_rn18/at/pgd-7", "of at it prints autoattack"),
        ("cifar10_rn18/sovr/autoattack", "has the labels at"),
        ("svhn_rn18/at/autoattack", "the store has no study"),
    ):
        with pytest.raises(UserError, match=message):
            find(results, name)


PAPERS_CELL = "would measure the paper's cell: `"


@pytest.mark.parametrize("label", ["at", "trades", "sovr_searched", "mma"])
def test_every_printed_command_runs_as_typed_and_what_it_measures_is_known_next_time(store, label, capsys):
    """All commands of a cell of `digits`: listed by a dry run with the store that was read, then carried out."""
    chosen = {"M": 60, "lam": 0.6, "label_smoothing": 0.0}
    fill(store, Study.load("digits", ["train.epochs=3"], [label.removesuffix("_searched")]), 0.5, 360, chosen=chosen)
    name = f"digits/{label}/autoattack"
    before = by_setting(store, name)
    printed = commands(before)
    assert len(printed) > 8
    elsewhere = [one.effect.split("`")[1] for one in before.values() if PAPERS_CELL in one.effect]
    assert {"dataset", "model"} <= set(before) and len(elsewhere) == 2
    assert all(("search.sovr.pin=true" in command) is (label == "sovr_searched") for command in elsewhere)
    for command in (*printed.values(), *elsewhere):
        words = shlex.split(command)
        assert words[:3] == ["python", "-m", "sweep.run"] and words[-2:] == ["--store", store.uri]
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *words[3:], "--dry-run"])
        assert ended.value.code in (0, None), command
    assert "missing" in capsys.readouterr().out
    unknown = {}
    for setting, command in printed.items():
        fill(store, run_of(command), 0.6, 360, chosen=chosen)
        effect = by_setting(store, name)[setting].effect
        if not effect.startswith("+10.0 ("):
            unknown[setting] = effect
    assert unknown == {}


def test_a_study_without_papers_is_told_so_and_how_to_name_one(store):
    fill(store, Study.load("digits", ["name=own", "papers=[]", "train.epochs=3"], ["at"]), 0.5, images=360)
    for measure in ("pgd-10", "square"):
        with pytest.raises(UserError) as caught:
            find(Results.read(store), f"own/at/{measure}")
        message = str(caught.value)
        assert "own" in message and "papers" in message and "--against" in message

"""A run with other settings says which column it replaces, and gc keeps the models of replaced columns unless told."""

import os
import time

import pytest
from stored import WEIGHTS, evaluation, write_trial

from sweep import cli
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.manifests import write_manifest
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.trials import cells as planned
from sweep.trials.replacing import replacements

PLAIN = (
    *("selection.protocol=paper", "selection.validation=0", "evaluation.diagnostics=false", "search={}"),
    *("evaluation.suite=null", "evaluation.attacks=[clean]"),
)
SLOWER, FASTER = "train.learning_rate=0.01", "train.learning_rate=0.3"


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def study_of(*settings, methods=("at",), seeds=(0,)):
    return Study.load("digits", methods=methods, seeds=list(seeds), overrides=[*PLAIN, *settings])


def finish(store, study):
    """Store everything that a run of the study would leave."""
    cells = planned.stored_cells(study, store)
    for cell in cells:
        write_trial(store, cell)
        store.write_record(evaluation(study, cell))
    write_manifest(store, planned.manifest(study, cells))
    return cells


@pytest.fixture
def gc(store, capsys):
    def call(*words):
        for path in store.paths(layout.TRIALS):  # what is young is spared, whatever selects it
            os.utime(store.local(path), (time.time() - 7200,) * 2)
        with pytest.raises(SystemExit) as caught:
            cli.main(["gc", "--store", store.uri, *words])
        captured = capsys.readouterr()
        return caught.value.code, captured.out + captured.err

    return call


def models(store):
    return {path for path in store.paths(layout.TRIALS) if path.endswith(layout.WEIGHTS)}


def test_a_run_says_at_its_start_and_end_which_setting_replaces_which(store, capsys):
    first, second = study_of(SLOWER), study_of(FASTER)
    finish(store, first)
    finish(store, second)
    for before, study, words in ((second, first, "0.3 -> 0.01"), (first, second, "0.01 -> 0.3")):
        assert before.name == study.name
        summary = run_study(study, store, RunOptions(out=None))
        start, end = capsys.readouterr().err, summary.text()
        for text in (start, end):
            assert f"column at: train.learning_rate {words}" in text
            assert "nothing was deleted" in text and "--set name=digits_2" in text and "at_2: " in text
        again = run_study(study, store, RunOptions(out=None))
        assert "column at" not in capsys.readouterr().err + again.text()


def test_a_dry_run_says_it_too_and_replaces_nothing(store, capsys):
    finish(store, study_of(SLOWER))
    manifest = store.read(layout.manifest("digits"))
    words = [word for setting in (*PLAIN, FASTER) for word in ("--set", setting)]
    with pytest.raises(SystemExit):
        cli.main(["run", "--dry-run", "--methods", "at", "--seeds", "0", "--store", store.uri, *words])
    assert "column at: train.learning_rate 0.01 -> 0.3" in capsys.readouterr().out
    assert store.read(layout.manifest("digits")) == manifest


@pytest.mark.parametrize(
    ("settings", "methods", "words"),
    [
        (("methods.trades.hyperparameters.beta=3",), ("at", "trades"), "column trades: hyperparameters.beta 6 -> 3"),
        (("methods.at.train.epochs=7",), ("at", "trades"), "column at: train.epochs"),
        ((FASTER,), ("at",), "column trades (no longer shown): train.learning_rate"),
        (("evaluation.epsilon=0.1",), ("at", "trades"), "columns at, trades: evaluation.epsilon"),
        (("train_images=500",), ("at",), "train_images"),
    ],
)
def test_every_kind_of_setting_is_named(store, settings, methods, words):
    finish(store, study_of(methods=("at", "trades")))
    assert words in "\n".join(replacements(study_of(*settings, methods=methods), store))


@pytest.mark.parametrize(
    ("methods", "seeds", "settings"),
    [(("at",), (0,), ()), (("trades",), (0,), ()), (("at",), (3, 4), ()), (("at",), (0,), ("name=digits_2", FASTER))],
)
def test_a_run_that_only_adds_says_nothing(store, methods, seeds, settings):
    finish(store, study_of())
    assert replacements(study_of(*settings, methods=methods, seeds=seeds), store) == []


def test_gc_offers_models_of_replaced_columns_only_when_told(store, gc):
    (earlier,) = finish(store, study_of(SLOWER))
    (now,) = finish(store, study_of(FASTER))
    shown = {layout.weights(cell.trial, "best_test") for cell in (earlier, now)}
    code, text = gc("--yes")
    assert not code and "1 model of replaced columns" in text and "--replaced" in text
    assert models(store) == shown
    listed = gc("--dry-run", "--replaced")[1]
    assert "column at of study digits: train.learning_rate 0.01 (now 0.3): 1 file" in listed
    assert f"({len(WEIGHTS)} bytes)" in gc("--yes", "--replaced")[1]
    assert models(store) == {layout.weights(now.trial, "best_test")}
    assert store.exists(layout.trial_record(earlier.trial))


def test_gc_lists_each_earlier_setting_by_itself(store, gc):
    for rate in ("0.01", "0.02", "0.3"):
        finish(store, study_of(f"train.learning_rate={rate}"))
    listed = gc("--dry-run", "--replaced")[1]
    assert all(f"train.learning_rate {rate} (now 0.3): 1 file" in listed for rate in ("0.01", "0.02"))


def test_a_column_that_comes_back_is_not_replaced_any_more(store, gc):
    for setting in (SLOWER, FASTER, SLOWER):
        finish(store, study_of(setting))
    listed = gc("--dry-run", "--replaced")[1]
    assert "train.learning_rate 0.3 (now 0.01): 1 file" in listed and "0.01 (now" not in listed


def test_a_checkpoint_that_was_evaluated_once_counts_as_replaced(store, gc):
    finish(store, study_of("evaluation.checkpoints=[headline, last]"))
    (cell,) = finish(store, study_of())
    gc("--yes")
    assert {layout.in_trial(path)[1] for path in models(store)} == {"best_test.safetensors", "last.safetensors"}
    gc("--yes", "--replaced")
    assert models(store) == {layout.weights(cell.trial, "best_test")}


def test_models_of_a_column_that_no_manifest_remembers_are_kept(store, gc):
    """As versions before this one left them."""
    (earlier,) = finish(store, study_of(SLOWER))
    store.delete(layout.manifest("digits"))
    finish(store, study_of(FASTER))
    gc("--yes")
    assert layout.weights(earlier.trial, "best_test") in models(store)
    assert "column at of study digits: train.learning_rate 0.01 (now 0.3)" in gc("--dry-run", "--replaced")[1]


def test_keep_all_and_replaced_contradict_each_other(store, gc):
    finish(store, study_of())
    code, text = gc("--keep", "all", "--replaced", "--yes")
    assert code == 2 and "--keep all" in text and "--replaced" in text


def test_a_merge_remembers_replaced_columns(store, gc, tmp_path):
    other = open_store(tmp_path / "other")
    for setting in (SLOWER, FASTER):
        finish(other, study_of(setting))
    finish(store, study_of(FASTER))
    Merge(store, [other]).write()
    assert "train.learning_rate 0.01 (now 0.3): 3 files" not in gc("--dry-run", "--replaced")[1]
    assert "train.learning_rate 0.01 (now 0.3): 1 file" in gc("--dry-run", "--replaced")[1]
    assert not Merge(store, [other]).new

"""A trained trial of the store under attack, by pieces and as a subject of the evaluation command."""

import shutil

import numpy as np
import pytest

from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.errors import UserError
from sweep.evaluation import asked
from sweep.evaluation.attack import attack, leased
from sweep.evaluation.checkpoints import data_set, trial_parts
from sweep.evaluation.subject import EvaluateOptions, find_subject
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.work.pieces import Attack, Setting, Workplace
from tests.sweep.tiny_study import tiny
from tests.trainers.tiny import all_phases
from trainers.attacks import parse


def test_pieces_of_a_trial_are_computed_from_the_store_alone(trained, tmp_path):
    store, trial, config = trained
    settings = parse("pgd-10", epsilon="0.1")
    wanted = asked.evaluation(trial, "last", settings, asked.test_images(config), shards=2, batch_size=15)
    assert wanted.images == 30
    claim, said = leased(store, wanted), []

    def lease(name):
        return claim(name.removeprefix(wanted.lease))

    place = Workplace(Setting(store.uri, str(tmp_path)), store, tmp_path, said.append, lease)
    pieces = [Attack("at", config, trial, wanted, part, 2) for part in (1, 2)]
    assert all(piece.stored(store) is None for piece in pieces)
    with lease(f"{wanted.lease}~-0"):  # the first has the first chunk, and is not ready yet
        assert pieces[1].run(place) == {"state": "shared"}
    metrics = pieces[0].run(place)
    assert [(one["images"], one["count"], one["free"]) for one in said] == [(15, 30, 1), (30, 30, 0)]
    record = store.record(EvaluationRecord, wanted.record)
    assert metrics == pieces[1].stored(store) == {"state": "done", "accuracy": record.accuracy, "images": 30}
    parts = trial_parts(store.uri, trial, "last", None, "cpu")
    assert np.array_equal(record.survivors, all_phases(*parts, settings).correct.numpy())
    assert record.trial == trial and record.checkpoint == "last"


def test_the_training_loop_and_an_evaluation_agree_about_the_same_weights(trained):
    store, trial, config = trained
    options = EvaluateOptions(f"{layout.short(trial)}/best_test")
    subject = find_subject(store, options)
    assert (subject.name, subject.checkpoint, subject.warnings(), subject.classes()) == (trial, "best_test", [], 10)
    wanted = subject.evaluation(parse("clean"), options)
    measured = attack(store, wanted, subject.parts())
    record = store.trial_record(trial)
    row = record.curve[record.checkpoints["best_test"].epoch]
    assert measured.accuracy == pytest.approx(row["test_clean_accuracy"])


def test_absent_trials_and_checkpoints_are_named(trained):
    store, trial, _ = trained
    with pytest.raises(UserError, match="has no record"):
        trial_parts(store.uri, 64 * "0", "last", None, "cpu")
    with pytest.raises(UserError, match="no checkpoint 'best_validation'; stored: .*last"):
        trial_parts(store.uri, trial, "best_validation", None, "cpu")


def test_a_trial_is_attacked_on_the_data_that_it_was_trained_on_only(trained, tmp_path):
    source, trial, _ = trained
    store = open_store(shutil.copytree(source.local(""), tmp_path / "copy"))
    record = store.trial_record(trial)
    store.write_record(record.model_copy(update={"data": {"digits": "f" * 64}}))
    with pytest.raises(UserError, match="'digits' in data is not the one that trial .* was trained on.*--data-dir"):
        trial_parts(store.uri, trial, "last", None, "cpu")
    known = data_set("digits", None).sha256
    same = open_store(shutil.copytree(source.local(""), tmp_path / "same"))
    same.write_record(record.model_copy(update={"data": {"digits": known}}))
    assert len(trial_parts(same.uri, trial, "last", None, "cpu")) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:500], lambda data: data[:-4] + b"\0\0\1\1", lambda data: b""])
def test_a_damaged_checkpoint_is_named_with_the_way_out(trained, tmp_path, damage):
    source, trial, _ = trained
    store = open_store(shutil.copytree(source.local(""), tmp_path / "copy"))
    path = layout.weights(trial, "last")
    store.write(path, damage(store.read(path)))
    expected = store.trial_record(trial).checkpoints["last"].sha256[:16]
    with pytest.raises(
        UserError, match=f"{path} is damaged: .*{expected}.*delete the folder {layout.trial_folder(trial)}"
    ):
        trial_parts(store.uri, trial, "last", None, "cpu")


@pytest.mark.timeout(300)
def test_what_broke_in_a_finished_study_is_made_again_by_the_same_command(tmp_path, capsys):
    study = tiny(tmp_path, methods={"at": {}}, seeds=[0], search=None)
    store = open_store(tmp_path / "store")

    def run():
        summary = run_study(study, store, RunOptions(data_dir=tmp_path, out=None, loggers=(), local=True))
        return summary, capsys.readouterr().err

    assert run()[0].complete
    path = store.record_paths(EvaluationRecord)[0]
    whole = store.record(EvaluationRecord, path)
    store.write(path, store.read(path)[:200])
    summary, told = run()
    assert summary.complete and not summary.all_there
    assert f"broken record {path}" in told and f"it is kept as broken/{path}.1" in told
    assert store.record(EvaluationRecord, path).verdicts == whole.verdicts

    weights = store.local(layout.weights(whole.trial, whole.checkpoint))
    weights.write_bytes(weights.read_bytes()[:300])
    store.delete(path)
    summary, told = run()
    assert summary.complete and summary.done["train"] == 1 and weights.name in told
    assert store.record(EvaluationRecord, path).verdicts == whole.verdicts
    assert run()[0].all_there

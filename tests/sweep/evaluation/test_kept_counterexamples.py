"""Counterexamples in the store: with every shard, joined at the end, copied, checked, deleted, and never in the way."""

import hashlib
import os
import pickle
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from sweep import cli
from sweep.evaluation import scores
from sweep.evaluation.asked import evaluation, evaluations_of
from sweep.evaluation.attack import attack
from sweep.store import layout
from sweep.store.folder import FolderStore
from sweep.store.leftovers import delete_dead, leftovers
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.verdicts import unpack
from sweep.store.verification import Verification
from sweep.studies.model import Study
from sweep.trials.cells import expand
from tests import records
from tests.trainers.tiny import tiny_problem
from trainers.attacks import parse
from trainers.attacks.scoring import counterexamples
from trainers.attacks.scoring.counterexample_file import decoded

IMAGES, VALUES = 24, 36


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(IMAGES)


def asked(name="pgd-5", **options):
    settings = parse(name, epsilon="0.06", batch_size=8, queries=20)
    if name == "autoattack":  # two components and two targets keep it short; phases are what matters
        settings = settings.model_copy(update={"components": ("apgd-ce", "square"), "targets": 2})
    return evaluation("outside-a", "outside", settings, IMAGES, batch_size=8, **options)


def kept(store, record):
    content = store.read(record.counterexamples_path)
    assert hashlib.sha256(content).hexdigest() == record.counterexamples.sha256
    assert len(content) == record.counterexamples.bytes
    return decoded(content, IMAGES, VALUES)


def confirm(problem, record, found):
    """There is one for each image that fell, and no other; each fools the model."""
    model, images, labels = problem
    fell = unpack(record.clean, IMAGES) & ~record.survivors
    assert fell.any() and np.array_equal(found.indices, np.flatnonzero(fell))
    where = found.indices.astype(np.int64)
    shown = counterexamples.images_of(found, np.arange(len(found)), images[where])
    assert bool((model(shown).argmax(dim=1) != labels[where]).all())
    assert bool(counterexamples.inside(shown, images[where], "linf", 0.06).all())


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        return open_store(tmp_path / "store")
    address = request.getfixturevalue("endpoint")
    return open_store(f"s3://results/{tmp_path.name}?endpoint_override={address}&region=us-east-1")


def test_those_of_all_shards_and_phases_become_one_file(store, problem):
    wanted = asked("autoattack", shards=3)
    record = attack(store, wanted, problem)
    confirm(problem, record, kept(store, record))
    assert store.paths(layout.evaluations_of("outside-a")) == [record.path, record.counterexamples_path]


class Killed(BaseException):
    pass


class KillingStore(FolderStore):
    """A store whose process is killed before the n-th file that it would write."""

    def __init__(self, root, writes):
        super().__init__(root)
        self.left = writes

    def write(self, path, data):
        if self.left == 0:
            raise Killed
        self.left -= 1
        super().write(path, data)


def killed(root, wanted, problem, writes=1):
    """What an evaluation leaves that is killed after so many shards, in a store that is opened again."""
    with pytest.raises(Killed):
        attack(KillingStore(root, writes), wanted, problem)
    return open_store(root)


def test_a_kill_before_any_write_loses_and_leaves_nothing(tmp_path, problem):
    whole = open_store(tmp_path / "whole")
    expected = attack(whole, asked("autoattack"), problem)
    proof = whole.read(expected.counterexamples_path)
    root = tmp_path / "killed"
    kills = 0
    while kills < 50:  # every second run may write two files, or the last of two that belong together never came
        try:
            attack(KillingStore(root, 1 + kills % 2), asked("autoattack", shards=1 + kills % 3), problem)
        except Killed:
            kills += 1
        else:
            break
    store = open_store(root)
    record = store.record(EvaluationRecord, expected.path)
    assert kills >= 5 and record.verdicts == expected.verdicts
    assert store.read(record.counterexamples_path) == proof
    assert store.paths() == [record.path, record.counterexamples_path]


def test_left_out_when_asked_and_never_by_halves(tmp_path, problem):
    store = open_store(tmp_path)
    without = asked("pgd-5", counterexamples=False)
    assert pickle.loads(pickle.dumps(without)) == without
    killed(tmp_path, without, problem)
    record = attack(store, replace(without, counterexamples=True), problem)
    assert record.counterexamples is None and store.paths() == [record.path]
    again = open_store(tmp_path / "again")
    other = attack(again, asked("pgd-5"), problem)
    assert other.path == record.path and other.verdicts == record.verdicts and other.counterexamples is not None


def test_clean_images_have_none(tmp_path, problem):
    store = open_store(tmp_path)
    assert attack(store, asked("clean"), problem).counterexamples is None


def test_a_record_of_an_older_version_is_as_valid_as_before():
    record = records.evaluation_record()
    content = record.model_dump(exclude={"counterexamples"})
    assert EvaluationRecord.model_validate(content) == record and record.counterexamples is None
    assert ShardRecord.model_validate(
        records.shard_record("evaluations/a/b/c", 0, 8).model_dump(exclude={"counterexamples"})
    )


def test_merge_copies_them_and_prefers_an_evaluation_that_has_them(tmp_path, problem):
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    record = attack(source, asked(), problem)
    target.write_record(record.model_copy(update={"counterexamples": None, "device": "another"}))
    Merge(target, [source]).write()
    assert kept(target, target.record(EvaluationRecord, record.path)).indices.tolist()
    bare = open_store(tmp_path / "bare")
    bare.write_record(record.model_copy(update={"counterexamples": None}))
    assert not Merge(target, [bare]).new  # nothing is lost by a store that has none
    source.delete(record.counterexamples_path)
    Merge(open_store(tmp_path / "other"), [source]).write()
    assert open_store(tmp_path / "other").paths() == [record.path]


def test_merge_refuses_damaged_ones(tmp_path, problem):
    source = open_store(tmp_path / "source")
    record = attack(source, asked(), problem)
    source.write(record.counterexamples_path, b"damaged")
    with pytest.raises(ValueError, match="broken file .*npz: it is not the one that"):
        Merge(open_store(tmp_path / "target"), [source])


@pytest.mark.parametrize("damage", ["changed", "absent"])
def test_verify_store_finds_damaged_ones_and_a_repair_keeps_the_verdicts(tmp_path, problem, damage, capsys):
    store = open_store(tmp_path)
    record = attack(store, asked(), problem)
    assert Verification(store).rows() == [("evaluation", 1, 0, 0), ("counterexamples", 1, 0, 0)]
    path = record.counterexamples_path
    store.delete(path) if damage == "absent" else store.write(path, store.read(path)[:-1] + b"x")
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify-store", "--store", str(tmp_path), "--repair"])
    said = capsys.readouterr().out
    assert ended.value.code == 1 and path in said and "keep their verdicts" in said and "to compute it" not in said
    left = store.record(EvaluationRecord, record.path)
    assert left == record.model_copy(update={"counterexamples": None})
    assert not Verification(store).findings
    assert [one.startswith(layout.BROKEN) for one in store.paths()] == [True] * (damage == "changed") + [False]


def test_gc_deletes_those_that_no_evaluation_names(tmp_path, problem):
    store = open_store(tmp_path)
    record = attack(store, asked(), problem)
    orphan = record.counterexamples_path.replace("pgd", "old")
    store.write(orphan, b"left behind")
    delete_dead(store)
    assert not leftovers(store) and store.exists(orphan)  # it may be about to get its record
    for path in (orphan, record.counterexamples_path):
        os.utime(tmp_path / path, (time.time() - 7200,) * 2)
    assert {key: [one.path for one in found] for key, found in leftovers(store).items()} == {
        "counterexamples that no evaluation names": [orphan]
    }


def test_what_a_kill_leaves_of_a_finished_evaluation_goes_with_the_next_run(tmp_path, problem):
    store = open_store(tmp_path)
    wanted = asked()
    killed(tmp_path, wanted, problem)
    shards = {path: store.read(path) for path in store.paths(wanted.folder)}
    record = attack(store, wanted, problem)
    for path, data in shards.items():  # killed after the record, before its shards were deleted
        store.write(path, data)
    delete_dead(store)
    assert store.paths() == [record.path, record.counterexamples_path]


def test_a_plugin_attack_with_images_of_its_own_has_them_by_itself(problem):
    from trainers.attack import EvaluationAttack
    from trainers.attacks.scoring.scorer import evaluate_phase

    class Grey(EvaluationAttack):
        def adversarial(self, model, images, labels, indices):
            return images + (0.5 - images).clamp(-0.3, 0.3)

    model, images, labels = problem
    grey = Grey(name="grey", kind="grey", epsilon="0.3")
    found = evaluate_phase(model, images, labels, grey, "", indices=torch.arange(IMAGES), counterexamples=True)
    assert np.array_equal(found.counterexamples.indices, np.flatnonzero((found.clean & ~found.correct).numpy()))
    assert len(found.counterexamples)


def test_a_study_and_the_command_leave_them_out_without_another_name(monkeypatch, tmp_path):
    plain, without = (
        Study.load("digits", methods=("at",), seeds=[0], overrides=(f"evaluation.counterexamples={value}",))
        for value in ("true", "false")
    )
    kept, left = (evaluations_of(study, expand(study)[0]) for study in (plain, without))
    assert all(one.counterexamples for one in kept) and not any(one.counterexamples for one in left)
    assert [one.record for one in kept] == [one.record for one in left]
    seen = []
    monkeypatch.setattr(scores, "scores", lambda store, options, say: seen.append(options) or sys.exit(0))
    for words in ([], ["--no-counterexamples"]):
        with pytest.raises(SystemExit):
            cli.main(["evaluate", "--checkpoint", "net.pt", "--store", str(tmp_path), *words])
    assert [one.counterexamples for one in seen] == [True, False]

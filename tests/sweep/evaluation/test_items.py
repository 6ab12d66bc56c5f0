"""Evaluations in the store: cut into items, killed, resumed, merged; always the same verdicts."""

import numpy as np
import pytest
import torch

from sweep.errors import UserError
from sweep.evaluation.asked import Evaluation, evaluation
from sweep.evaluation.items import conclude, missing_images, open_items, run_item
from sweep.evaluation.progress import EvaluationProgress
from sweep.store.encoding import NewerRecord, encode
from sweep.store.folder import FolderStore
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.verdicts import pack, unpack
from tests import records
from tests.trainers.tiny import all_phases, tiny_problem
from trainers.attacks import parse

IMAGES = 34


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(IMAGES)


def autoattack(name="autoattack", **options):
    attack = parse(name, epsilon="0.06", batch_size=8, queries=60)
    # Two targets keep the test short; the phases and their packing are what is tested.
    return attack.model_copy(update={"targets": 2, **options})


def asked(name="pgd-10", *, test_images=IMAGES, images=None, **options) -> Evaluation:
    attack = autoattack(name) if name in ("autoattack", "apgd-ce") else parse(name, epsilon="0.06", images=images)
    return evaluation("outside-a", "outside", attack, test_images, **options)


def finish(store, wanted, model, images, labels) -> EvaluationRecord:
    """All items of an evaluation, in this process."""
    while items := open_items(store, wanted):
        for item in items:
            list(run_item(store, item, model, images, labels))
    return conclude(store, wanted)


@pytest.fixture(scope="module")
def undisturbed(problem):
    model, images, labels = problem
    return all_phases(model, images, labels, autoattack())


class Killed(BaseException):
    pass


class KillingStore(FolderStore):
    """A store whose process is killed at the n-th shard it would write."""

    def __init__(self, root, writes):
        super().__init__(root)
        self.left = writes

    def write_record(self, record):
        if isinstance(record, ShardRecord):
            if self.left == 0:
                raise Killed
            self.left -= 1
        super().write_record(record)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_any_number_of_shards_gives_autoattack_s_verdicts_on_the_whole_set(tmp_path, problem, undisturbed, shards):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked("autoattack", shards=shards)
    seen = []
    while items := open_items(store, wanted):
        seen.append((items[0].phase, len(items)))
        for item in reversed(items):  # as if other processes had been faster
            list(run_item(store, item, model, images, labels))
    record = conclude(store, wanted)
    assert record == store.record(EvaluationRecord, wanted.record)
    assert np.array_equal(record.survivors, undisturbed.correct.numpy())
    assert np.array_equal(unpack(record.clean, IMAGES), undisturbed.clean.numpy())
    assert [phase for phase, _ in seen] == ["clean", "apgd-ce", "apgd-t", "fab-t", "square"]
    assert seen[0][1] == min(shards, 5)
    left = [unpack(record.phases[phase], IMAGES) for phase in autoattack().components]
    assert all((later <= earlier).all() for earlier, later in zip(left, left[1:], strict=False))
    assert np.array_equal(left[-1], record.survivors)
    assert store.paths(wanted.folder) == []


def test_a_killed_evaluation_loses_one_batch_of_one_component(tmp_path, problem, undisturbed):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked("autoattack")
    saved = []
    for writes in (0, 3, 4, 2):
        with pytest.raises(Killed):
            finish(KillingStore(tmp_path, writes), wanted, model, images, labels)
        saved.append(len(store.paths(wanted.folder)))
    # Everything that was written before a kill is still there and was not computed again.
    assert saved == [0, 3, 7, 9]
    other_layout = asked("autoattack", shards=3)
    record = finish(store, other_layout, model, images, labels)
    assert np.array_equal(record.survivors, undisturbed.correct.numpy())


def test_a_finished_evaluation_is_never_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked("pgd-10")
    first = finish(store, wanted, model, images, labels)
    assert finish(store, wanted, None, None, None) == first


@pytest.mark.parametrize("name", ["clean", "fgsm", "pgd-10", "logit-scaling-10"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_record_says_what_its_verdicts_give(tmp_path, problem, name, shards):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked(name, shards=shards, batch_size=5)
    record = finish(store, wanted, model, images, labels)
    expected = all_phases(model, images, labels, wanted.attack)
    assert np.array_equal(record.survivors, expected.correct.numpy())
    assert np.array_equal(unpack(record.clean, IMAGES), expected.clean.numpy())
    assert record.accuracy == record.survivors.mean()
    assert record.images == IMAGES and record.phases == {} and record.warnings == ()
    assert record.attack["name"] == name and record.versions["torch"] == torch.__version__


def test_a_broken_shard_is_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked("pgd-10", shards=3, batch_size=6)
    items = open_items(store, wanted)
    for item in items:
        list(run_item(store, item, model, images, labels))
    path = store.paths(wanted.folder)[2]
    store.write(path, store.read(path)[:-20])
    assert [(item.first, item.last) for item in open_items(store, wanted)] == [(18, 24)]
    record = finish(store, wanted, model, images, labels)
    assert np.array_equal(record.survivors, all_phases(model, images, labels, wanted.attack).correct.numpy())


def test_a_broken_record_is_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    wanted = asked("pgd-10")
    first = finish(store, wanted, model, images, labels)
    store.write(wanted.record, store.read(wanted.record)[:200])
    again = finish(store, wanted, model, images, labels)
    assert again.verdicts == first.verdicts and list(store.broken_records()) == []


def test_a_range_of_images_is_an_evaluation_of_its_own_with_the_same_verdicts(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    whole = asked("pgd-10")
    part = asked(images=(10, 25))
    assert part.record != whole.record
    all_verdicts = finish(store, whole, model, images, labels).survivors
    found = finish(store, part, model, images, labels).survivors
    assert np.array_equal(found, all_verdicts[10:25])
    with pytest.raises(UserError, match="not among the 34 test images"):
        asked(images=(10, 40))


def test_phases_end_when_nobody_is_left(tmp_path):
    model, images, labels = tiny_problem(10)
    store = open_store(tmp_path)
    wanted = evaluation("outside-a", "outside", autoattack(epsilon="0.5"), 10)
    record = finish(store, wanted, model, images, labels)
    assert record.accuracy == 0
    assert not unpack(record.phases["square"], 10).any()


def test_warnings_of_all_parts_reach_the_record(tmp_path, problem):
    _, images, labels = problem
    model = torch.nn.Sequential(problem[0], torch.nn.Softmax(dim=1)).eval()
    store = open_store(tmp_path)
    wanted = asked("apgd-ce", shards=2)
    record = finish(store, wanted, model, images, labels)
    assert any("probability distribution" in warning for warning in record.warnings)


def test_a_later_versions_record_is_neither_computed_again_nor_written_over(tmp_path):
    store, wanted = open_store(tmp_path), asked()
    later = encode({"kind": "evaluation", "format": 2})
    store.write(wanted.record, later)
    for ask in (open_items, conclude):
        with pytest.raises(NewerRecord):
            ask(store, wanted)
    assert store.read(wanted.record) == later


def test_the_images_left_of_an_item_are_counted_from_a_listing(tmp_path, problem):
    store, wanted = open_store(tmp_path), asked(batch_size=10)
    (item,) = open_items(store, wanted)
    left = [missing_images(store, item) for _ in run_item(store, item, *problem)]
    assert left == [24, 14, 4, 0]


def test_verdicts_of_a_large_benchmark_are_small(tmp_path):
    """10,000 images x 20 attacks x 100 checkpoints in less than 50 MB."""
    store = open_store(tmp_path)
    survivors = np.random.default_rng(0).random(10_000) < 0.5
    sizes = []
    for name in ("pgd-20", "autoattack"):
        wanted = evaluation("outside-a", "outside", parse(name), 10_000)
        first, *later = wanted.attack.phases
        verdicts = {"correct": pack(survivors), "clean": pack(survivors)}
        store.write_record(records.shard_record(wanted.folder, 0, 10_000, first, **verdicts))
        for phase in later:
            store.write_record(records.shard_record(wanted.folder, 0, int(survivors.sum()), phase, clean=None))
        assert open_items(store, wanted) == []
        assert np.array_equal(conclude(store, wanted).survivors, survivors)
        sizes.append(len(store.read(wanted.record)))
    # AutoAttack thrice, as in the paper's suite, and 17 others.
    assert 100 * (17 * sizes[0] + 3 * sizes[1]) < 50e6 / 3


class RemoteStore(FolderStore):
    """Answers like one that is not a folder, and counts what it is told to keep."""

    def __init__(self, root):
        super().__init__(root)
        self.writes = 0

    def local(self, path):
        return None

    def write(self, path, data):
        self.writes += 1
        super().write(path, data)


def test_however_a_phase_is_cut_the_verdicts_are_the_same_and_a_remote_store_gets_one_shard_an_item(
    tmp_path, problem, undisturbed
):
    model, images, labels = problem
    store, wanted, progress, cut = RemoteStore(tmp_path), asked("autoattack"), None, []
    while items := open_items(store, wanted, shards=3 - len(cut) % 2, progress=progress):
        progress = progress or EvaluationProgress(store, wanted)
        cut.append(len(items))
        for item in items:
            saved = []
            list(run_item(store, item, model, images, labels, saved=saved))
            progress.add(saved)
    assert cut[:2] == [3, 2] and store.writes == sum(cut)
    found = conclude(store, wanted, progress)
    assert np.array_equal(found.survivors, undisturbed.correct.numpy())
    assert found.devices == (found.device,) and found.precision == "ieee"

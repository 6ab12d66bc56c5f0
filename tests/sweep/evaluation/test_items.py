"""Evaluations in the store: cut into items, killed, resumed, merged; always the same verdicts."""

import json

import numpy as np
import pytest
import torch

from sweep.errors import UserError
from sweep.evaluation import items as work
from sweep.store.opening import open_store
from tests.trainers.tiny import tiny_problem
from trainers.evaluate import evaluate_shard
from trainers.suites import parse

IMAGES = 34


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(IMAGES)


def autoattack(name="autoattack", **options):
    attack = parse(name, epsilon="0.06", batch_size=8, queries=60)
    # Two targets keep the test short; the phases and their packing are what is tested.
    return attack.model_copy(update={"targets": 2, **options})


def verdicts(record):
    return work.unpack(record["verdicts"], record["images"])


@pytest.fixture(scope="module")
def undisturbed(problem):
    model, images, labels = problem
    return evaluate_shard(model, images, labels, autoattack())


class Killed(BaseException):
    pass


class KillingStore:
    """A store whose process is killed at the n-th shard it would write."""

    def __init__(self, store, writes):
        self.store, self.left = store, writes

    def __getattr__(self, name):
        return getattr(self.store, name)

    def write_json(self, path, record):
        if "/shard-" in path:
            if self.left == 0:
                raise Killed
            self.left -= 1
        self.store.write_json(path, record)


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_any_number_of_shards_gives_autoattack_s_verdicts_on_the_whole_set(tmp_path, problem, undisturbed, shards):
    model, images, labels = problem
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", autoattack(), IMAGES, shards=shards)
    seen = []
    while items := work.next_items(store, evaluation):
        seen.append((items[0].phase, len(items)))
        for item in reversed(items):  # as if other processes had been faster
            list(work.run_item(store, item, model, images, labels))
    record = store.read_json(evaluation.record)
    assert np.array_equal(verdicts(record), undisturbed.correct.numpy())
    assert np.array_equal(work.unpack(record["clean"], IMAGES), undisturbed.clean.numpy())
    assert [phase for phase, _ in seen] == ["clean", "apgd-ce", "apgd-t", "fab-t", "square"]
    assert seen[0][1] == min(shards, 5)
    left = [work.unpack(record["phases"][phase], IMAGES) for phase in autoattack().components]
    assert all((later <= earlier).all() for earlier, later in zip(left, left[1:], strict=False))
    assert np.array_equal(left[-1], verdicts(record))
    assert store.list(evaluation.folder) == []


def test_a_killed_evaluation_loses_one_batch_of_one_component(tmp_path, problem, undisturbed):
    model, images, labels = problem
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", autoattack(), IMAGES)
    saved = []
    for writes in (0, 3, 4, 2):
        with pytest.raises(Killed):
            work.finish(KillingStore(store, writes), evaluation, model, images, labels)
        saved.append(len(store.list(evaluation.folder)))
    # Everything that was written before a kill is still there and was not computed again.
    assert saved == [0, 3, 7, 9]
    other_layout = work.of_outside("outside-a", autoattack(), IMAGES, shards=3)
    record = work.finish(store, other_layout, model, images, labels)
    assert np.array_equal(verdicts(record), undisturbed.correct.numpy())


def test_a_finished_evaluation_is_never_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", parse("pgd-10", epsilon="0.06"), IMAGES)
    first = work.finish(store, evaluation, model, images, labels)
    assert work.finish(store, evaluation, None, None, None) == first


@pytest.mark.parametrize("name", ["clean", "fgsm", "pgd-10", "logit-scaling-10"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_record_says_what_its_verdicts_give(tmp_path, problem, name, shards):
    model, images, labels = problem
    store = open_store(tmp_path)
    attack = parse(name, epsilon="0.06")
    evaluation = work.of_outside("outside-a", attack, IMAGES, shards=shards, batch_size=5)
    record = work.finish(store, evaluation, model, images, labels)
    expected = evaluate_shard(model, images, labels, attack)
    assert np.array_equal(verdicts(record), expected.correct.numpy())
    assert np.array_equal(work.unpack(record["clean"], IMAGES), expected.clean.numpy())
    assert record["accuracy"] == verdicts(record).mean()
    assert record["images"] == IMAGES and record["phases"] == {} and record["warnings"] == []
    assert record["attack"]["name"] == name and record["versions"]["torch"] == torch.__version__


def test_a_broken_shard_is_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", parse("pgd-10", epsilon="0.06"), IMAGES, shards=3, batch_size=6)
    items = work.next_items(store, evaluation)
    for item in items:
        list(work.run_item(store, item, model, images, labels))
    path = store.list(evaluation.folder)[2]
    store.write(path, store.read(path)[:-20])
    assert [(item.first, item.last) for item in work.next_items(store, evaluation)] == [(18, 24)]
    record = work.finish(store, evaluation, model, images, labels)
    assert np.array_equal(verdicts(record), evaluate_shard(model, images, labels, evaluation.attack).correct.numpy())


def test_a_broken_record_is_computed_again(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", parse("pgd-10", epsilon="0.06"), IMAGES)
    first = work.finish(store, evaluation, model, images, labels)
    store.write(evaluation.record, store.read(evaluation.record)[:200])
    again = work.finish(store, evaluation, model, images, labels)
    assert again["verdicts"] == first["verdicts"] and store.broken_results() == []


def test_a_range_of_images_is_an_evaluation_of_its_own_with_the_same_verdicts(tmp_path, problem):
    model, images, labels = problem
    store = open_store(tmp_path)
    whole = work.of_outside("outside-a", parse("pgd-10", epsilon="0.06"), IMAGES)
    part = work.of_outside("outside-a", parse("pgd-10", epsilon="0.06", images=(10, 25)), IMAGES)
    assert part.record != whole.record
    all_verdicts = verdicts(work.finish(store, whole, model, images, labels))
    found = verdicts(work.finish(store, part, model, images[10:25], labels[10:25]))
    assert np.array_equal(found, all_verdicts[10:25])
    with pytest.raises(UserError, match="not among the 34 test images"):
        work.of_outside("outside-a", parse("pgd-10", images=(10, 40)), IMAGES)


def test_phases_end_when_nobody_is_left(tmp_path):
    model, images, labels = tiny_problem(10)
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", autoattack(epsilon="0.5"), 10)
    record = work.finish(store, evaluation, model, images, labels)
    assert record["accuracy"] == 0
    assert not work.unpack(record["phases"]["square"], 10).any()


def test_warnings_of_all_parts_reach_the_record(tmp_path, problem):
    _, images, labels = problem
    model = torch.nn.Sequential(problem[0], torch.nn.Softmax(dim=1)).eval()
    store = open_store(tmp_path)
    evaluation = work.of_outside("outside-a", autoattack("apgd-ce"), IMAGES, shards=2)
    record = work.finish(store, evaluation, model, images, labels)
    assert any("probability distribution" in warning for warning in record["warnings"])


def test_verdicts_of_a_large_benchmark_are_small(tmp_path):
    """10,000 images x 20 attacks x 100 checkpoints in less than 50 MB."""
    store = open_store(tmp_path)
    bits = np.random.default_rng(0).random(10_000) < 0.5
    sizes = []
    for name in ("pgd-20", "autoattack"):
        evaluation = work.of_outside("outside-a", parse(name), 10_000)
        progress = work._Progress(store, evaluation)
        progress.clean, progress.alive = bits, bits
        progress.after = dict.fromkeys(evaluation.attack.phases, bits)
        progress.finished = [
            {"warnings": [], "seconds": 1.0, "versions": {"torch": "2"}, "commit": None, "device": "cpu"}
        ]
        record = progress.record()
        assert json.loads(json.dumps(record)) == record
        store.write_json(evaluation.record, record)
        sizes.append(len(store.read(evaluation.record)))
    # AutoAttack thrice, as in the paper's suite, and 17 others.
    assert 100 * (17 * sizes[0] + 3 * sizes[1]) < 50e6 / 3

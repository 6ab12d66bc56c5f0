"""Evaluations in the store: cut into chunks, shared, killed, resumed; always the same verdicts."""

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sweep.errors import UserError
from sweep.evaluation import attack as attacking
from sweep.evaluation.asked import Evaluation, evaluation
from sweep.evaluation.attack import BatchDone, attack, chunk_images, conclude, is_one_chunk, leased
from sweep.evaluation.progress import EvaluationProgress
from sweep.store import layout
from sweep.store.encoding import NewerRecord, encode
from sweep.store.folder import FolderStore
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.verdicts import pack, unpack
from tests import records
from tests.patience import patience
from tests.trainers.tiny import all_phases, tiny_problem
from trainers.attacks import parse

IMAGES = 34
COMPONENTS = ("apgd-ce", "apgd-t", "fab-t", "square")


@pytest.fixture(scope="module")
def problem():
    return tiny_problem(IMAGES)


def autoattack(name="autoattack", **options):
    settings = parse(name, epsilon="0.06", batch_size=8, queries=60)
    # Two targets keep the test short; the phases and their packing are what is tested.
    return settings.model_copy(update={"targets": 2, **options})


def wanted_of(name="pgd-10", *, test_images=IMAGES, images=None, **options) -> Evaluation:
    settings = autoattack(name) if name in ("autoattack", "apgd-ce") else parse(name, epsilon="0.06", images=images)
    return evaluation("outside-a", "outside", settings, test_images, **options)


@pytest.fixture(scope="module")
def undisturbed(problem):
    return all_phases(*problem, autoattack())


@pytest.fixture
def many_chunks(monkeypatch):
    """However small an evaluation is, each of its batches is worth a lease."""
    monkeypatch.setattr(attacking, "CHUNK_PASSES", 0.0)
    monkeypatch.setattr(attacking, "CHUNKS", 3)


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


class CountingStore(FolderStore):
    """Notes the shards that are written: phase, first and last image."""

    def __init__(self, root):
        super().__init__(root)
        self.shards: Counter[tuple[str, int, int]] = Counter()

    def write_record(self, record):
        if isinstance(record, ShardRecord):
            self.shards[record.phase, record.first, record.last] += 1
        super().write_record(record)


class RemoteStore(FolderStore):
    """Answers like one that is not a folder, and counts what it is told to keep."""

    def __init__(self, root):
        super().__init__(root)
        self.writes = 0

    def local(self, path):
        return None

    def write(self, path, data):
        self.writes += "/shard-" in path
        super().write(path, data)


# Verdicts


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_any_number_of_shards_gives_autoattack_s_verdicts_on_the_whole_set(tmp_path, problem, undisturbed, shards):
    store, wanted = CountingStore(tmp_path), wanted_of("autoattack", shards=shards)
    record = attack(store, wanted, problem)
    assert record == store.record(EvaluationRecord, wanted.record)
    assert np.array_equal(record.survivors, undisturbed.correct.numpy())
    assert np.array_equal(unpack(record.clean, IMAGES), undisturbed.clean.numpy())
    assert list(dict.fromkeys(phase for phase, _, _ in store.shards)) == ["clean", *COMPONENTS]
    after = [unpack(record.phases[phase], IMAGES) for phase in COMPONENTS]
    assert all((later <= earlier).all() for earlier, later in zip(after, after[1:], strict=False))
    assert np.array_equal(after[-1], record.survivors)
    assert store.paths(wanted.folder) == []


@pytest.mark.parametrize("kind", [FolderStore, RemoteStore])
def test_however_a_phase_is_cut_the_record_is_the_same(tmp_path, problem, many_chunks, kind):
    found = []
    for number, shards in enumerate((1, 2, 5)):
        store, wanted = kind(tmp_path / str(number)), wanted_of("autoattack", shards=shards)
        record = attack(store, wanted, problem)
        found.append((record.model_copy(update={"wall_seconds": 0.0}), store.read(record.counterexamples_path)))
        if kind is RemoteStore:
            reached = [IMAGES, *(int(unpack(record.phases[phase], IMAGES).sum()) for phase in COMPONENTS)]
            reached.insert(1, int(unpack(record.clean, IMAGES).sum()))
            chunks = (-(-count // chunk_images(wanted, "square", count)) for count in reached[:-1])
            assert store.writes == sum(chunks)  # one shard for each
    assert found[0] == found[1] == found[2]
    assert found[0][0].devices == (found[0][0].device,) and found[0][0].precision == "ieee"


@pytest.mark.parametrize("name", ["clean", "fgsm", "pgd-10", "logit-scaling-10"])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_record_says_what_its_verdicts_give(tmp_path, problem, name, shards):
    store, wanted = open_store(tmp_path), wanted_of(name, shards=shards, batch_size=5)
    record = attack(store, wanted, problem)
    expected = all_phases(*problem, wanted.attack)
    assert np.array_equal(record.survivors, expected.correct.numpy())
    assert np.array_equal(unpack(record.clean, IMAGES), expected.clean.numpy())
    assert record.accuracy == record.survivors.mean()
    assert record.images == IMAGES and record.phases == {} and record.warnings == ()
    assert record.attack["name"] == name and record.versions["torch"] == torch.__version__


def test_a_range_of_images_is_an_evaluation_of_its_own_with_the_same_verdicts(tmp_path, problem):
    store, whole, part = open_store(tmp_path), wanted_of("pgd-10"), wanted_of(images=(10, 25))
    assert part.record != whole.record
    survivors = attack(store, whole, problem).survivors
    assert np.array_equal(attack(store, part, problem).survivors, survivors[10:25])
    with pytest.raises(UserError, match="not among the 34 test images"):
        wanted_of(images=(10, 40))


def test_phases_end_when_nobody_is_left(tmp_path):
    wanted = evaluation("outside-a", "outside", autoattack(epsilon="0.5"), 10)
    record = attack(open_store(tmp_path), wanted, tiny_problem(10))
    assert record.accuracy == 0
    assert not unpack(record.phases["square"], 10).any()


def test_warnings_of_all_parts_reach_the_record(tmp_path, problem):
    _, images, labels = problem
    model = torch.nn.Sequential(problem[0], torch.nn.Softmax(dim=1)).eval()
    record = attack(open_store(tmp_path), wanted_of("apgd-ce", shards=2), (model, images, labels))
    assert any("probability distribution" in warning for warning in record.warnings)


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
        assert np.array_equal(attack(store, wanted, (None, None, None)).survivors, survivors)
        sizes.append(len(store.read(wanted.record)))
    # AutoAttack thrice, as in the paper's suite, and 17 others.
    assert 100 * (17 * sizes[0] + 3 * sizes[1]) < 50e6 / 3


# Kills and damages


def test_a_killed_evaluation_loses_one_batch_of_one_component(tmp_path, problem, undisturbed):
    store, wanted = CountingStore(tmp_path), wanted_of("autoattack")
    saved = []
    for writes in (0, 3, 4, 2):
        with pytest.raises(Killed):
            attack(KillingStore(tmp_path, writes), wanted, problem)
        saved.append(len(store.paths(wanted.folder)))
    # Everything that was written before a kill is still there and is not computed again.
    assert saved == [0, 3, 7, 9]
    record = attack(store, replace(wanted, shards=3), problem)
    assert np.array_equal(record.survivors, undisturbed.correct.numpy())
    whole = CountingStore(tmp_path / "whole")
    attack(whole, wanted, problem)
    assert store.shards.total() == whole.shards.total() - 9


def test_a_finished_evaluation_is_never_computed_again(tmp_path, problem):
    store, wanted = open_store(tmp_path), wanted_of("pgd-10")
    first = attack(store, wanted, problem)
    assert attack(store, wanted, (None, None, None)) == first


def test_a_broken_shard_is_computed_again(tmp_path, problem):
    wanted = wanted_of("pgd-10", batch_size=6)
    with pytest.raises(Killed):
        attack(KillingStore(tmp_path, 5), wanted, problem)
    store = CountingStore(tmp_path)
    path = store.paths(wanted.folder)[2]
    store.write(path, store.read(path)[:-20])
    record = attack(store, wanted, problem)
    assert sorted(store.shards) == [("", 18, 24), ("", 30, 34)]
    assert np.array_equal(record.survivors, all_phases(*problem, wanted.attack).correct.numpy())


def test_a_broken_record_is_computed_again(tmp_path, problem):
    store, wanted = open_store(tmp_path), wanted_of("pgd-10")
    first = attack(store, wanted, problem)
    store.write(wanted.record, store.read(wanted.record)[:200])
    assert attack(store, wanted, problem).verdicts == first.verdicts and list(store.broken_records()) == []


def test_a_later_versions_record_is_neither_computed_again_nor_written_over(tmp_path, problem):
    store, wanted = open_store(tmp_path), wanted_of()
    later = encode({"kind": "evaluation", "format": 2})
    store.write(wanted.record, later)
    with pytest.raises(NewerRecord):
        attack(store, wanted, problem)
    with pytest.raises(NewerRecord):
        conclude(store, wanted, EvaluationProgress(store, wanted))
    assert store.read(wanted.record) == later


# Several processes


def test_small_evaluations_are_one_chunk_and_large_ones_several():
    small, large = (evaluation("a", "last", parse("autoattack"), images) for images in (500, 10_000))
    assert is_one_chunk(small) and not is_one_chunk(large)
    lengths = {phase: chunk_images(large, phase, 5_000) for phase in large.attack.phases}
    assert lengths["clean"] >= 5_000 and lengths["square"] < 5_000
    assert all(length % large.piece == 0 for length in lengths.values())
    # A study that asks for shards gets them in every phase, however few images reach it.
    assert chunk_images(replace(large, shards=4), "square", 3_000) == 768


@contextmanager
def refused(chunk):
    yield False


def test_a_process_leaves_what_another_has_and_nobody_concludes_before_the_end(tmp_path, problem, many_chunks):
    store, wanted = CountingStore(tmp_path), wanted_of("pgd-10", batch_size=6)
    assert attack(store, wanted, problem, claim=refused) is None and not store.shards
    theirs = leased(store, wanted)
    with theirs("~-12"):  # the second of three chunks
        assert attack(store, wanted, problem, claim=leased(store, wanted)) is None
        assert sorted(store.shards) == [("", 0, 6), ("", 6, 12), ("", 24, 30), ("", 30, 34)]
    assert not store.exists(wanted.record)
    record = attack(store, wanted, problem, claim=leased(store, wanted))
    assert store.shards.total() == 6 and store.paths(layout.LEASES) == []
    assert np.array_equal(record.survivors, all_phases(*problem, wanted.attack).correct.numpy())


def test_processes_hear_how_many_chunks_wait_for_another_one(tmp_path, problem, many_chunks):
    store, wanted, said = open_store(tmp_path), wanted_of("pgd-10", batch_size=6), []
    attack(store, wanted, problem, on_batch=said.append)
    steps = [(6, 2), (12, 2), (18, 1), (24, 1), (30, 0), (34, 0)]
    assert said == [BatchDone("", images, IMAGES, free) for images, free in steps]


@pytest.mark.parametrize("shards", [1, 2])
def test_two_threads_share_an_evaluation_and_compute_no_batch_twice(
    tmp_path, problem, undisturbed, many_chunks, shards
):
    """Each comes back until the record is there, as pieces of a study and `sweep evaluate` do."""
    store, wanted, found = CountingStore(tmp_path), wanted_of("autoattack", shards=shards), []
    barrier = threading.Barrier(2)

    def work(problem) -> None:
        barrier.wait()
        while (record := attack(store, wanted, problem, claim=leased(store, wanted))) is None:
            time.sleep(0.01)
        found.append(record)

    threads = [threading.Thread(target=work, args=(tiny_problem(IMAGES),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert found[0] == found[1] and np.array_equal(found[0].survivors, undisturbed.correct.numpy())
    assert set(store.shards.values()) == {1}
    assert store.paths(wanted.folder) == store.paths(layout.LEASES) == []


def test_a_process_that_looks_while_another_concludes_computes_nothing_again(tmp_path, problem, many_chunks):
    wanted = wanted_of("pgd-10", batch_size=6)
    store = CountingStore(tmp_path)
    with pytest.raises(Killed):
        attack(KillingStore(tmp_path, 5), wanted, problem)
    faster = open_store(tmp_path)

    @contextmanager
    def late(chunk):
        """The other computes the rest between our look at the shards and our claim."""
        attack(faster, wanted, tiny_problem(IMAGES))
        yield True

    record = attack(store, wanted, problem, claim=late)
    assert record == store.record(EvaluationRecord, wanted.record) and not store.shards
    assert store.paths(wanted.folder) == []


@pytest.mark.parametrize("is_covered", [True, False])
def test_batches_that_were_computed_twice_count_once(tmp_path, problem, is_covered):
    """By processes whose studies ask for other batches or shards, which cut differently."""
    store, wanted = open_store(tmp_path), wanted_of("pgd-10", batch_size=10)
    others, kept = replace(wanted, batch_size=5 if is_covered else 15), []
    for number, cut in enumerate((wanted, others)):
        separate = KillingStore(tmp_path / str(number), 2)
        with pytest.raises(Killed):
            attack(separate, cut, problem)
        kept += [separate.record(ShardRecord, path) for path in separate.paths(cut.folder)]
    for shard in kept:
        store.write_record(shard)
    record = attack(store, wanted, problem)
    expected = attack(open_store(tmp_path / "expected"), wanted, problem)
    assert (record.verdicts, record.clean, record.accuracy) == (expected.verdicts, expected.clean, expected.accuracy)
    assert record.counterexamples == (expected.counterexamples if is_covered else None)


PROCESS = """
import sys
import time
from pathlib import Path
from sweep.evaluation.attack import attack, leased
from sweep.store.folder import FolderStore
from sweep.store.records.evaluation import ShardRecord
from tests.sweep.evaluation.test_attack import attacking, tiny_problem, wanted_of, IMAGES

attacking.CHUNK_PASSES, attacking.CHUNKS = 0.0, 4

class Store(FolderStore):
    def write_record(self, record):
        super().write_record(record)
        if isinstance(record, ShardRecord):
            print(record.phase, record.first, record.last, flush=True)

store, wanted = Store(Path(sys.argv[1])), wanted_of("autoattack")
print("ready", flush=True)
sys.stdin.readline()
while attack(store, wanted, tiny_problem(IMAGES), claim=leased(store, wanted)) is None:
    time.sleep(0.05)
"""


@pytest.mark.timeout(300)
def test_two_processes_of_which_one_is_killed_give_the_record_of_one(tmp_path, problem):
    expected = attack(open_store(tmp_path / "one"), wanted_of("autoattack"), problem)
    words = [sys.executable, "-c", PROCESS, str(tmp_path / "two")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = one, other = [subprocess.Popen(words, cwd=Path(__file__).parents[3], **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    first = one.stdout.readline().split()
    one.kill()
    output, _ = other.communicate(timeout=patience(120))
    one.wait()
    store = open_store(tmp_path / "two")
    record = store.record(EvaluationRecord, expected.path)
    seconds = {"wall_seconds": 0.0}
    assert other.returncode == 0 and record.model_copy(update=seconds) == expected.model_copy(update=seconds)
    proofs = (whole.read(expected.counterexamples_path) for whole in (store, open_store(tmp_path / "one")))
    assert len(set(proofs)) == 1
    lines = [tuple(line.split()) for line in output.splitlines()]
    assert lines and len(lines) == len(set(lines)) and tuple(first) not in lines


def test_a_claim_without_leases_is_everybodys(tmp_path, problem):
    wanted = wanted_of("pgd-10")
    record = attack(open_store(tmp_path), wanted, problem, claim=lambda chunk: nullcontext(True))
    assert record is not None and open_store(tmp_path).paths(layout.LEASES) == []

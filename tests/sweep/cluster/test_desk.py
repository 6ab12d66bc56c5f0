"""Who gets which task, and what becomes of one that went wrong: without Ray, on two nodes."""

import pytest

from sweep.cluster import desk as desks
from sweep.cluster.desk import DEATHS, Desk, Worker
from sweep.cluster.failures import TaskFailure, failure_of
from sweep.cluster.nodes import Nodes
from sweep.cluster.place import Place
from sweep.errors import SweepEnded
from sweep.store.holders import held
from sweep.store.opening import open_store
from sweep.work.tasks import EvaluationPiece, Training
from sweep.work.work import Work
from tests import records
from tests.sweep.tiny_study import tiny

GB = 1024**3
ONE = Place("node-1", "one", gpu="A100-40", gpu_bytes=40 * GB)
TWO = Place("node-2", "two", gpu="A100-80", gpu_bytes=80 * GB)
DIED, DISK = TaskFailure("died", "the process died"), TaskFailure("machine", "OSError: No space left on device")


class Shown:
    """A desk, its store, and the nodes that are alive."""

    def __init__(self, folder, *, retries=2, **study):
        self.store = open_store(folder / "store")
        self.study = tiny(folder, **{"methods": {"at": {}}, "search": None, "seeds": [0], **study})
        self.work = Work(self.study, self.store)
        self.alive = {"node-1", "node-2"}
        self.desk = Desk(self.work, retries, lambda: self.alive)

    def record(self, task):
        return self.store.trial_record(task.trial)


@pytest.fixture
def shown(tmp_path):
    made = []

    def make(**study):
        made.append(Shown(tmp_path, **study))
        return made[-1]

    yield make
    for one in made:
        one.work.close()


def test_a_process_that_dies_six_times_uses_up_no_retry(shown):
    here = shown(retries=2)
    for number in range(6):
        task = here.desk.order(f"p{number}", ONE)
        here.desk.failed(f"p{number}", DIED)
    assert here.record(task) is None and not here.work.failed
    for number in range(6, DEATHS + 1):  # one that dies whenever it is tried is no preemption
        here.desk.order(f"p{number}", ONE)
        here.desk.failed(f"p{number}", DIED)
    assert here.record(task).status == "failed"


def test_with_its_node_a_process_may_be_lost_any_number_of_times(shown):
    here = shown(retries=0)
    for number in range(3 * DEATHS):
        here.alive = {"node-1"}
        task = here.desk.order(f"p{number}", ONE)
        here.alive = {"node-2"}
        here.desk.failed(f"p{number}", DIED)
    assert here.record(task) is None and not here.work.failed and not held(here.store)


def test_only_failures_without_an_epoch_in_between_count(shown):
    here, error = shown(retries=2), TaskFailure("trial", "RuntimeError: once in a while")
    for epoch in range(6):
        task = here.desk.order("p", ONE)
        here.desk.progressed("p", epoch)
        here.desk.failed("p", error)
    assert here.record(task) is None
    for _ in range(2):
        here.desk.order("p", ONE)
        here.desk.failed("p", error)
    assert here.record(task).reason == error.reason  # the third without any progress


def test_two_tasks_that_fail_at_once_on_a_node_are_its_last_and_nothing_is_recorded(shown):
    here = shown(seeds=[0, 1, 2])
    for name in ("p1", "p2"):
        here.desk.order(name, ONE)
        here.desk.failed(name, DISK)
    (host,) = here.desk.nodes.bad()
    assert host.startswith("one ") and "No space left" in here.desk.nodes.bad()[host]
    assert here.desk.order("p3", ONE) == desks.BAD_NODE_WAIT  # it stays, so that nothing else is sent there
    done = 0
    while isinstance(task := here.desk.order("q", TWO), Training):
        here.store.write_record(records.trial_record(task.trial, config=task.config, status="collapsed"))
        here.desk.ended("q", 1.0)
        done += 1
    assert done == 3 and set(here.store.trial_states().values()) == {"collapsed"} and here.desk.is_done


def test_a_task_that_one_node_failed_goes_to_another(shown):
    here = shown()
    task = here.desk.order("p", ONE)
    here.desk.failed("p", DISK)
    assert isinstance(here.desk.order("p2", ONE), float) and here.desk.order("q", TWO) == task
    here.desk.failed("q", DISK)
    assert here.desk.order("p3", ONE) == task  # no third node: it is tried here again
    here.desk.failed("p3", DISK)
    assert here.record(task) is None and here.work.complete  # given up after two retries, and not recorded
    assert [failure.reason for failure in here.work.failed] == [DISK.reason]


def test_a_success_clears_what_a_node_was_suspected_of(shown):
    here = shown(seeds=[0, 1, 2])
    here.desk.order("p1", ONE)
    here.desk.order("p2", ONE)
    here.desk.failed("p1", DISK)
    here.desk.progressed("p2", 0)
    here.desk.failed("p2", DISK)
    assert not here.desk.nodes.bad()


def test_a_place_that_finds_a_fault_with_itself_gets_no_work_until_it_is_put_right(shown):
    here = shown()
    bad = Place("node-1", "one", fault="other versions: torch 9.9")
    assert here.desk.order("p", bad) == desks.BAD_NODE_WAIT and not held(here.store)
    assert here.desk.order("p", ONE).stage == "train"


def test_trainings_that_fail_on_a_node_count_although_its_evaluations_go_well():
    nodes = Nodes()
    nodes.hear(ONE)
    nodes.failed("node-1", "train", "one trial", "no space")
    nodes.worked("node-1", "evaluate")
    assert nodes.fault("node-1") is None
    nodes.failed("node-1", "train", "another", "no space")
    assert nodes.fault("node-1") == "2 tasks failed there at once: no space"
    nodes.worked("node-1", "train")
    assert nodes.fault("node-1") is None


def test_without_a_node_that_can_work_the_sweep_ends_and_names_them(shown):
    here, bad = shown(), [Place(f"node-{number}", "one", fault="no data") for number in (1, 2)]
    here.desk.patience = 0.0
    here.desk.order("p", bad[0])  # the other one may still be good
    with pytest.raises(SweepEnded, match="no node of the cluster can work:\n  one .*no data"):
        here.desk.order("q", bad[1])


def test_out_of_memory_is_tried_once_on_a_larger_gpu(shown):
    here = shown()
    here.desk.nodes.hear(TWO)
    task = here.desk.order("p", ONE)
    here.desk.failed("p", TaskFailure("memory", "out of memory on A100-40", 40 * GB))
    assert here.record(task) is None and isinstance(here.desk.order("p2", ONE), float)
    assert here.desk.order("q", TWO) == task
    here.desk.failed("q", TaskFailure("memory", "out of memory on A100-80", 80 * GB))
    assert here.record(task).reason == "out of memory on A100-80"


@pytest.mark.parametrize("leaves", [False, True])
def test_out_of_memory_without_a_larger_gpu_is_told(shown, leaves):
    here = shown()
    if leaves:
        here.desk.nodes.hear(TWO)
    task = here.desk.order("p", ONE)
    here.desk.failed("p", TaskFailure("memory", "out of memory on A100-40", 40 * GB))
    if leaves:  # the only larger one, before it could be used
        here.alive = {"node-1"}
        here.desk.order("p", ONE)
        assert here.record(task) is None and "no larger GPU" in here.work.failed[0].reason
    else:
        assert here.record(task).status == "failed"


def test_a_waiting_process_holds_nothing_and_a_second_driver_finds_work(shown):
    here = shown(seeds=list(range(4)))
    for number in range(4):  # processes that wait for a device
        here.desk.workers[f"waits{number}"] = Worker()
    assert here.desk.wanted(8) == 0 and not held(here.store)
    here.desk.order("p", ONE)
    assert set(held(here.store)) == {one.task.lease for one in here.work.running} and len(held(here.store)) == 1
    other = Work(here.study, here.store)
    taken = [other.next_task() for _ in range(3)]
    assert all(taken) and other.next_task() is None
    assert here.desk.wanted(0) == 0 - 4 + 3  # not known yet: they are asked about when one is wanted
    assert isinstance(here.desk.order("q", ONE), float)
    assert here.desk.wanted(0) == -5  # four wait in vain, and one that has a device
    other.close()


def test_a_new_generation_of_a_search_goes_before_trainings_that_wait(shown):
    here = shown(methods={"sovr": {}, "at": {}}, seeds=[0, 1, 2], search={"sovr": {"candidates": 6, "seed": 1000}})
    first = [here.desk.order(f"p{number}", ONE) for number in range(4)]
    assert {task.stage for task in first} == {"search"}
    for number, task in enumerate(first):
        here.store.write_record(records.trial_record(task.trial, config=task.config))
        here.desk.ended(f"p{number}", 1.0)
    assert [here.desk.order(f"p{number}", ONE).stage for number in range(3)] == ["search", "search", "train"]


def test_what_lost_its_lease_ends_and_is_left_to_the_other(shown):
    here = shown()
    task = here.desk.order("p", ONE)
    here.work.leases._held[task.lease].lost = True
    (assigned,) = here.work.lost_leases()
    assert assigned.task == task
    here.desk.lost("p")
    assert not here.desk.running and not here.work.complete and here.record(task) is None


def test_an_evaluation_that_another_took_over_is_theirs_with_all_its_pieces(shown):
    here = shown(evaluation={"suite": "logit_scaling", "epsilon": "0.1", "images": 20, "shards": 4, "batch_size": 5})
    task = here.desk.order("p", ONE)
    here.store.write_record(records.trial_record(task.trial, config=task.config))
    here.desk.ended("p", 1.0)
    pieces = [here.desk.order(name, ONE) for name in ("p", "q")]
    assert all(isinstance(piece, EvaluationPiece) for piece in pieces) and pieces[0].lease == pieces[1].lease
    before = here.work.left
    here.work.leases._held[pieces[0].lease].lost = True
    here.desk.lost("p")
    assert pieces[0].lease not in {one.task.lease for one in here.work.ready}
    here.desk.ended("q", 1.0)  # it ended before it could be stopped: its shard is there for whoever has it
    assert here.work.waiting("evaluate") and before > here.work.left > 0


def test_a_process_without_work_waits_a_little_and_ends(shown, monkeypatch):
    here = shown()
    here.desk.order("p", ONE)
    assert isinstance(here.desk.order("q", ONE), float)
    monkeypatch.setattr(desks, "IDLE_SECONDS", -1.0)
    assert here.desk.order("q", ONE) is None and not here.desk.is_done


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), "machine"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "machine"),
        (RuntimeError("Found no NVIDIA driver; CUDA driver initialization failed"), "machine"),
        (RuntimeError("CUDA error: device-side assert triggered"), "trial"),
        (ValueError("a plain mistake"), "trial"),
    ],
)
def test_faults_are_told_apart(error, kind):
    assert failure_of(error).kind == kind

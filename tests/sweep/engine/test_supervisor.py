"""What becomes of a piece when its trial ends badly, and which nodes get no more work: without Ray, on two nodes."""

from dataclasses import dataclass

import pytest

from sweep.engine import supervisor as supervisors
from sweep.engine.nodes import Nodes
from sweep.engine.supervisor import DEATHS, Supervisor
from sweep.errors import SweepEnded
from sweep.store import layout
from sweep.store.leases import claim, holder_here
from sweep.store.opening import open_store
from sweep.work import queue as queues
from sweep.work.failures import PieceFailure, failure_of
from sweep.work.pieces import piece_from, trial_metrics
from sweep.work.queue import Queue
from tests import records
from tests.sweep.tiny_study import tiny

GB = 1024**3


@dataclass(frozen=True)
class Node:
    name: str
    host: str
    gpu_bytes: int = 0
    fault: str | None = None


ONE, TWO = Node("node-1", "one", 40 * GB), Node("node-2", "two", 80 * GB)
DIED, DISK = PieceFailure("died", "the process died"), PieceFailure("machine", "OSError: No space left on device")
ERROR = PieceFailure("trial", "RuntimeError: once in a while")


class Sweep:
    """A supervisor, its store, and the nodes that are alive. Its trials are what a test says that they do."""

    def __init__(self, folder, *, retries=2, patience=60.0, **study):
        self.store = open_store(folder / "store")
        self.study = tiny(folder, **{"methods": {"at": {}}, "search": None, "seeds": [0], **study})
        self.queue = Queue(self.study, self.store)
        self.alive = {"node-1", "node-2"}
        self.supervisor = Supervisor(self.queue, retries, lambda: self.alive, patience)
        self.trials = 0

    def suggest(self):
        """Return the id and the config of the next trial, None twice while there is none."""
        trial = f"trial{self.trials}"
        config = self.supervisor.start(trial, helpers=1)
        self.trials += config is not None
        return (trial, config) if config else (None, None)

    def begin(self, node):
        """Suggest a trial and let a worker of this node answer as the real one does; None for one that it refuses."""
        trial, config = self.suggest()
        return trial if config and self.answer(trial, config, node) else None

    def answer(self, trial, config, node):
        hear = self.supervisor.hear
        hear(trial, {"node": node.name, "host": node.host, "gpu": None, "gpu_bytes": node.gpu_bytes})
        fault = node.fault or config["bad_nodes"].get(node.name)
        if fault:
            hear(trial, {"state": "held", "fault": fault})
            return False
        if node.name in config["avoided_nodes"] or 0 < config["gpu_bytes"] >= node.gpu_bytes:
            self.supervisor.finished(trial, {"state": "elsewhere", "fault": "it failed there"})
            return False
        return True

    def piece(self, trial):
        return self.supervisor.attempts[trial].item.piece

    def finish(self, trial, **changes):
        piece = self.piece(trial)
        record = records.trial_record(piece.trial, config=piece.config, **changes)
        self.store.write_record(record)
        self.supervisor.finished(trial, trial_metrics(record))

    def fail(self, node, failure):
        """Begin with the next piece and fail; return the piece."""
        trial = self.begin(node)
        piece = self.piece(trial)
        self.supervisor.failed(trial, failure)
        return piece

    def record(self, piece):
        return self.store.trial_record(piece.trial)


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.0)
    made = []

    def make(**study):
        made.append(Sweep(tmp_path, **study))
        return made[-1]

    yield make
    for here in made:
        here.queue.close()


# Whose fault it was


def test_a_process_that_dies_six_times_uses_up_no_retry(sweep):
    here = sweep(retries=2)
    for _ in range(6):
        piece = here.fail(ONE, DIED)
    assert here.record(piece) is None and not here.queue.failed
    for _ in range(6, DEATHS + 1):  # one that dies whenever it is tried is no preemption
        here.fail(ONE, DIED)
    assert here.record(piece).status == "failed"


def test_with_its_node_a_process_may_be_lost_any_number_of_times(sweep):
    here = sweep(retries=0)
    for _ in range(3 * DEATHS):
        here.alive = {"node-1"}
        trial = here.begin(ONE)
        piece = here.piece(trial)
        here.alive = {"node-2"}
        here.supervisor.failed(trial, DIED)
    assert here.record(piece) is None and not here.queue.failed and here.queue.left == 1


def test_a_lost_node_moves_no_piece_closer_to_its_end(sweep):
    here = sweep(retries=1)
    here.fail(ONE, ERROR)
    trial = here.begin(ONE)
    here.alive = {"node-2"}
    here.supervisor.failed(trial, DIED)
    _, config = here.suggest()
    assert config["attempt"] == 2  # as before


def test_only_failures_without_an_epoch_in_between_count(sweep):
    here = sweep(retries=2)
    for epoch in range(6):
        trial = here.begin(ONE)
        piece = here.piece(trial)
        here.supervisor.hear(trial, {"epoch": epoch, "train_loss": 1.0})
        here.supervisor.failed(trial, ERROR)
    assert here.record(piece) is None
    for _ in range(2):
        here.fail(ONE, ERROR)
    assert here.record(piece).reason == ERROR.reason  # the third without any progress


def test_a_fault_of_the_loss_is_final_at_once(sweep):
    here = sweep(retries=9)
    piece = here.fail(ONE, PieceFailure("loss", "AttributeError: cross_entropie"))
    assert here.record(piece).reason == "AttributeError: cross_entropie" and here.queue.complete


def test_a_store_that_is_away_is_nobody_s_fault(sweep):
    here = sweep(retries=0)
    for _ in range(20):
        piece = here.fail(ONE, PieceFailure("store", "StoreGone: no answer"))
    assert here.record(piece) is None and not here.queue.failed and here.queue.left == 1


def test_a_hung_process_is_tried_again_and_then_recorded(sweep):
    here, hung = sweep(retries=1), PieceFailure("hung", "no progress for 60.0 minutes")
    piece = here.fail(ONE, hung)
    assert here.record(piece) is None
    here.fail(ONE, hung)
    assert here.record(piece).reason == hung.reason


def test_an_attempt_after_a_failure_says_so_and_frees_the_lease_of_the_one_before(sweep):
    here = sweep()
    trial, config = here.suggest()
    assert config["attempt"] == 1 and "attempt" not in config["title"] and config["dead_owners"] == []
    assert config["owner"] == trial
    here.answer(trial, config, ONE)
    claim(here.store, layout.trial_lease(config["trial"]), holder_here(60.0, trial))
    here.supervisor.failed(trial, ERROR)
    _, again = here.suggest()
    assert again["attempt"] == 2 and again["title"] == f"{config['title']} (attempt 2)"
    assert again["dead_owners"] == [trial] and piece_from(again) == piece_from(config)


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


# Bad nodes


def test_two_pieces_that_fail_at_once_on_a_node_are_its_last_and_nothing_is_recorded(sweep):
    here = sweep(seeds=[0, 1, 2])
    first, second = here.begin(ONE), here.begin(ONE)
    for trial in (first, second):
        here.supervisor.failed(trial, DISK)
    (host,) = here.supervisor.nodes.bad()
    assert host.startswith("one ") and "No space left" in here.supervisor.nodes.bad()[host]
    assert here.begin(ONE) is None  # a trial that gets there keeps its device
    while (trial := here.begin(TWO)) is not None:
        here.finish(trial, status="collapsed")
    assert here.queue.done["train"] == 3 and not here.queue.failed
    assert set(here.store.trial_states().values()) == {"collapsed"} and here.supervisor.is_done


def test_a_piece_that_one_node_failed_goes_to_another(sweep):
    here = sweep(retries=2)
    piece = here.fail(ONE, DISK)
    assert here.begin(ONE) is None  # while there is another
    assert here.fail(TWO, DISK) == piece
    assert here.fail(ONE, DISK) == piece  # no third node: it is tried here again
    assert here.record(piece) is None and here.queue.complete  # given up after two retries, and not recorded
    assert [failure.reason for failure in here.queue.failed] == [DISK.reason]


def test_a_piece_that_waits_for_another_node_keeps_no_device_from_the_others(sweep):
    here = sweep(seeds=[0, 1])
    piece = here.fail(ONE, DISK)
    assert here.begin(ONE) is None and here.piece(here.begin(ONE)) != piece
    assert here.piece(here.begin(TWO)) == piece


def test_a_piece_that_fails_wherever_it_runs_makes_no_node_bad(sweep):
    here = sweep(retries=9)
    for node in (ONE, TWO, ONE, TWO, ONE):
        here.fail(node, DISK)
    assert not here.supervisor.nodes.bad()


def test_progress_clears_what_a_node_was_suspected_of(sweep):
    here = sweep(seeds=[0, 1, 2])
    first, second = here.begin(ONE), here.begin(ONE)
    here.supervisor.failed(first, DISK)
    here.supervisor.hear(second, {"epoch": 0})
    here.supervisor.failed(second, DISK)
    assert not here.supervisor.nodes.bad()


def test_a_node_on_which_pieces_fail_late_is_not_suspected(sweep, monkeypatch):
    monkeypatch.setattr(supervisors, "FAST_SECONDS", -1.0)
    here = sweep(seeds=[0, 1, 2])
    for trial in (here.begin(ONE), here.begin(ONE)):
        here.supervisor.failed(trial, DISK)
    assert not here.supervisor.nodes.bad()


def test_trainings_that_fail_on_a_node_count_although_its_attacks_go_well():
    nodes = Nodes()
    nodes.hear("node-1", "one")
    nodes.failed("node-1", "train", "one trial", "no space")
    nodes.worked("node-1", "attack")
    assert nodes.fault("node-1") is None
    nodes.failed("node-1", "train", "another", "no space")
    assert "no space" in nodes.fault("node-1") and "2" in nodes.fault("node-1")


def test_a_node_that_finds_a_fault_with_itself_gets_no_work_until_it_is_put_right(sweep):
    here, bad = sweep(), Node("node-1", "one", fault="other versions: torch 9.9")
    trial, config = here.suggest()
    assert not here.answer(trial, config, bad)
    assert "other versions" in "".join(here.supervisor.nodes.bad().values())
    piece = here.piece(here.begin(TWO))  # the piece goes on elsewhere while the trial keeps the bad node's device
    assert piece == piece_from(config) and trial in here.supervisor.attempts
    here.supervisor.finished(trial, {"state": "held", "fault": bad.fault})
    assert here.queue.left == 1 and here.record(piece) is None
    here.supervisor.hear(trial, {"node": "node-1", "host": "one", "gpu_bytes": 0})


def test_a_trial_that_holds_a_bad_node_keeps_no_sweep_from_its_end(sweep):
    here = sweep()
    held, config = here.suggest()
    here.answer(held, config, Node("node-1", "one", fault="no data"))
    assert not here.supervisor.is_done
    here.finish(here.begin(TWO), status="collapsed")
    assert here.supervisor.is_done and held in here.supervisor.attempts
    here.supervisor.stopped(held)
    assert here.queue.complete and not here.queue.failed


def test_a_process_that_dies_while_it_holds_a_bad_node_fails_nothing(sweep):
    here = sweep(retries=0)
    held, config = here.suggest()
    here.answer(held, config, Node("node-1", "one", fault="no data"))
    here.supervisor.failed(held, DIED)
    assert not here.queue.failed and here.begin(TWO)


def test_a_bad_node_that_has_gone_is_not_held_against_its_successor(sweep):
    here = sweep(seeds=[0, 1, 2])
    for trial in (here.begin(ONE), here.begin(ONE)):
        here.supervisor.failed(trial, DISK)
    here.alive = {"node-2", "node-3"}
    _, config = here.suggest()
    assert config["bad_nodes"] == {}


def test_a_cluster_of_bad_nodes_ends_the_sweep_and_names_them(sweep):
    here = sweep(patience=-1.0)
    for node in (ONE, TWO):
        here.supervisor.end_without_nodes()  # the second one may still be good
        trial, config = here.suggest()
        here.answer(trial, config, Node(node.name, node.host, fault="no data"))
    with pytest.raises(SweepEnded, match="one .*no data"):
        here.supervisor.end_without_nodes()


# Memory


def test_out_of_memory_is_tried_once_on_a_larger_gpu(sweep):
    here = sweep()
    here.supervisor.nodes.hear(TWO.name, TWO.host, TWO.gpu_bytes)
    piece = here.fail(ONE, PieceFailure("memory", "out of memory on A100-40", 40 * GB))
    assert here.record(piece) is None and here.begin(ONE) is None
    assert here.fail(TWO, PieceFailure("memory", "out of memory on A100-80", 80 * GB)) == piece
    assert here.record(piece).reason == "out of memory on A100-80"


@pytest.mark.parametrize("leaves", [False, True])
def test_out_of_memory_without_a_larger_gpu_is_told(sweep, leaves):
    here = sweep()
    if leaves:
        here.supervisor.nodes.hear(TWO.name, TWO.host, TWO.gpu_bytes)
    piece = here.fail(ONE, PieceFailure("memory", "out of memory on A100-40", 40 * GB))
    if leaves:  # the only larger one, before it could be used
        here.alive = {"node-1"}
        assert here.begin(ONE) is None and here.supervisor.is_done
        assert here.record(piece) is None and "no larger GPU" in here.queue.failed[0].reason
    else:
        assert here.record(piece).status == "failed"


# Other drivers


def test_a_piece_that_another_driver_took_over_is_left_to_it(sweep):
    here = sweep()
    trial = here.begin(ONE)
    piece = here.piece(trial)
    claim(here.store, piece.lease, holder_here(60.0, "their trial"))
    here.supervisor.finished(trial, {"state": "taken"})
    assert here.suggest() == (None, None) and not here.supervisor.is_done and here.record(piece) is None
    here.store.write_record(records.trial_record(piece.trial, config=piece.config, status="collapsed"))
    for path in here.store.paths(layout.LEASES):
        here.store.delete(path)
    assert here.suggest() == (None, None) and here.supervisor.is_done and here.queue.done["train"] == 1


def test_leases_of_this_sweep_s_own_workers_keep_it_from_nothing(sweep):
    here = sweep()
    trial = here.begin(ONE)
    claim(here.store, here.piece(trial).lease, holder_here(60.0, trial))
    here.supervisor.failed(trial, DIED)
    assert here.begin(TWO) is not None


# The end


def test_a_stopped_trial_is_no_failure(sweep):
    here = sweep(retries=0)
    trial = here.begin(ONE)
    piece = here.piece(trial)
    here.supervisor.stopped(trial)
    assert here.record(piece) is None and not here.queue.failed and here.queue.left == 1


def test_a_sweep_is_done_when_nothing_runs_and_nothing_may_start(sweep):
    here = sweep(seeds=[0, 1])
    trial = here.begin(ONE)
    here.queue.may_start = lambda: False  # the budget is used up
    assert not here.supervisor.is_done and here.suggest() == (None, None)
    here.finish(trial)
    assert here.supervisor.is_done and not here.queue.complete


def test_what_trials_report_after_their_end_is_ignored(sweep):
    here = sweep()
    here.supervisor.hear("unknown", {"epoch": 3})
    here.supervisor.finished("unknown", {"state": "done"})
    here.supervisor.failed("unknown", ERROR)
    here.supervisor.stopped("unknown")
    assert here.queue.left == 1 and not here.queue.failed


def test_what_a_trial_reports_shows_how_far_it_is(sweep):
    here = sweep()
    trial = here.begin(ONE)
    item = here.supervisor.attempts[trial].item
    here.supervisor.hear(trial, {"epoch": 1, "earlier": [{"epoch": 0}]})
    assert item.share == pytest.approx(2 / 3) and item in here.queue.running
    here.supervisor.hear(trial, {"images": 20, "count": 40, "free": 3, "phase": "clean"})
    assert item.free == 3

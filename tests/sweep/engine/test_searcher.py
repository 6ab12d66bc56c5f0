"""What Ray Tune is told and asked: which trial comes next, how many wait, and which gave no sign of life."""

import pickle
import time
from types import SimpleNamespace

import pytest
from ray.tune.search import Searcher

from sweep.cluster.resources import TrialResources, resources_by_piece, resources_of
from sweep.engine import searcher as searchers
from sweep.engine.searcher import MOST_WAITING, StopWhenOver, StudySearcher, Watch
from sweep.engine.supervisor import Supervisor
from sweep.errors import SweepEnded
from sweep.store.lease_upkeep import held
from sweep.store.leases import claim, holder_here
from sweep.store.opening import open_store
from sweep.store.patient import StoreGone
from sweep.work import queue as queues
from sweep.work.pieces import plain, trial_metrics
from sweep.work.queue import Queue
from tests import records
from tests.sweep.tiny_study import tiny

NODE = {"node": "n1", "host": "one", "gpu": None, "gpu_bytes": 0}
CPU = TrialResources(0.0, 1.0)


class Sweep:
    """A searcher over a tiny study, whose trials are what a test says."""

    def __init__(self, folder, *, base=CPU, stopping=lambda: False, scales=False, **changes):
        self.store = open_store(folder / "store")
        self.study = tiny(folder, **{"methods": {"at": {}}, "search": None, "seeds": [0, 1, 2, 3], **changes})
        self.queue = Queue(self.study, self.store)
        self.supervisor = Supervisor(self.queue, 1, lambda: {"n1"})
        by_piece = resources_by_piece(self.study, base)
        self.searcher = StudySearcher(self.supervisor, base, by_piece, stopping=stopping, scales=scales)

    def begin(self, trial):
        self.supervisor.hear(trial, NODE)

    def complete(self, trial, **changes):
        """Complete a trial as Tune does when the trainer function has returned."""
        piece = self.supervisor.attempts[trial].item.piece
        record = records.trial_record(piece.trial, config=piece.config, **changes)
        self.store.write_record(record)
        self.searcher.on_trial_complete(trial, trial_metrics(record))


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(searchers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(searchers, "slots", lambda resources: 2)
    made = []

    def make(**changes):
        made.append(Sweep(tmp_path, **changes))
        return made[-1]

    yield make
    for here in made:
        here.queue.close()


# What comes next


def test_a_trial_more_than_there_are_devices_waits_for_one(sweep):
    here = sweep()
    configs = [here.searcher.suggest(f"t{number}") for number in range(4)]
    assert [config is not None for config in configs] == [True, True, True, False]
    here.begin("t0")
    assert here.searcher.suggest("t3") is not None and here.searcher.suggest("t4") is None


def test_a_cluster_that_scales_is_told_of_everything_that_could_start(sweep):
    here = sweep(scales=True, seeds=list(range(MOST_WAITING + 9)))
    suggested = [here.searcher.suggest(f"t{number}") for number in range(MOST_WAITING + 9)]
    assert sum(config is not None for config in suggested) == MOST_WAITING


def test_a_cluster_that_scales_keeps_no_node_for_work_that_is_not_there(sweep):
    here = sweep(scales=True, seeds=[0])
    assert not here.searcher.needs_nodes()
    here.searcher.suggest("t0")
    assert here.searcher.needs_nodes()
    assert here.searcher.suggest("t1") is None  # its attacks wait for it
    here.begin("t0")
    here.complete("t0", status="collapsed")
    assert not here.searcher.needs_nodes()


def test_nothing_is_suggested_while_everything_waits_and_the_end_is_said(sweep):
    here = sweep(seeds=[0])
    assert here.searcher.suggest("t0")["stage"] == "train"
    here.begin("t0")
    assert here.searcher.suggest("t1") is None and not here.searcher.is_over()
    here.complete("t0")
    assert here.searcher.suggest("t1")["stage"] == "attack"
    here.searcher.on_trial_complete("t1", {"state": "done", "accuracy": 0.5, "images": 20})
    while isinstance(config := here.searcher.suggest("t2"), dict):
        assert config["stage"] == "attack"
        here.searcher.on_trial_complete("t2", {"state": "done", "accuracy": 0.5, "images": 20})
    assert config == Searcher.FINISHED and here.queue.complete
    assert StopWhenOver(here.searcher).stop_all()


def test_a_config_is_plain_and_says_what_its_trial_holds(sweep):
    config = sweep().searcher.suggest("t0")
    assert plain(config) and config["resources"] == {"cpu": 1.0} and config["owner"] == "t0"


def test_a_trial_that_was_stopped_is_no_result(sweep):
    here = sweep(seeds=[0])
    here.searcher.suggest("t0")
    here.begin("t0")
    here.searcher.on_trial_complete("t0", {"epoch": 1})  # Tune's last word of it
    assert here.queue.left == 1 and here.queue.next() is not None


def test_a_stop_ends_all_trials_and_suggests_no_other(sweep):
    asked = [False]
    here = sweep(stopping=lambda: asked[0])
    here.searcher.suggest("t0")
    asked[0] = True
    assert here.searcher.suggest("t1") == Searcher.FINISHED and StopWhenOver(here.searcher).stop_all()
    here.searcher.on_trial_complete("t0", {"epoch": 2})
    assert here.queue.left == 4 and not here.queue.failed


def test_a_store_that_is_gone_ends_the_sweep_in_its_own_words(sweep, monkeypatch):
    here = sweep()

    def gone(**_):
        raise StoreGone("no answer from s3://results for 10 min")

    monkeypatch.setattr(here.queue, "next", gone)
    assert here.searcher.suggest("t0") is None and here.searcher.suggest("t1") == Searcher.FINISHED
    assert isinstance(here.searcher.fault, SweepEnded) and "s3://results" in str(here.searcher.fault)
    here.searcher.on_trial_complete("t0", {"state": "done"})  # is left as it is


def test_a_mistake_of_ours_ends_the_sweep_with_its_own_error(sweep, monkeypatch):
    here = sweep()
    monkeypatch.setattr(here.queue, "next", lambda **_: {}["missing"])
    here.searcher.suggest("t0")
    assert isinstance(here.searcher.fault, KeyError) and here.searcher.is_over()


def test_tune_may_pickle_and_copy_its_parts_and_gets_nothing_of_ours(sweep):
    here = sweep()
    watch = Watch(here.searcher, 60.0, lambda: None)
    for part in (here.searcher, watch):
        assert pickle.loads(pickle.dumps(part)).__dict__ == {}


# What its trials hold

OWN = {
    "methods": {"at": {}, "sovr": {"resources": {"gpus": 1, "memory": "2GB"}}, "mart": {"resources": {"cpus": 2}}},
    "resources": {"gpus": 0.25, "cpus": 1, "evaluation": {"gpus": 0.5}},
    "seeds": [0],
}
GPU = TrialResources(0.25, 1.0)


@pytest.mark.parametrize(
    ("label", "training", "attack"),
    [
        ("at", {"gpu": 0.25, "cpu": 1.0}, {"gpu": 0.5, "cpu": 1.0}),
        ("sovr", {"gpu": 1.0, "cpu": 1.0, "memory": 2.0 * 1024**3}, {"gpu": 0.5, "cpu": 1.0, "memory": 2.0 * 1024**3}),
        ("mart", {"gpu": 0.25, "cpu": 2.0}, {"gpu": 0.5, "cpu": 2.0}),
    ],
)
def test_a_column_and_the_attacks_hold_what_the_study_says(sweep, monkeypatch, label, training, attack):
    monkeypatch.setattr(searchers, "slots", lambda resources: 99)
    here = sweep(base=GPU, **OWN)
    held = {}
    for number in range(3 * 6):
        config = here.searcher.suggest(f"t{number}")
        if not isinstance(config, dict):
            break
        held.setdefault((config["column"], config["stage"]), config["resources"])
        if config["stage"] == "train":
            here.complete(f"t{number}")
    assert held[label, "train"] == training and held[label, "attack"] == attack


def test_candidates_of_a_search_hold_what_their_column_does(sweep):
    changes = {**OWN, "search": {"sovr": {"candidates": 2}}}
    config = sweep(base=GPU, **changes).searcher.suggest("t0")
    assert (config["stage"], config["column"], config["resources"]["gpu"]) == ("search", "sovr", 1.0)


def test_the_column_of_a_search_s_choice_holds_what_the_searched_one_does(tmp_path):
    study = tiny(tmp_path, **{**OWN, "search": {"sovr": {"candidates": 2}}})
    by_piece = resources_by_piece(study, GPU)
    for stage in ("train", "attack"):
        assert by_piece["sovr_searched", stage] == by_piece["sovr", stage]


def test_ray_places_a_trial_by_the_resources_in_its_config(sweep):
    config = sweep(base=TrialResources(0.5, 2.0, 3 * 1024**3)).searcher.suggest("t0")
    (bundle,) = resources_of(config).bundles
    assert bundle == {"GPU": 0.5, "CPU": 2.0, "memory": 3.0 * 1024**3}


def test_short_pieces_share_processes_and_a_long_one_bears_its_title(sweep):
    here = sweep()
    first, second = here.searcher.suggest("t0"), here.searcher.suggest("t1")
    assert not first["own_process"] and resources_of(first) == resources_of(second)
    long = resources_of({**first, "own_process": True})
    assert long != resources_of(first) and long != resources_of({**second, "own_process": True})


def test_reused_processes_do_not_keep_a_long_piece_waiting(sweep, monkeypatch):
    here, seconds = sweep(), iter([200.0, *[1.0] * 9])
    monkeypatch.setattr(here.queue.pace, "expected_seconds", lambda item: next(seconds))
    assert here.searcher.suggest("t0")["own_process"]
    waiting = here.queue.ready()
    assert here.searcher.suggest("t1") is None and here.queue.ready() == waiting  # the short piece is put back
    here.begin("t0")
    assert not here.searcher.suggest("t2")["own_process"]


# Signs of life


@pytest.fixture
def watched(sweep, monkeypatch):
    here = sweep()
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    killed = []
    monkeypatch.setattr("ray.kill", killed.append)
    watch = Watch(here.searcher, 60.0, lambda: None)
    trials = {}

    def start(name):
        config = here.searcher.suggest(name)
        trials[name] = SimpleNamespace(trial_id=name, config=config, get_error=lambda: "ActorDiedError\nit was killed")
        watch.on_trial_start(0, [], trials[name])
        return trials[name]

    def report(name, **result):
        watch.on_trial_result(0, [], trials[name], result)

    def later(seconds, step=5.0):
        for _ in range(round(seconds / step)):
            clock.now += step
            watch.on_step_end(0, [])

    return SimpleNamespace(here=here, watch=watch, start=start, report=report, later=later, killed=killed, clock=clock)


def test_a_trial_without_a_sign_of_life_is_ended_and_counts_as_hung(watched):
    trial = watched.start("t0")
    watched.report("t0", actor="its process", **NODE)
    watched.later(55)
    watched.report("t0", steps=3)
    watched.later(55)
    assert watched.killed == []
    watched.later(10)
    assert watched.killed == ["its process"]
    watched.watch.on_trial_error(0, [], trial)
    (item,) = [item for item in watched.here.queue.items.values() if item.failures]
    assert "no progress for 1.0 minutes" in item.trouble and not item.is_taken


def test_only_the_trial_that_hangs_is_ended(watched):
    for name in ("t0", "t1"):
        watched.start(name)
        watched.report(name, actor=name, **NODE)
    for _ in range(4):
        watched.later(20)
        watched.report("t1", steps=1)
    assert watched.killed == ["t0"]


def test_a_process_may_take_longer_to_start_than_a_trial_may_be_silent(watched):
    watched.start("t0")
    watched.later(60 + searchers.START_SECONDS - 10)
    assert watched.killed == [] and not watched.watch._failures
    watched.later(20)
    assert watched.watch._failures["t0"].kind == "hung"


def test_a_driver_that_was_kept_holds_its_own_silence_against_nobody(watched):
    watched.start("t0")
    watched.report("t0", actor="its process", **NODE)
    watched.clock.now += 3600.0  # a store that did not answer, or tables
    watched.watch.on_step_end(0, [])
    watched.later(50)
    assert watched.killed == []


def test_what_a_worker_says_of_its_failure_goes_before_what_ray_says(watched):
    trial = watched.start("t0")
    watched.report("t0", **NODE)
    watched.report("t0", failure={"kind": "loss", "reason": "AttributeError: cross_entropie", "gpu_bytes": 0})
    watched.watch.on_trial_error(0, [], trial)
    (failure,) = watched.here.queue.failed
    assert failure.reason == "AttributeError: cross_entropie"


@pytest.mark.parametrize(("text", "words"), [("ray.exceptions.OutOfMemoryError: low on memory", "resources.memory")])
def test_a_process_that_took_too_much_memory_is_told_how_to_ask_for_more(watched, text, words):
    for _ in range(2):  # one retry
        trial = watched.start("t0")
        trial.get_error = lambda: text
        watched.report("t0", **NODE)
        watched.watch.on_trial_error(0, [], trial)
    assert words in watched.here.queue.failed[0].reason


def test_the_leases_of_a_process_that_died_are_free_at_once(watched):
    trial = watched.start("t0")
    watched.report("t0", **NODE)
    piece = watched.here.supervisor.attempts["t0"].item.piece
    far = holder_here(60.0, "t0").model_copy(update={"host": "far boot", "pid": 7})
    claim(watched.here.store, piece.lease, far)
    assert set(held(watched.here.store)) == {piece.lease}
    watched.watch.on_trial_error(0, [], trial)
    assert not held(watched.here.store)


def test_devices_are_counted_while_they_work(watched, monkeypatch):
    now = [5000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    first, second = watched.start("t0"), watched.start("t1")
    now[0] += 10
    assert watched.watch.device_seconds() == 20
    watched.watch.on_trial_complete(0, [], first)
    now[0] += 10
    watched.watch.on_trial_error(0, [], second)
    now[0] += 99
    assert watched.watch.device_seconds() == 30 and watched.watch.device_use(slots=2) == 0.75

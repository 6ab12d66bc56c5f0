"""The order of a sweep's work, and its claims, without a Ray cluster."""

import math

from tests.sweep.tiny_study import tiny

from sweep import engine
from sweep.cluster.devices import Resources
from sweep.cluster.tune import Queue
from sweep.store.opening import open_store
from sweep.work.work import Work

COMMON = {"store": "", "data_dir": "", "cpus": 1.0, "plugins": {}, "commit": None, "numerics": 1, "command": "sweep"}


def work(study, store, **more):
    return Work(study, store, common={**COMMON, "store": store.uri}, **more)


def drain(queue):
    jobs = []
    while (job := queue.next_job()) is not None:
        jobs.append(job)
    return jobs


def trial_record(job, status="done", **more):
    curve = [{"validation_pgd_accuracy": 0.5, "validation_clean_accuracy": 0.6}] * 3
    kept = {"best_validation": {"epoch": 0}}
    return {"trial": job.payload["trial"], "status": status, "curve": curve, "checkpoints": kept, "metrics": {}, **more}


def test_candidates_come_first_and_then_the_longest_trainings(tmp_path):
    methods = {"st": {}, "sovr": {}, "at": {}, "mart": {"train": {"epochs": 9}}}
    queue = work(tiny(tmp_path, methods=methods, seeds=[0]), open_store(tmp_path / "store"))
    jobs = drain(queue)
    assert [job.kind for job in jobs] == ["candidate"] * 4 + ["train"] * 3
    assert [job.label for job in jobs[4:]] == ["mart", "at", "st"]
    queue.close()


def test_the_next_generation_and_then_the_trainings_follow_a_search(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), store)
    for expected in (4, 2):
        jobs = drain(queue)
        assert [job.kind for job in jobs] == ["candidate"] * expected
        for job in jobs:
            store.write_trial_record(trial_record(job))
            queue.finished(job)
    (training,) = drain(queue)
    assert training.kind == "train" and training.label == "sovr"
    assert queue.chosen["sovr"] == {"M": 40, "lam": 0.4}  # all equal: the paper's value
    assert store.manifest("tiny")["cells"][0]["trial"] == training.payload["trial"]
    queue.close()


def test_what_another_driver_does_is_left_to_it_and_its_result_taken(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    first, second = work(study, store), work(study, store)
    (job,) = drain(first)
    assert drain(second) == [] and not second.complete
    store.write_trial_record(trial_record(job, status="collapsed"))
    first.finished(job)
    for waiting in second.ready:
        waiting.not_before = 0.0
    assert drain(second) == [] and second.complete and second.done["train"] == 1


def finish(queue, store, job):
    if job.kind == "train":
        store.write_trial_record(trial_record(job))
    queue.finished(job)


def test_an_idle_device_evaluates_while_trainings_run(tmp_path):
    """Through the searcher that Tune asks, on two devices: both train, one ends, and nothing else is to be trained."""
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}, "mart": {"train": {"epochs": 9}}}, search=None, seeds=[0])
    pending = work(study, store)
    queue = Queue(pending, Resources(cpus=1.0, gpus=0.0), lambda: False)
    queue._slots, queue._counted = 2, math.inf  # no Ray to ask
    assert [queue.suggest(name)["job"]["label"] for name in ("a", "b")] == ["mart", "at"]
    assert queue.suggest("c") is None
    store.write_trial_record(trial_record(queue.jobs["b"]))
    queue.on_trial_complete("b", {"state": "done"})
    started = queue.suggest("c")["job"]
    assert (started["kind"], started["label"]) == ("evaluate", "at")
    assert queue.jobs["a"].kind == "train" and queue.fault is None
    pending.close()


def test_evaluations_of_whole_columns_come_before_those_of_columns_still_in_training(tmp_path):
    store = open_store(tmp_path / "store")
    methods = {"sovr": {}, "at": {}, "mart": {}}
    queue = work(tiny(tmp_path, methods=methods, search=None, seeds=[0, 1]), store)
    jobs = {(job.label, job.seed): job for job in drain(queue)}
    for label, seed in (("sovr", 0), ("at", 0), ("mart", 0), ("at", 1)):
        finish(queue, store, jobs[label, seed])
    assert len(queue.ready) > 6
    first = [job.label for job in drain(queue)]
    count = first.count("at")
    assert first[:count] == ["at"] * count and {"sovr", "mart"} == set(first[count:])
    queue.close()


def test_a_driver_claims_only_the_evaluations_that_it_begins(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None)
    first = work(study, store)
    for job in drain(first):
        finish(first, store, job)
    one = first.next_job()
    assert set(store.claims()) == {one.claim}
    two = first.next_job()
    assert set(store.claims()) == {one.claim, two.claim}
    second = work(study, store)
    assert second.next_job().claim not in (one.claim, two.claim)
    first.close()
    second.close()


def test_a_column_is_whole_too_when_its_last_training_failed(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"sovr": {}, "at": {}}, search=None, seeds=[0, 1]), store)
    jobs = {(job.label, job.seed): job for job in drain(queue)}
    finish(queue, store, jobs["sovr", 0])
    finish(queue, store, jobs["at", 0])
    queue.gave_up(jobs["at", 1], "no memory", [])
    assert queue.next_job().label == "at"
    queue.close()
    # The same from the store: `at` has one seed stored and one failed, `sovr` one stored and one to train.
    again = work(tiny(tmp_path, methods={"sovr": {}, "at": {}}, search=None, seeds=[0, 1]), store)
    labels = [(job.kind, job.label) for job in drain(again)]
    assert labels[0] == ("train", "sovr") and labels[1] == ("evaluate", "at") and labels[-1] == ("evaluate", "sovr")
    again.close()


def test_thousands_of_pieces_that_others_finished_are_passed_over(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(1200))), store)
    for job in list(queue.ready):
        store.write_trial_record(trial_record(job, status="collapsed"))
    assert queue.next_job() is None and queue.complete and queue.done["train"] == 1200
    queue.close()


def test_tables_are_written_as_trainings_end_and_a_fault_in_them_ends_nothing(tmp_path, monkeypatch):
    queue = work(tiny(tmp_path, search=None), store := open_store(tmp_path / "store"))
    written, said = [], []
    monkeypatch.setattr(engine, "TABLE_SECONDS", 0.0)
    monkeypatch.setattr(engine, "write_tables", lambda *_, **__: written.append(1))
    tables = engine._Tables(store, tmp_path / "out", queue, said.append)
    tables.update()
    assert not written  # nothing has happened yet
    finish(queue, store, queue.next_job())
    tables.update()
    tables.update()
    assert len(written) == 1
    finish(queue, store, queue.next_job())
    monkeypatch.setattr(engine, "write_tables", lambda *_, **__: 1 / 0)
    tables.update()
    assert said == ["tables could not be written (division by zero); the sweep goes on"]
    queue.close()


def test_a_budget_holds_back_what_has_not_started(tmp_path):
    allowed = iter([True, False, False])
    study = tiny(tmp_path, methods={"at": {}}, search=None)
    queue = work(study, open_store(tmp_path / "store"), may_start=lambda: next(allowed))
    assert len(drain(queue)) == 1 and queue.left == 2
    queue.close()


def test_a_failed_trial_gets_a_record_that_says_how_to_go_on(tmp_path):
    store = open_store(tmp_path / "store")
    queue = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=[3]), store)
    (job,) = drain(queue)
    queue.gave_up(job, "out of memory", ["last line"])
    record = store.trial_record(job.payload["trial"])
    assert (record["status"], record["reason"], record["log"]) == ("failed", "out of memory", ["last line"])
    assert record["command"] == "sweep --methods at --seeds 3 --retry-failed"
    assert queue.complete and queue.failed and not store.claims()
    again = work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=[3]), store, retry_failed=True)
    assert [job.kind for job in drain(again)] == ["train"]
    again.close()


def test_a_search_that_failed_whole_is_taken_up_again_when_asked(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"sovr": {}}, seeds=[0], search={"sovr": {"candidates": 2}})
    queue = work(study, store)
    for job in drain(queue):
        queue.gave_up(job, "no memory", [])
    assert drain(queue) == [] and queue.complete and "search of sovr" in [one["title"] for one in queue.failed]
    assert drain(work(study, store)) == []
    again = work(study, store, retry_failed=True)
    assert [job.kind for job in drain(again)] == ["candidate"] * 2
    again.close()


def test_a_broken_record_is_computed_again(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    (job,) = drain(first := work(study, store))
    first.close()
    store.write(f"{job.payload['folder']}/record.json", b'{"cut off')
    (again,) = drain(second := work(study, store))
    assert again.payload["trial"] == job.payload["trial"]
    second.close()

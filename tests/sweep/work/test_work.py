"""The order of a sweep's work, and its leases, without a Ray cluster."""

from collections import Counter

import pytest

from sweep.cluster.desk import Desk
from sweep.cluster.place import Place
from sweep.store import layout
from sweep.store.holders import held
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.search import SearchRecord
from sweep.work.tasks import Task
from sweep.work.work import Work
from tests import records
from tests.sweep.tiny_study import TINY, tiny


def drain(work):
    found = []
    while (assigned := work.next_task()) is not None:
        found.append(assigned)
    return found


def stages(found):
    return [assigned.task.stage for assigned in found]


def trained(task: Task, **changes):
    return records.trial_record(task.trial, config=task.config, **changes)


def finish(work, store, assigned):
    """As a worker would; the pieces of an evaluation are not computed."""
    if assigned.task.stage in ("search", "train"):
        store.write_record(trained(assigned.task))
    work.finished(assigned)


def seeds(found):
    return {(one.task.label, one.task.config.seed): one for one in found}


def test_candidates_come_first_and_then_the_longest_trainings(tmp_path):
    methods = {"st": {}, "sovr": {}, "at": {}, "mart": {"train": {"epochs": 9}}}
    work = Work(tiny(tmp_path, methods=methods, seeds=[0]), open_store(tmp_path / "store"))
    found = drain(work)
    assert stages(found) == ["search"] * 4 + ["train"] * 4
    labels = [assigned.task.label for assigned in found[4:]]
    assert (labels[0], {*labels[1:3]}, labels[3]) == ("mart", {"sovr", "at"}, "st")
    work.close()


def search_to_its_end(work, store):
    """Both generations; the second candidate is the best. Gives the study's own training and the choice's."""
    *candidates, training = drain(work)
    best = candidates[1].task.trial
    for expected in (4, 2):
        assert stages(candidates) == ["search"] * expected
        for assigned in candidates:
            curve = [{"validation_margin_accuracy": 0.5 if assigned.task.trial == best else 0.1}] * 3
            store.write_record(trained(assigned.task, curve=curve))
            work.finished(assigned)
        candidates = drain(work)
    (other,) = candidates
    return training, other


def test_the_next_generation_and_then_the_trainings_follow_a_search(tmp_path):
    store = open_store(tmp_path / "store")
    work = Work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), store)
    training, other = search_to_its_end(work, store)
    assert training.task.stage == "train" and training.task.label == "sovr"
    assert other.task.stage == "train" and other.task.label == "sovr_searched"
    own, searched = store.manifest("tiny").cells
    assert (own.trial, searched.trial) == (training.task.trial, other.task.trial)
    assert searched.display == "SOVR, searched" and own.hyperparameters["M"] == 40
    work.close()


def test_weights_of_a_search_s_choice_are_looked_at_when_the_choice_is_known(tmp_path, capsys):
    """Damaged together with the search's record: at the start nobody knew that they belong to the study."""
    store, study = open_store(tmp_path / "store"), tiny(tmp_path, methods={"sovr": {}}, seeds=[0])
    work = Work(study, store)
    _, chosen = search_to_its_end(work, store)
    finish(work, store, chosen)
    work.close()
    store.write(layout.weights(chosen.task.trial, "best_validation"), b"not what the record says")
    (search,) = store.record_paths(SearchRecord)
    store.delete(search)
    again = Work(study, store)
    found = [one.task for one in drain(again) if one.task.label == "sovr_searched"]
    assert [(task.stage, task.trial) for task in found] == [("train", chosen.task.trial)]
    assert "sovr_searched seed 0 is trained again" in capsys.readouterr().err
    again.close()


def test_a_search_that_chooses_the_studys_own_values_trains_nothing_twice(tmp_path):
    store = open_store(tmp_path / "store")
    work = Work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), store)
    *candidates, training = drain(work)
    for _ in range(2):
        for assigned in candidates:
            finish(work, store, assigned)
        candidates = drain(work)
    assert candidates == [] and work.chosen["sovr"] == {"M": 40, "lam": 0.4}  # all equal: the study's own
    assert [cell.trial for cell in store.manifest("tiny").cells] == [training.task.trial] * 2
    finish(work, store, training)
    pieces = [one.task.name for one in drain(work)]
    assert pieces and len(set(pieces)) == len(pieces)
    work.close()


def test_only_candidates_that_go_on_are_trained_on_other_seeds(tmp_path):
    store = open_store(tmp_path / "store")
    search = {"sovr": {"candidates": 4, "seeds": [1000, 1001]}}
    work = Work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0], search=search), store)
    *candidates, _ = drain(work)
    assert [one.task.config.seed for one in candidates] == [1000] * 4
    values = {one.task.index: 0.1 * one.task.index for one in candidates}
    for assigned in candidates:
        curve = [{"validation_margin_accuracy": values[assigned.task.index]}] * 3
        store.write_record(trained(assigned.task, curve=curve))
        work.finished(assigned)
    again = drain(work)
    assert sorted((one.task.index, one.task.config.seed) for one in again) == [(0, 1001), (2, 1001), (3, 1001)]
    work.close()


def test_a_pruned_candidate_is_known_by_its_own_record_and_leaves_nothing_else(tmp_path):
    store = open_store(tmp_path / "store")
    work = Work(tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), store)
    for assigned in drain(work):
        if assigned.task.stage == "search":
            finish(work, store, assigned)
    one, other = drain(work)
    store.write(layout.trial_file(one.task.trial, layout.RESUME), b"its worker was killed before it could delete it")
    store.write_record(records.candidate_record(one.task.trial, one.task.search, curve=({},)))
    work.finished(one)
    assert store.paths(layout.trial_folder(one.task.trial)) == []
    assert store.search_record(one.task.search).candidates[one.task.index].epochs == 1
    work.interrupted(other)
    assert drain(work) == [other]
    work.close()


def test_what_another_driver_does_is_left_to_it_and_its_result_taken(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    first, second = Work(study, store), Work(study, store)
    (assigned,) = drain(first)
    assert drain(second) == [] and not second.complete
    store.write_record(trained(assigned.task, status="collapsed"))
    first.finished(assigned)
    for waiting in second.ready:
        waiting.not_before = 0.0
    second.leases.look(0.0)
    assert drain(second) == [] and second.complete and second.done["train"] == 1


def test_an_idle_device_evaluates_while_trainings_run(tmp_path):
    """At the desk where processes ask, on two devices: both train, one ends, and nothing else is to be trained."""
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}, "mart": {"train": {"epochs": 9}}}, search=None, seeds=[0])
    work = Work(study, store)
    desk = Desk(work, 3, lambda: {"n"})
    place = Place("n", "host")
    first, second = desk.order("a", place), desk.order("b", place)
    assert (first.label, second.label) == ("mart", "at")
    assert isinstance(desk.order("c", place), float)  # it waits
    store.write_record(trained(second))
    desk.ended("b", 1.0)
    started = desk.order("b", place)
    assert (started.stage, started.label) == ("evaluate", "at")
    assert desk.workers["a"].assigned.task.stage == "train"
    work.close()


def test_evaluations_of_whole_columns_come_before_those_of_columns_still_in_training(tmp_path):
    store = open_store(tmp_path / "store")
    methods = {"sovr": {}, "at": {}, "mart": {}}
    work = Work(tiny(tmp_path, methods=methods, search=None, seeds=[0, 1]), store)
    trainings = seeds(drain(work))
    for cell in (("sovr", 0), ("at", 0), ("mart", 0), ("at", 1)):
        finish(work, store, trainings[cell])
    assert work.waiting("evaluate") > 6
    first = [assigned.task.label for assigned in drain(work)]
    count = first.count("at")
    assert first[:count] == ["at"] * count and {"sovr", "mart"} == set(first[count:])
    work.close()


def test_a_driver_leases_only_the_evaluations_that_it_begins(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0, 1, 2])
    first = Work(study, store)
    for assigned in drain(first):
        finish(first, store, assigned)
    one = first.next_task().task.lease
    assert set(held(store)) == {one}
    two = first.next_task().task.lease
    assert set(held(store)) == {one, two}
    second = Work(study, store)
    assert second.next_task().task.lease not in (one, two)
    first.close()
    second.close()


def evaluations(folder, **evaluation):
    """The work on one trained trial of a study with these attacks, and its store."""
    store = open_store(folder / "store")
    study = tiny(folder, methods={"at": {}}, search=None, seeds=[0], evaluation={**TINY["evaluation"], **evaluation})
    work = Work(study, store)
    for assigned in drain(work):
        finish(work, store, assigned)
    return work, store


def compute(store, assigned):
    """The shard of a piece, on which nobody is fooled."""
    item = assigned.task.item
    verdicts = {"clean": None} if item.phase not in ("", "clean") else {}
    store.write_record(records.shard_record(item.evaluation.folder, item.first, item.last, item.phase, **verdicts))


def test_an_evaluation_goes_through_its_phases_to_its_record(tmp_path):
    work, store = evaluations(tmp_path, suite="main", shards=2, batch_size=10)
    phases = []
    while found := drain(work):
        for assigned in found:
            phases.append((assigned.task.item.evaluation.attack.name, assigned.task.item.phase))
            assert assigned.task.lease in held(store)
            compute(store, assigned)
            work.finished(assigned)
    components = ["clean", "apgd-ce", "apgd-t", "fab-t", "square"]
    assert [phase for name, phase in phases if name == "autoattack"] == [phase for phase in components for _ in "ab"]
    assert work.complete and not held(store) and work.done["evaluate"] == len(phases) == 2 * (5 + 1 + 1)
    found = list(store.records(EvaluationRecord, store.record_paths(EvaluationRecord)))
    assert [record.accuracy for record in found] == [1.0] * 3 and len(store.paths(layout.EVALUATIONS)) == 3
    assert work.seconds_left() in (None, 0.0)


def test_a_piece_that_failed_ends_its_evaluation_and_no_other(tmp_path):
    work, store = evaluations(tmp_path, suite="diagnostics", shards=2, batch_size=10, diagnostics=False)
    found = [assigned for assigned in drain(work) if assigned.task.stage == "evaluate"]
    lost = found[0].task.lease
    work.gave_up(found[0], "no memory", [])
    assert lost in held(store)  # its other piece goes on, and is there for the next run
    for assigned in found[1:]:
        compute(store, assigned)
        work.finished(assigned)
    assert lost not in held(store) and len(store.record_paths(EvaluationRecord)) == 1
    assert [failure.title for failure in work.failed] == [found[0].task.title]
    assert work.waiting("evaluate") == 0
    work.close()
    again = Work(work.study, store)
    left = [assigned.task.item for assigned in drain(again) if assigned.task.stage == "evaluate"]
    assert [(item.first, item.last) for item in left] == [(found[0].task.item.first, found[0].task.item.last)]
    again.close()


def test_diagnoses_come_last_and_are_left_out_when_they_are_stored(tmp_path):
    work, store = evaluations(tmp_path, suite="diagnostics")
    found = drain(work)
    assert stages(found) == ["evaluate"] * 2 + ["diagnose"] * 2
    work.gave_up(found[-1], "no memory", [])  # the trial itself is fine
    assert set(store.trial_states().values()) == {"done"}
    work.close()
    for assigned in found[2:]:
        diagnosis = assigned.task.diagnosis
        facts = {"checkpoint": diagnosis.checkpoint, "epsilon": diagnosis.epsilon, "images": diagnosis.images}
        store.write_record(records.diagnostics_record(diagnosis.trial, **facts))
    again = Work(work.study, store)
    assert stages(drain(again)) == ["evaluate"] * 2
    again.close()


def test_a_column_is_whole_too_when_its_last_training_failed(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"sovr": {}, "at": {}}, search=None, seeds=[0, 1])
    work = Work(study, store)
    trainings = seeds(drain(work))
    finish(work, store, trainings["sovr", 0])
    finish(work, store, trainings["at", 0])
    work.gave_up(trainings["at", 1], "no memory", [])
    assert work.next_task().task.label == "at"
    work.close()
    # The same from the store: `at` has one seed stored and one failed, `sovr` one stored and one to train.
    again = Work(study, store)
    labels = [(assigned.task.stage, assigned.task.label) for assigned in drain(again)]
    assert labels[0] == ("train", "sovr") and labels[1] == ("evaluate", "at") and labels[-1] == ("evaluate", "sovr")
    again.close()


def test_thousands_of_pieces_that_others_finished_are_passed_over(tmp_path):
    store = open_store(tmp_path / "store")
    work = Work(tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(1200))), store)
    for assigned in list(work.ready):
        store.write_record(trained(assigned.task, status="collapsed"))
    assert work.next_task() is None and work.complete and work.done["train"] == 1200
    work.close()


def test_a_budget_holds_back_what_has_not_started(tmp_path):
    allowed = iter([True, False, False])
    study = tiny(tmp_path, methods={"at": {}}, search=None)
    work = Work(study, open_store(tmp_path / "store"), may_start=lambda: next(allowed))
    assert len(drain(work)) == 1 and work.left == 2
    work.close()


def test_a_failed_trial_gets_a_record_that_says_how_to_go_on(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[3])
    work = Work(study, store, command="python -m sweep.run --methods at,st")
    (assigned,) = drain(work)
    work.gave_up(assigned, "out of memory", ["last line"])
    record = store.trial_record(assigned.task.trial)
    assert (record.status, record.reason, record.log) == ("failed", "out of memory", ("last line",))
    assert record.command == work.failed[0].command == "python -m sweep.run --methods at --seeds 3 --retry-failed"
    assert work.complete and work.failed and not held(store)
    assert [failure.stored for failure in Work(study, store).failed] == [True]
    again = Work(study, store, retry_failed=True)
    assert stages(drain(again)) == ["train"]
    again.close()


def test_a_search_that_failed_whole_is_taken_up_again_when_asked(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"sovr": {}}, seeds=[0], search={"sovr": {"candidates": 2}})
    work = Work(study, store)
    for assigned in drain(work):
        work.gave_up(assigned, "no memory", [])
    assert drain(work) == [] and work.complete and "search of sovr" in [one.title for one in work.failed]
    assert drain(Work(study, store)) == []
    again = Work(study, store, retry_failed=True)
    assert stages(drain(again)) == ["search"] * 2 + ["train"]
    again.close()


def test_a_broken_record_is_computed_again(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=[0])
    (assigned,) = drain(first := Work(study, store))
    first.close()
    store.write(layout.trial_record(assigned.task.trial), b'{"cut off')
    (again,) = drain(second := Work(study, store))
    assert again.task == assigned.task
    second.close()


@pytest.mark.parametrize(("at_once", "cut"), [(2, 1), (4, 4)])
def test_the_last_evaluations_are_cut_for_all_devices(tmp_path, at_once, cut):
    """Six are left: two devices have enough to do with whole ones, four would end up waiting for the last."""
    evaluation = {"attacks": ["autoattack"], "epsilon": "0.1", "batch_size": 5, "checkpoints": ["last"]}
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(6)), evaluation=evaluation)
    store = open_store(tmp_path / "store")
    work = Work(study, store)
    work.evaluations.at_once = at_once
    for assigned in drain(work):
        finish(work, store, assigned)
    pieces = drain(work)
    assert stages(pieces) == ["evaluate"] * len(pieces)
    assert {*Counter(one.task.trial for one in pieces).values()} == {cut} and len(pieces) == 6 * cut
    work.close()


def drivers_of(study, store, count):
    """They know of each other from the start."""
    found = [Work(study, store) for _ in range(count)]
    for work in found:
        assert work.leases.sign.name
    return found


def test_drivers_begin_at_different_trials_and_leave_nothing_undone(tmp_path):
    store = open_store(tmp_path / "store")
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(24)))
    first, second = drivers_of(study, store, 2)
    mine, theirs = first.next_task(), second.next_task()
    assert mine.rank == theirs.rank == 0 and mine.task.trial != theirs.task.trial
    ranks = {one.task.trial: (one.rank, 0.0) for one in first.ready} | {mine.task.trial: (0.0, 0.0)}
    parts = [{one.task.trial for one in (*work.ready, *work.running) if not one.rank} for work in (first, second)]
    assert parts[0] | parts[1] == set(ranks) and not parts[0] & parts[1]
    trained_here = drain(first)  # its own part, and then what the other has not begun of its part
    assert len(trained_here) == 22 and drain(second) == []
    for work, found in ((first, [mine, *trained_here]), (second, [theirs])):
        for assigned in found:
            store.write_record(trained(assigned.task, status="collapsed"))
            work.finished(assigned)
    for work in (first, second):
        work.leases.look(0.0)
        for waiting in work.ready:
            waiting.not_before = 0.0
        assert drain(work) == [] and work.complete and work.done["train"] == 24
        work.close()
    assert not held(store)


def test_what_another_driver_trained_is_evaluated_here_once_one_is_done_oneself(tmp_path):
    """Of its trainings that failed or collapsed nothing is evaluated, though nobody reads a record before its turn."""
    store = open_store(tmp_path / "store")
    evaluation = {"attacks": ["clean"], "epsilon": "0.1", "checkpoints": ["last"]}
    study = tiny(tmp_path, methods={"at": {}}, search=None, seeds=list(range(12)), evaluation=evaluation)
    first, second = drivers_of(study, store, 2)
    second.next_task()
    part = [one for one in second.ready if one.rank]  # the first driver's
    for number, assigned in enumerate(part):
        store.write_record(trained(assigned.task, status="collapsed" if number % 2 else "done"))
    own = drain(second)
    pieces = [one for one in own if one.task.stage == "evaluate"]
    assert {one.task.trial for one in pieces} == {one.task.trial for one in part[::2]}
    assert {one.task.trial for one in own if one.task.stage == "train"}.isdisjoint(one.task.trial for one in part)
    first.close()
    second.close()

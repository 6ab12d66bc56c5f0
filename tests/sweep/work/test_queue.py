"""What a sweep still has to do and in which order, and what it leaves to other drivers, without Ray."""

import random
from collections import Counter
from contextlib import contextmanager

import pytest

from sweep.search.pruning import judged
from sweep.store import layout
from sweep.store.leases import claim, holder_here, take
from sweep.store.opening import open_store
from sweep.store.records.search import SearchRecord
from sweep.work import queue as queues
from sweep.work.pieces import Candidate, Training, evaluation_metrics, trial_metrics
from sweep.work.queue import Queue
from tests import records
from tests.sweep.tiny_study import TINY, tiny

CLEAN = {"attacks": ["clean"], "epsilon": "0.1", "images": 20}
ONE = {"methods": {"at": {}}, "search": None, "seeds": [0]}


@pytest.fixture(autouse=True)
def fresh_leases(monkeypatch):
    """Look at the leases of other drivers whenever a piece is wanted, and give an attack more workers at once."""
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(queues, "HELP_SECONDS", -1.0)


@pytest.fixture
def opened(tmp_path):
    """Makes the queue of a tiny study with some changes, and closes it."""
    made = []

    def make(*, command="", retry_failed=False, may_start=lambda: True, **changes):
        study = tiny(tmp_path, **changes)
        store = open_store(tmp_path / "store")
        made.append(Queue(study, store, command=command, retry_failed=retry_failed, may_start=may_start))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


@contextmanager
def another_driver(queue, lease):
    """Another driver's worker holds this lease inside."""
    with take(queue.store, lease, owner="its trial"):
        yield


def drain(queue, **named):
    items = []
    while (item := queue.next(**named)) is not None:
        items.append(item)
    return items


def missing(queue):
    """Return what is to be computed: workers return at once with what is stored already."""
    items = []
    while (item := queue.next()) is not None:
        metrics = item.piece.stored(queue.store)
        if metrics is None:
            items.append(item)
        else:
            queue.finished(item, metrics)
    return items


def stages(items):
    return [item.piece.stage for item in items]


def labels(items):
    return [item.piece.label for item in items]


def finish(queue, item, **changes):
    """As a worker would; models and verdicts are made up."""
    piece = item.piece
    if isinstance(piece, Training):
        record = records.trial_record(piece.trial, config=piece.config, **changes)
        metrics = trial_metrics(record)
    else:
        evaluation = piece.evaluation
        record = records.evaluation_record(piece.trial, evaluation.attack, checkpoint=evaluation.checkpoint)
        metrics = evaluation_metrics(record)
    queue.store.write_record(record)
    queue.finished(item, metrics)


def by_cell(items):
    return {(item.piece.label, item.piece.config.seed): item for item in items}


# In which order


def test_candidates_come_first_and_then_the_longest_trainings(opened):
    methods = {"st": {}, "sovr": {}, "at": {}, "mart": {"train": {"epochs": 9}}}
    items = drain(opened(methods=methods, seeds=[0]))
    assert stages(items) == ["search"] * 4 + ["train"] * 4
    first, *middle, last = labels(items[4:])
    assert (first, {*middle}, last) == ("mart", {"sovr", "at"}, "st")


def test_a_new_generation_of_a_search_goes_before_trainings_that_wait(opened):
    queue = opened(methods={"sovr": {}, "at": {}}, seeds=[0, 1, 2])
    first = [queue.next() for _ in range(4)]
    assert stages(first) == ["search"] * 4
    for item in first:
        finish(queue, item)
    assert stages(queue.next() for _ in range(3)) == ["search", "search", "train"]


def test_an_idle_device_attacks_while_trainings_run(opened):
    queue = opened(methods={"at": {}, "mart": {"train": {"epochs": 9}}}, search=None, seeds=[0])
    longer, shorter = drain(queue)
    assert (longer.piece.label, shorter.piece.label) == ("mart", "at") and queue.next() is None
    finish(queue, shorter)
    assert {(item.piece.stage, item.piece.label) for item in drain(queue)} == {("attack", "at")}
    assert longer.is_taken and not queue.complete


def test_attacks_on_complete_columns_come_before_those_of_columns_in_training(opened):
    queue = opened(methods={"sovr": {}, "at": {}, "mart": {}}, search=None, seeds=[0, 1])
    trainings = by_cell(drain(queue))
    for cell in (("sovr", 0), ("at", 0), ("mart", 0), ("at", 1)):
        finish(queue, trainings[cell])
    order = labels(drain(queue))
    assert order[: 2 * 5] == ["at"] * 2 * 5 and {*order[2 * 5 :]} == {"sovr", "mart"}


def test_a_column_is_complete_too_when_its_last_training_failed(opened):
    changes = {"methods": {"sovr": {}, "at": {}}, "search": None, "seeds": [0, 1]}
    queue = opened(**changes)
    trainings = by_cell(drain(queue))
    finish(queue, trainings["sovr", 0])
    finish(queue, trainings["at", 0])
    queue.gave_up(trainings["at", 1], "no memory", [])
    assert queue.next().piece.label == "at"
    # The same from the store: `at` has one seed stored and one failed, `sovr` one stored and one to train.
    order = [(item.piece.stage, item.piece.label) for item in drain(opened(**changes))]
    assert order[0] == ("train", "sovr") and order[1] == ("attack", "at") and order[-1] == ("attack", "sovr")


def test_diagnoses_come_last_and_are_left_out_when_they_are_stored(opened):
    changes = {**ONE, "evaluation": {**TINY["evaluation"], "suite": "diagnostics"}}
    queue = opened(**changes)
    finish(queue, queue.next())
    items = drain(queue)
    assert stages(items) == ["attack"] * 2 + ["diagnose"] * 2
    for item in items[2:]:
        wanted = item.piece.diagnosis
        facts = {"checkpoint": wanted.checkpoint, "epsilon": wanted.epsilon, "images": wanted.images}
        queue.store.write_record(records.diagnostics_record(wanted.trial, **facts))
    assert stages(drain(opened(**changes))) == ["attack"] * 2


def test_a_budget_holds_back_what_has_not_started(opened):
    allowed = iter([True, False, False])
    queue = opened(methods={"at": {}}, search=None, may_start=lambda: next(allowed))
    assert len(drain(queue)) == 1 and queue.left == 2


# What follows from what


def search_to_its_end(queue):
    """Do both generations; the second candidate is the best. Return the study's own training and the choice's."""
    *candidates, training = drain(queue)
    best = candidates[1].piece.trial
    for expected in (4, 2):
        assert stages(candidates) == ["search"] * expected
        for item in candidates:
            finish(queue, item, curve=[{"validation_margin_accuracy": 0.5 if item.piece.trial == best else 0.1}] * 3)
        candidates = drain(queue)
    (chosen,) = candidates
    return training, chosen


def test_the_next_generation_and_then_the_trainings_follow_a_search(opened):
    queue = opened(methods={"sovr": {}}, seeds=[0])
    training, chosen = search_to_its_end(queue)
    assert (training.piece.stage, training.piece.label) == ("train", "sovr")
    assert (chosen.piece.stage, chosen.piece.label) == ("train", "sovr_searched")
    own, searched = queue.store.manifest("tiny").cells
    assert (own.trial, searched.trial) == (training.piece.trial, chosen.piece.trial)
    assert searched.display == "SOVR, searched" and own.hyperparameters["M"] == 40


def test_weights_of_a_search_s_choice_are_looked_at_when_the_choice_is_known(opened, capsys):
    """Damaged together with the search's record: at the start nobody knew that they belong to the study."""
    changes = {"methods": {"sovr": {}}, "seeds": [0]}
    queue = opened(**changes)
    _, chosen = search_to_its_end(queue)
    finish(queue, chosen)
    queue.close()
    store = queue.store
    store.write(layout.weights(chosen.piece.trial, "best_validation"), b"not what the record says")
    (search,) = store.record_paths(SearchRecord)
    store.delete(search)
    pieces = [item.piece for item in missing(opened(**changes)) if item.piece.label == "sovr_searched"]
    assert [(piece.stage, piece.trial) for piece in pieces] == [("train", chosen.piece.trial)]
    assert "sovr_searched seed 0 is trained again" in capsys.readouterr().err


def test_a_search_that_chooses_the_study_s_own_values_trains_nothing_twice(opened):
    queue = opened(methods={"sovr": {}}, seeds=[0])
    *candidates, training = drain(queue)
    for _ in range(2):
        for item in candidates:
            finish(queue, item)
        candidates = drain(queue)
    assert candidates == [] and queue.chosen["sovr"] == {"M": 40, "lam": 0.4}  # all equal: the study's own
    assert [cell.trial for cell in queue.store.manifest("tiny").cells] == [training.piece.trial] * 2
    finish(queue, training)
    names = [item.piece.name for item in drain(queue)]
    assert names and len(set(names)) == len(names)


def test_only_candidates_that_go_on_are_trained_on_other_seeds(opened):
    queue = opened(methods={"sovr": {}}, seeds=[0], search={"sovr": {"candidates": 4, "seeds": [1000, 1001]}})
    *candidates, _ = drain(queue)
    assert [item.piece.config.seed for item in candidates] == [1000] * 4
    for item in candidates:
        finish(queue, item, curve=[{"validation_margin_accuracy": 0.1 * item.piece.index}] * 3)
    again = drain(queue)
    seeds = sorted((item.piece.index, item.piece.config.seed) for item in again)
    assert seeds == [(0, 1001), (2, 1001), (3, 1001)]


def test_a_pruned_candidate_is_known_by_its_own_record_and_leaves_nothing_else(opened):
    queue = opened(methods={"sovr": {}}, seeds=[0])
    for item in drain(queue):
        if item.piece.stage == "search":
            finish(queue, item)
    pruned, other = drain(queue)
    piece, store = pruned.piece, queue.store
    store.write(layout.trial_file(piece.trial, layout.RESUME), b"its worker was killed before it could delete it")
    store.write_record(records.candidate_record(piece.trial, piece.search, curve=({},)))
    queue.finished(pruned, piece.stored(store))
    assert store.paths(layout.trial_folder(piece.trial)) == []
    assert store.search_record(piece.search).candidates[piece.index].epochs == 1
    queue.again(other)
    assert drain(queue) == [other]


def test_two_searches_that_propose_the_same_training_both_get_its_result(opened):
    """Two columns of one method begin with the same candidates."""
    search = {label: {"candidates": 2, "seed": 1000} for label in ("sovr", "again")}
    queue = opened(methods={"sovr": {}, "again": {"method": "sovr"}}, seeds=[0], search=search)
    trained = Counter()
    for _ in range(12):
        items = missing(queue)
        leases = [item.piece.lease for item in items if item.piece.is_leased]
        assert len(set(leases)) == len(leases)  # one after the other
        for item in items:
            trained[item.piece.lease] += item.piece.stage in ("search", "train")
            finish(queue, item)
    assert queue.complete and queue.chosen.keys() == {"sovr", "again"}
    assert max(trained.values()) == 1 and queue.done["search"] == 4


def test_an_attack_with_shards_is_queued_in_as_many_parts(opened):
    queue = opened(**ONE, evaluation={**CLEAN, "shards": 4, "batch_size": 5})
    finish(queue, queue.next())
    parts = drain(queue)
    assert [(item.piece.part, item.piece.parts) for item in parts] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len({item.piece.lease for item in parts}) == 1


def test_an_attack_that_is_done_takes_the_parts_that_wait_with_it(opened):
    queue = opened(**ONE, evaluation={**CLEAN, "shards": 4, "batch_size": 5})
    finish(queue, queue.next())
    first, second = queue.next(), queue.next()
    finish(queue, first)
    assert queue.next() is None and queue.left == 1  # the second works on what is left
    finish(queue, second)
    assert queue.complete and queue.done["attack"] == 1


def test_accuracies_and_trainings_near_chance_are_noted(opened):
    queue = opened(methods={"at": {}, "sovr": {}}, search=None, seeds=[0, 1])
    trainings = by_cell(drain(queue))
    for cell, robust, clean in ((("at", 0), 0.4, 0.9), (("at", 1), 0.5, 0.9), (("sovr", 0), 0.1, 0.12)):
        accuracies = {
            "best_validation_validation_pgd_accuracy": robust,
            "best_validation_validation_clean_accuracy": clean,
        }
        finish(queue, trainings[cell], metrics=accuracies)
    assert queue.best == {"at": 0.5, "sovr": 0.1} and queue.near_chance == ["sovr seed 0"]


# Attempts that end badly


def test_a_failed_training_gets_a_record_that_says_how_to_go_on(opened):
    changes = {"methods": {"at": {}}, "search": None, "seeds": [3]}
    queue = opened(command="python -m sweep.run --methods at,st", **changes)
    (item,) = drain(queue)
    queue.gave_up(item, "out of memory", ["last line"])
    record = queue.store.trial_record(item.piece.trial)
    assert (record.status, record.reason, record.log) == ("failed", "out of memory", ("last line",))
    assert record.command == queue.failed[0].command == "python -m sweep.run --methods at --seeds 3 --retry-failed"
    assert queue.complete and queue.failed
    assert [failure.stored for failure in opened(**changes).failed] == [True]
    assert stages(drain(opened(retry_failed=True, **changes))) == ["train"]


def test_an_attack_that_failed_ends_no_other_and_is_tried_by_the_next_run(opened):
    queue = opened(**ONE)
    finish(queue, queue.next())
    lost, *others = drain(queue)
    queue.gave_up(lost, "no memory", [])
    for item in others:
        finish(queue, item)
    assert queue.complete and [failure.title for failure in queue.failed] == [lost.piece.title]
    assert set(queue.store.trial_states().values()) == {"done"}  # the trial itself is fine
    assert [item.piece for item in drain(opened(**ONE))] == [lost.piece]


def test_what_no_machine_here_can_do_is_left_without_a_record(opened):
    queue = opened(**ONE)
    item = queue.next()
    queue.left_alone(item, "No space left on device", [])
    assert queue.complete and queue.failed[0].reason == "No space left on device"
    assert queue.store.trial_record(item.piece.trial) is None
    assert stages(drain(opened(**ONE))) == ["train"]


def test_a_piece_that_a_node_cannot_do_lets_one_other_go_first(opened):
    queue = opened(methods={"at": {}}, search=None, seeds=[0, 1, 2])
    first = queue.next()
    queue.elsewhere(first)
    second = queue.next()
    assert second is not first and queue.next() is first
    queue.elsewhere(first)
    (third,) = {queue.next(), queue.next()} - {first}
    assert third is not second and queue.next() is None
    queue.elsewhere(first)
    assert queue.next() is first  # nothing else waits


def test_a_search_is_left_with_a_candidate_that_no_machine_here_can_train(opened):
    """A choice never depends on machines: the search waits for a run that can."""
    changes = {"methods": {"sovr": {}}, "seeds": [0], "search": {"sovr": {"candidates": 2}}}
    queue = opened(**changes)
    candidate, other, training = drain(queue)
    queue.left_alone(candidate, "No space left on device", [])
    finish(queue, other)
    finish(queue, training)
    assert "search" not in stages(drain(queue)) and "sovr" not in queue.chosen
    queue.close()
    again = [item.piece for item in drain(opened(**changes)) if item.piece.stage == "search"]
    assert candidate.piece in again


def test_a_search_that_failed_whole_is_taken_up_again_when_asked(opened):
    changes = {"methods": {"sovr": {}}, "seeds": [0], "search": {"sovr": {"candidates": 2}}}
    queue = opened(**changes)
    for item in drain(queue):
        queue.gave_up(item, "no memory", [])
    assert drain(queue) == [] and queue.complete
    assert "search of sovr" in [failure.title for failure in queue.failed]
    assert drain(opened(**changes)) == []
    assert stages(drain(opened(retry_failed=True, **changes))) == ["search"] * 2 + ["train"]


def test_a_broken_record_is_computed_again(opened):
    first = opened(**ONE)
    (item,) = drain(first)
    first.store.write(layout.trial_record(item.piece.trial), b'{"cut off')
    (again,) = drain(opened(**ONE))
    assert again.piece == item.piece


# What other drivers do


def test_a_piece_of_another_driver_is_not_started_and_taken_up_when_given_back(opened):
    queue = opened(methods={"at": {}}, search=None, seeds=[0, 1])
    theirs, ours = (Training("at", cell.config, cell.trial) for cell in queue.cells.values())
    with another_driver(queue, theirs.lease):
        assert [item.piece for item in drain(queue)] == [ours]
        assert queue.next() is None and not queue.complete
    assert [item.piece for item in drain(queue)] == [theirs]


def test_what_another_driver_has_done_is_done(opened):
    queue = opened(**ONE)
    (cell,) = queue.cells.values()
    with another_driver(queue, layout.trial_lease(cell.trial)):
        assert drain(queue) == []
        queue.store.write_record(records.trial_record(cell.trial, config=cell.config))
    assert set(stages(drain(queue))) == {"attack"} and queue.done["train"] == 1


def test_a_piece_that_a_worker_found_taken_waits_for_its_lease(opened):
    queue = opened(**ONE)
    item = queue.next()
    with another_driver(queue, item.piece.lease):
        queue.refused(item)
        assert queue.next() is None and queue.left == 1
    assert queue.next() is item


def test_an_attack_of_which_another_driver_has_a_chunk_may_be_shared(opened):
    queue = opened(**ONE, evaluation=CLEAN)
    finish(queue, queue.next())
    (lease,) = {item.piece.lease for item in queue.items.values()}
    with another_driver(queue, f"{lease}~clean-0"):
        item = queue.next()
        assert item is not None
        queue.shared(item)  # nothing of it was free
        assert queue.next() is None and not queue.complete
    assert queue.next().piece.lease == lease


def test_a_sweep_that_waits_says_for_whom_and_not_for_itself(opened):
    queue = opened(methods={"at": {}, "sovr": {}}, seeds=[0])
    theirs, *others = sorted(drain(queue), key=lambda item: item.piece.label)
    for item in others:  # among them candidates of a search, which this driver leads under a lease of its own
        queue.left_alone(item, "no disk", [])
    elsewhere = holder_here(60.0, "their trial").model_copy(update={"host": "far boot", "pid": 7})
    claim(queue.store, theirs.piece.lease, elsewhere)
    assert queue.waits_for() == []
    queue.refused(theirs)
    assert queue.next() is None and queue.waits_for() == ["process 7 on far"]


# Attacks that idle devices share


def last_attack(opened, **evaluation):
    """Return a queue whose only piece is an attack that a worker has begun."""
    queue = opened(**ONE, evaluation={**CLEAN, "attacks": ["pgd-20"], **evaluation})
    finish(queue, queue.next())
    item = queue.next()
    queue.begin(item)
    return queue, item


def test_idle_devices_help_with_the_last_attack_as_far_as_it_has_free_chunks(opened):
    queue, item = last_attack(opened)
    assert queue.next(helpers=4) is None  # nothing is known of its chunks yet
    item.free = 2
    helpers = drain(queue, helpers=4)
    assert [helper.piece.part for helper in helpers] == [2, 3]
    assert {helper.piece.lease for helper in helpers} == {item.piece.lease}
    item.free = 2  # as it says after every batch: the helpers have them
    assert drain(queue, helpers=4) == []


def test_no_attack_gets_more_workers_than_there_are_devices(opened):
    queue, item = last_attack(opened)
    item.free = 99
    assert len(drain(queue, helpers=3)) == 2 and drain(queue, helpers=1) == []


def test_an_attack_gets_no_helper_while_anything_else_waits(opened):
    queue = opened(**ONE)
    finish(queue, queue.next())
    first = queue.next()
    queue.begin(first)
    first.free = 9
    assert all(item.piece.lease != first.piece.lease for item in (queue.next(helpers=9) for _ in range(4)))
    assert queue.next(helpers=9).piece.lease == first.piece.lease


def test_a_helper_that_leaves_keeps_nobody_waiting(opened):
    queue, item = last_attack(opened)
    item.free = 1
    (helper,) = drain(queue, helpers=2)
    queue.shared(helper)
    assert not queue.complete and queue.next(helpers=2) is None
    finish(queue, item)
    assert queue.complete and queue.done["attack"] == 1


def test_an_attack_whose_workers_have_all_left_is_looked_at_once_more(opened):
    """Each of them found chunks of the others: one that died meanwhile must not leave the rest to nobody."""
    queue, item = last_attack(opened)
    item.free = 1
    (helper,) = drain(queue, helpers=2)
    queue.shared(item)
    queue.shared(helper)
    again = queue.next()
    assert again.piece.lease == item.piece.lease and (again.piece.part, again.piece.parts) == (1, 1)


# Searches do not depend on who is first


def value_of(trial, epoch):
    """What a training reaches: by its name alone, as a real one does."""
    return int(trial[:6], 16) / 0xFFFFFF * (1 + 0.1 * epoch)


def searched(queue, order, *, kill_after=None):
    """Do a search in some order, as workers would who hold several candidates at once; return its record.

    With `kill_after` the driver ends after so many results, with others under way.
    """
    running, results = [], 0
    while True:
        running += [item for item in drain(queue) if isinstance(item.piece, Candidate)]
        if "sovr" in queue.chosen:
            break
        item = running.pop(order.randrange(len(running)))
        piece = item.piece
        stored = piece.stored(queue.store)
        if stored is not None:
            queue.finished(item, stored)
            continue
        curve = [
            {"validation_margin_accuracy": value_of(piece.trial, epoch), "validation_clean_accuracy": 0.9}
            for epoch in range(piece.epochs)
        ]
        length, is_pruned = judged([row["validation_margin_accuracy"] for row in curve], piece.cut_offs)
        if is_pruned:
            queue.store.write_record(records.candidate_record(piece.trial, piece.search, curve=curve[:length]))
        else:
            queue.store.write_record(records.trial_record(piece.trial, config=piece.config, curve=curve))
        results += 1
        if results == kill_after:
            return None
        queue.finished(item, piece.stored(queue.store))
    (path,) = queue.store.record_paths(SearchRecord)
    return queue.store.usable(SearchRecord, path)


SEARCH = {
    "methods": {"sovr": {}},
    "seeds": [0],
    "train": {**TINY["train"], "epochs": 8},
    "search": {"sovr": {"candidates": 13, "seeds": [1000, 1001], "sampler": "tpe"}},
}


@pytest.mark.timeout(300)
def test_a_search_comes_out_the_same_in_any_order_of_completion_and_after_any_kill(tmp_path):
    def run(number, order, kills=()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for kill_after in (*kills, None):
            queue = Queue(tiny(folder, **SEARCH), open_store(folder / "store"))
            record = searched(queue, order, kill_after=kill_after)
            queue.close()
        return record

    expected = run(0, random.Random(0))
    states = Counter(candidate.state for candidate in expected.candidates)
    assert states["done"] and states["pruned"] and len(expected.candidates) == 13
    for number, kills in enumerate([(), (), (1, 3), (2, 6, 1)], start=1):
        record = run(number, random.Random(number), kills)
        assert (record.candidates, record.chosen, record.reason) == (
            expected.candidates,
            expected.chosen,
            expected.reason,
        )

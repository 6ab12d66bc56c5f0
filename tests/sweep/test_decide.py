"""Seeds until a claim is decided: which are asked for, when it ends, and what is stored; the trainings are made up."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reports.analysis.claims.sources import Ours
from reports.analysis.results import Results
from reports.papers import load as load_paper
from reports.tables.table import Key
from sweep import deciding
from sweep.claim import Rules, strictly_decided
from sweep.deciding import Budget, ask, ask_paper, seed_order, settle
from sweep.engine.options import RunOptions
from sweep.errors import UserError
from sweep.store import usage
from sweep.store.manifests import write_manifest
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.store.records.decision import DecisionRecord
from sweep.store.verdicts import pack
from sweep.studies.options import StudyOptions
from sweep.trials import cells as planned
from sweep.trials.cost import budget_hours
from sweep.work.summary import Failure, Summary
from tests.chaos import commands
from tests.chaos.primitives import BEFORE, Countdown
from tests.patience import patience
from tests.sweep import stored
from tests.sweep.tiny_study import tiny

PAPER = load_paper()
IMAGES = 1000
OUTCOME = {"first", "second", "measure", "seeds", "trials", "differences", "verdict", "estimate", "e_value"}


class Engine:
    """In place of the real one: writes what trainings and attacks would leave, with accuracies drawn around a mean."""

    def __init__(self, means, spread=0.01, hours=0.25, collapsed=(), failing=False):
        self.means, self.spread, self.hours, self.collapsed, self.failing = means, spread, hours, collapsed, failing
        self.computed, self.calls = [], []

    def __call__(self, study, store, options):
        self.calls.append((study.labels, study.seeds, options))
        if self.failing:
            return Summary(study.name, complete=False, failed=[Failure("at seed 0", "0" * 16, "no memory")])
        cells, busy = planned.stored_cells(study, store), 0.0
        limit = usage.Budget(store, study.name, budget_hours(options.budget), lambda: busy * usage.HOUR)
        for cell in cells:
            if store.trial_record(cell.trial) is None and limit.may_start():
                busy += self.hours
                self.computed.append((cell.label, cell.seed))
                status = "collapsed" if (cell.label, cell.seed) in self.collapsed else "done"
                stored.write_trial(store, cell, status)
                noise = np.random.default_rng([cell.seed, len(cell.label)]).normal(0, self.spread)
                right = round(IMAGES * (self.means[cell.label] + noise))
                for number in range(len(planned.evaluation_attacks(study)) if status == "done" else 0):
                    verdicts = pack(np.arange(IMAGES) < right)
                    made = stored.evaluation(
                        study, cell, attack=number, images=IMAGES, verdicts=verdicts, accuracy=right / IMAGES
                    )
                    store.write_record(made)
        write_manifest(store, planned.manifest(study, cells))
        limit.write()
        missing = [cell for cell in cells if store.trial_record(cell.trial) is None]
        return Summary(study.name, complete=not missing, device_hours=busy, budget_reached=bool(missing))


@pytest.fixture
def setting(tmp_path, monkeypatch):
    tiny(tmp_path, search=None, methods={"st": {}, "at": {}, "sovr": {}, "again": {"method": "at"}})
    store = open_store(tmp_path / "store")
    said: list[str] = []

    def run(engine, claim, budget=None, rules=None, measure=None):
        monkeypatch.setattr(deciding, "run_study", engine)
        rules = rules or Rules()
        one = ask(StudyOptions(str(tmp_path / "tiny.yaml")), claim, measure, rules)
        well = settle([one], store, RunOptions(), budget or Budget(None), rules, PAPER, said.append)
        return one, well

    return store, run, said


def decisions(store):
    return list(store.records(DecisionRecord, store.record_paths(DecisionRecord)))


def test_a_clear_claim_is_decided_after_four_seeds_and_stored(setting):
    store, run, said = setting
    engine = Engine({"st": 0.1, "at": 0.6})
    one, well = run(engine, "st < at")
    assert well and one.seen.verdict == "holds" and one.seen.n == 4
    assert sorted(engine.computed) == sorted((label, seed) for label in ("st", "at") for seed in range(4))
    (record,) = decisions(store)
    assert record.verdict == "holds" and record.seeds == (0, 1, 2, 3) and record.high < 0
    assert [len(seeds) for _, seeds, _ in engine.calls] == [2, 4]
    assert "decided after 4 seeds (sequential)" in said[-1] and "to go" in said[0]
    command = engine.calls[0][2].command
    assert command.startswith("python -m sweep.run --study") and "--methods st,at --seeds 0,1" in command


def test_the_same_command_again_computes_nothing_and_a_margin_uses_the_same_trials(setting):
    store, run, said = setting
    run(Engine({"st": 0.1, "at": 0.6}), "st < at")
    engine = Engine({})
    run(engine, "st < at")
    one, _ = run(engine, "at > st + 40")
    refuted, _ = run(engine, "at > st + 60")
    assert engine.calls == [] and one.seen.verdict == "holds" and refuted.seen.verdict == "does not hold"
    assert len(decisions(store)) == 3


def test_an_unclear_claim_ends_with_the_seeds_or_with_the_budget(setting):
    store, run, said = setting
    engine = Engine({"sovr": 0.6, "at": 0.6})
    one, well = run(engine, "sovr > at", rules=Rules(max_seeds=6))
    assert well and one.seen.verdict == "undecided" and one.seen.n == 6 and "--max-seeds 6" in said[-1]
    engine = Engine({"sovr": 0.6, "at": 0.6})
    one, well = run(engine, "sovr > at", budget=Budget(1.8))
    assert well and len(one.values.seeds) == 10 and "used up" in said[-1]
    (record,) = decisions(store)
    assert len(record.seeds) == 10 and record.verdict == "undecided"


def test_a_budget_is_what_this_command_may_spend_and_what_it_says_it_used(setting):
    store, run, said = setting
    for _ in range(2):  # the same command again may spend as much again
        before, budget = usage.used_hours(usage.usages(store, "tiny")), Budget(2.1)
        engine = Engine({"sovr": 0.6, "at": 0.6})
        run(engine, "sovr > at", budget=budget)
        spent = usage.used_hours(usage.usages(store, "tiny")) - before
        assert len(engine.computed) == 9 and budget.used == pytest.approx(2.25) == spent
        assert said[-1].startswith("the budget of 2.1 device-hours is used up (2.25 used)")
    empty = Budget(0.0)
    run(engine, "sovr > at", budget=empty)
    assert len(engine.computed) == 9 and empty.used == 0


def test_added_seeds_are_marked_before_they_are_there_and_no_test_of_the_tables_takes_them(setting, tmp_path):
    store, run, _ = setting
    options, engine = StudyOptions(str(tmp_path / "tiny.yaml")), Engine({"st": 0.59, "at": 0.6})
    own = options.load().seeds
    engine(replace(options, methods="st,at").load(), store, RunOptions())

    class Killed(Engine):
        def __call__(self, study, store, options):
            super().__call__(study, store, options)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Killed(engine.means), "st < at")
    added = tuple(range(len(own), len(own) + 2))
    (record,) = decisions(store)
    results = Results.read(store)
    cell = results.cell(Key("tiny", "st", record.measure))
    assert record.added == {"st": added, "at": added} and len(record.seeds) < len(own) + 2
    assert cell.seeds == own and cell.added == 2 and Ours(results).sample(cell.key).n == len(own)


def test_seeds_that_somebody_ran_by_their_number_are_not_added_ones(setting, tmp_path):
    store, run, _ = setting
    options, engine = StudyOptions(str(tmp_path / "tiny.yaml")), Engine({"st": 0.1, "at": 0.6})
    engine(replace(options, methods="at", seeds="0-9").load(), store, RunOptions())
    run(engine, "st < at")
    (record,) = decisions(store)
    assert record.added["at"] == () and record.added["st"]
    run(engine, "at > st + 40")  # whoever looks next finds the first one's seeds in the store
    assert {one.added["st"] for one in decisions(store)} == {record.added["st"]}


def test_nothing_is_decided_while_a_seed_collapsed(setting):
    store, run, said = setting
    one, well = run(Engine({"st": 0.1, "at": 0.6}, collapsed={("at", 2)}), "st < at")
    (record,) = decisions(store)
    assert well and record.verdict == "undecided" and record.left_out == (2,) and "collapsed or failed" in said[-1]


def test_a_lower_limit_of_seeds_takes_nothing_back(setting):
    store, run, _ = setting
    run(Engine({"st": 0.1, "at": 0.6}), "st < at")
    (before,) = decisions(store)
    assert before.verdict == "holds" and before.seeds == (0, 1, 2, 3)
    run(Engine({}), "st < at", rules=Rules(max_seeds=3))
    assert decisions(store) == [before]


def test_a_claim_about_a_method_does_not_search_for_it_nor_train_its_searched_column(setting, tmp_path):
    _, run, _ = setting
    tiny(tmp_path, methods={"st": {}, "at": {}, "sovr": {}}, search={"sovr": {"candidates": 2, "seeds": [2]}})
    engine = Engine({"st": 0.1, "sovr": 0.6})
    one, _ = run(engine, "st < sovr")
    assert one.seen.verdict == "holds" and {seed for _, seed in engine.computed} == {0, 1, 3, 4}
    assert {label for label, _ in engine.computed} == {"st", "sovr"}
    assert "search.sovr.pin=true" in engine.calls[0][2].command


def test_a_stricter_level_is_not_reached_over_a_lost_seed(setting, tmp_path):
    store, run, _ = setting
    engine = Engine({"st": 0.1, "at": 0.6}, collapsed={("at", 4)})
    engine(StudyOptions(str(tmp_path / "tiny.yaml"), methods="st,at", seeds="0-9").load(), store, RunOptions())
    one, _ = run(engine, "st < at")
    assert one.seen.verdict == "holds" and one.seen.n == 4 and not one.values.left_out and one.lost == (4,)
    level = 1 / one.look(0.05, 4).e_value
    assert strictly_decided([one], 2 * level) == 1
    assert one.look(level / 2).decided and strictly_decided([one], level / 2) == 0


def test_a_failed_training_ends_its_claim_with_the_way_out_and_the_others_go_on(setting, tmp_path, monkeypatch):
    store, _, said = setting
    works, fails = Engine({"st": 0.1, "at": 0.6}), Engine({}, failing=True)
    monkeypatch.setattr(
        deciding, "run_study", lambda study, *rest: (fails if "sovr" in study.labels else works)(study, *rest)
    )
    claims = [ask(StudyOptions(str(tmp_path / "tiny.yaml")), text, None, Rules()) for text in ("sovr > at", "st < at")]
    command = "python -m sweep.decide --claims --budget 2h"
    assert not settle(claims, store, RunOptions(command=command), Budget(None), Rules(), PAPER, said.append)
    assert (
        "no memory" in said[0] and said[1] == "to try again: python -m sweep.decide --claims --budget 2h --retry-failed"
    )
    assert claims[1].seen.decided and [(one.first, one.second) for one in decisions(store)] == [("st", "at")]
    assert {options.go_on for *_, options in works.calls} == {command}


def test_no_more_seeds_are_asked_for_than_are_likely_to_decide_and_the_limit_is_said(setting):
    _, run, said = setting
    engine = Engine({"st": 0.1, "at": 0.6})
    one, _ = run(engine, "st < at", rules=Rules(max_seeds=3))
    assert "about 2 more, beyond --max-seeds 3" in said[0] and one.seen.n == 3
    assert "about 1 more, beyond --max-seeds 3" in said[-1]
    run(engine, "st < at", rules=Rules(batch=7))
    assert [len(seeds) for _, seeds, *_ in engine.calls] == [2, 3, 4]


def test_what_cannot_be_decided_is_refused_before_anything_runs(setting):
    _, run, _ = setting
    engine = Engine({})
    with pytest.raises(UserError, match="the very same trials"):
        run(engine, "again > at")
    with pytest.raises(UserError, match="--measure autoattack.*does not take it"):
        run(engine, "sovr > at", measure="autoattack")
    with pytest.raises(UserError, match="unknown label"):
        run(engine, "svr > at")
    with pytest.raises(UserError, match="between 0 and 1"):
        Rules(alpha=1.0)
    assert engine.calls == []


def test_a_searched_column_is_decided_with_seeds_that_its_search_did_not_have(setting, tmp_path):
    store, run, _ = setting
    study = tiny(tmp_path, methods={"st": {}, "at": {}, "sovr": {}}, search={"sovr": {"candidates": 2, "seeds": [2]}})
    store.write_record(stored.search(study, "sovr", ["done"], status="done", chosen={"M": 20, "lam": 0.2}))
    engine = Engine({"st": 0.1, "sovr": 0.5, "sovr_searched": 0.6})
    one, well = run(engine, "st < sovr_searched")
    assert well and one.seen.verdict == "holds" and {seed for _, seed in engine.computed} == {0, 1, 3, 4}
    chosen = planned.stored_cells(one.study, store)
    names = {cell.trial for cell in chosen if cell.label == "sovr_searched"}
    assert {pair[1] for record in decisions(store) for pair in record.trials} < names
    with pytest.raises(UserError, match="unknown label 'at_searched'.*known: at, (?!at).*sovr, sovr_searched, st$"):
        run(engine, "at_searched > st")
    own = study.config("sovr").hyperparameters
    chosen = {"M": own["M"], "lam": own["lam"]}
    store.write_record(stored.search(study, "sovr", ["done"], status="done", chosen=chosen))
    with pytest.raises(UserError, match="the very same trials"):
        run(engine, "sovr_searched > sovr")


def test_seeds_come_in_an_order_without_the_searches_own(tmp_path):
    study = tiny(tmp_path, seeds=[5, 3], search={"sovr": {"candidates": 2, "seed": 1}})
    assert seed_order(study, 6) == [3, 5, 0, 2, 4, 6] and seed_order(study, 1) == [3]


def test_one_claim_has_one_order_of_seeds_and_a_measure_the_epoch_that_tables_show_it_of(tmp_path):
    tiny(tmp_path, seeds=[0, 1, 2], search=None, methods={"st": {}, "at": {}})
    options = StudyOptions(str(tmp_path / "tiny.yaml"), ["seeds=[1,2,3,4]", "train.epochs=1"])
    one = ask(options, "st < at", None, Rules(max_seeds=5))
    assert one.study.seeds == (0, 1, 2, 3, 4) and one.study.train.epochs == 1
    assert "seeds=" not in deciding.run_command(one.limited(2), open_store(tmp_path / "store"))
    margin = ask(options, "st < at", "margin", Rules())
    assert margin.pair.checkpoint == "last" and margin.name.endswith(", checkpoint last)") and not one.pair.checkpoint


def test_the_papers_open_claims_are_asked_and_the_clearest_is_driven_first(tmp_path, monkeypatch):
    changes = {"evaluation": {"attacks": ["clean", "autoattack"], "suite": None, "epsilon": "0.1", "images": 20}}
    tiny(tmp_path, search=None, methods={"at": {}, "sovr": {}, "mart": {}}, **changes)
    store, options, rules = (
        open_store(tmp_path / "store"),
        StudyOptions(str(tmp_path / "tiny.yaml")),
        Rules(max_seeds=8),
    )
    asked = ask_paper(options, PAPER, store, rules)
    names = {one.pair.text for one in asked if one.pair.measure == "autoattack"}
    assert {"sovr > at", "mart < at", "sovr > mart"} <= names
    engine = Engine({"at": 0.5, "sovr": 0.8, "mart": 0.497})
    monkeypatch.setattr(deciding, "run_study", engine)
    chosen = [one for one in asked if one.pair.text in ("sovr > at", "mart < at")]
    assert settle(chosen, store, RunOptions(), Budget(4.0), rules, PAPER, lambda text: None)
    # Two seeds for each that nothing is known of, then the budget goes to the one that grows.
    assert [set(labels) for labels, *_ in engine.calls][2] == {"at", "sovr"}
    assert {one.pair.text: one.seen.decided for one in chosen}["sovr > at"]
    assert strictly_decided(chosen, 0.025) == 1 and strictly_decided(chosen, 1e-9) == 0
    again = ask_paper(options, PAPER, store, rules)
    assert {one.name for one in chosen} <= {one.name for one in again}
    calls, said = len(engine.calls), []
    settle(
        [one for one in again if one.pair.text == "sovr > at"],
        store,
        RunOptions(),
        Budget(4.0),
        rules,
        PAPER,
        said.append,
    )
    assert len(engine.calls) == calls and "decided after" in said[0]


def test_merged_stores_keep_the_decision_that_got_further(setting, tmp_path):
    store, run, _ = setting
    other = open_store(tmp_path / "other")
    run(Engine({"sovr": 0.6, "at": 0.6}), "sovr > at", rules=Rules(max_seeds=2))
    Merge(other, [store]).write()
    run(Engine({"sovr": 0.6, "at": 0.6}), "sovr > at", rules=Rules(max_seeds=4))
    Merge(other, [store]).write()
    assert [len(record.seeds) for record in decisions(other)] == [4]
    assert not Merge(store, [other]).new
    (record,) = decisions(other)
    other.write_record(record.model_copy(update={"differences": (9.0, *record.differences[1:])}))
    with pytest.raises(UserError, match="two different outcomes of one decision"):
        Merge(store, [other])


def test_the_command_says_what_it_needs(tmp_path):
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "sweep.decide", "--store", str(tmp_path)]
    found = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=patience(120), check=False)
    assert found.returncode == 2 and "give either one claim" in found.stderr


def test_a_killed_command_goes_on_where_it_was_and_ends_as_one_that_was_not(tmp_path):
    attacks = {"attacks": ["clean", "pgd-20"], "suite": None, "epsilon": "0.1", "images": 8}
    tiny(tmp_path, search=None, methods={"at": {}, "sovr": {}}, evaluation=attacks)

    def decide(store, kill_at=0):
        def prepare():
            commands.without_figures()
            if kill_at:
                Countdown(tmp_path / store, kill_at, BEFORE).install()

        words = ["decide", "--study", "tiny.yaml", "--claims", "--max-seeds", "2", "--store", store, "--out", "out"]
        return commands.call(words, tmp_path, prepare=prepare)

    def found(store):
        return {one.path: one.model_dump(include=OUTCOME) for one in decisions(open_store(tmp_path / store))}

    whole = decide("whole")
    assert whole.code == 0 and "open claims decided" in whole.output and "a level for all of them" in whole.output
    assert found("whole") and all(one["seeds"] == (0, 1) for one in found("whole").values())
    assert decide("cut", kill_at=60).killed and not found("cut")
    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("trials/*/record.json")}
    assert 0 < len(trained) < 4
    assert decide("cut").code == 0
    assert found("cut") == found("whole")
    assert all(path.stat().st_mtime_ns == then for path, then in trained.items())

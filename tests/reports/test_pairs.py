"""Claims about two labels as one types them, those of the paper, and decisions where tables and page show them."""

import pytest
from hand_made import PAPER, QuickStore, add_diagnostics, add_study, results_of

from reports.analysis.claims.pairs import Pair, paired_values, paper_pairs, parse, undecided
from reports.analysis.decisions import decisions
from reports.page.page import write_page
from reports.tables import document
from reports.tables.paper import paper_tables
from reports.tables.study import study_tables
from sweep.errors import UserError
from tests import records

LABELS = ["at", "sovr", "sovr+awp", "at+awp", "sovr_m20", "half-1"]


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("sovr > at", Pair("sovr", "at")),
        ("at<sovr", Pair("at", "sovr", -1)),
        ("sovr > at + 1", Pair("sovr", "at", 1, 1.0)),
        ("sovr > at+1.5", Pair("sovr", "at", 1, 1.5)),
        ("sovr > at - 2", Pair("sovr", "at", 1, -2.0)),
        ("sovr+awp > at+awp", Pair("sovr+awp", "at+awp")),
        ("sovr+awp > at+awp + 0.5", Pair("sovr+awp", "at+awp", 1, 0.5)),
        ("at > half-1", Pair("at", "half-1")),
        ("sovr - at > 1", Pair("sovr", "at", 1, 1.0)),
        ("sovr - at < -1", Pair("sovr", "at", -1, -1.0)),
    ],
)
def test_a_claim_is_read_as_it_is_meant(text, pair):
    found = parse(text, LABELS)
    assert found == pair
    assert parse(found.text, LABELS) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sovr", "must look like"),
        ("sovr > at > st", "must look like"),
        ("sovrr > at", "did you mean 'sovr'"),
        ("at > at", "both sides"),
        ("sovr - at > sovr", "a difference must be compared with a number"),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused_with_the_way_out(text, message):
    with pytest.raises(UserError, match=message):
        parse(text, LABELS)


def test_the_papers_claims_about_two_labels_become_pairs_of_the_studies_that_take_their_measure():
    found = paper_pairs(PAPER, "cifar10_rn18", ["at", "sovr", "trades", "mart"], {("autoattack", None)})
    assert Pair("sovr", "at") in found and Pair("mart", "at", -1) in found
    assert Pair("sovr", "trades", 1, -1.0) in found  # "not worse" within a point
    assert all(pair.measure == "autoattack" and pair.epsilon is None for pair in found)
    turned = [pair.mirrored for pair in found]
    assert not set(found) & set(turned) and Pair("at", "sovr", -1, 1.0).mirrored == Pair("sovr", "at", 1, -1.0)
    wider = paper_pairs(PAPER, "cifar10_rn18", ["at", "sovr"], {("autoattack", "12/255")})
    assert [pair.epsilon for pair in wider] == ["12/255"]
    assert Pair("sovr", "at") in paper_pairs(PAPER, "digits", ["at", "sovr"], {("autoattack", None)})


def test_a_pair_is_open_until_its_own_rule_decides_it(tmp_path):
    store = QuickStore(tmp_path)
    add_study(store, "own", {"at": [0.48, 0.482, 0.478], "sovr": [0.58, 0.582, 0.578], "mart": [0.481, 0.48, 0.482]})
    results = results_of(store)
    assert not undecided(results, "own", Pair("sovr", "at"))
    assert undecided(results, "own", Pair("mart", "at")) and undecided(results, "own", Pair("trades", "at"))


def test_values_are_paired_by_seed_up_to_the_first_that_is_missing_and_only_of_the_trials_asked_for(tmp_path):
    store = QuickStore(tmp_path)
    accuracies = {"at": [0.40, 0.42, 0.44, None, 0.46], "sovr": [0.50, 0.51, 0.55, 0.5, 0.5]}
    trials = add_study(store, "own", accuracies, statuses={("sovr", 1): "collapsed"})
    found = paired_values(results_of(store), "own", Pair("sovr", "at"), [0, 1, 2, 3, 4], trials)
    assert found.seeds == (0, 2) and found.left_out == (1,)
    assert found.differences == pytest.approx((10.0, 11.0)) and found.resolution == pytest.approx(0.1)
    assert found.trials == tuple((trials["sovr", seed], trials["at", seed]) for seed in (0, 2))
    other = {**trials, ("at", 0): "f" * 64}
    assert paired_values(results_of(store), "own", Pair("sovr", "at"), [0, 1, 2], other).seeds == ()
    both = paired_values(results_of(store), "own", Pair("sovr", "at", measure="sum"), [0, 1, 2], trials)
    assert both.differences == pytest.approx((10.0, 11.0))


def test_shares_of_images_that_no_attack_measures_have_the_step_of_one_image(tmp_path):
    store = QuickStore(tmp_path)
    trials = add_study(store, "own", {"at": [0.4, 0.42, 0.44, 0.4], "sovr": [0.5, 0.51, 0.55, 0.5]})
    summary = {"train_potentially_misclassified": 1.0, "gradient_norm_ce_label": 2.0, "images_train": 50.0}
    for trial in trials.values():
        add_diagnostics(store, trial, summary, checkpoint=records.manifest("own").checkpoint)
    found = {
        measure: paired_values(results_of(store), "own", Pair("sovr", "at", measure=measure), [0, 1, 2, 3], trials)
        for measure in ("train_potentially_misclassified", "gradient_norm_ce_label")
    }
    assert {one.differences for one in found.values()} == {(0.0,) * 4}
    assert [one.resolution for one in found.values()] == [2.0, 0.0]


def test_a_decision_stands_in_tables_and_page_while_its_trials_are_those_of_the_study(tmp_path):
    store = QuickStore(tmp_path / "store")
    values = {"at": [0.40, 0.42, 0.44, 0.43], "sovr": [0.60, 0.62, 0.645, 0.635]}
    trials = add_study(store, "own", values)
    differences = tuple(100 * (one - two) for one, two in zip(values["sovr"], values["at"], strict=True))
    facts = {
        "study": "own",
        "seeds": (0, 1, 2, 3),
        "trials": tuple((trials["sovr", seed], trials["at", seed]) for seed in range(4)),
        "differences": differences,
        "measure": "autoattack",
        "verdict": "holds",
        "estimate": 20.0,
        "e_value": 60.0,
    }
    store.write_record(records.decision_record(**facts))
    results = results_of(store)
    (shown,) = decisions(results, "own")
    assert shown.claim == "SOVR > AT (AutoAttack)"
    assert shown.outcome == "holds, decided after 4 seeds (sequential)" and "+20.25 points" in shown.numbers
    assert shown.numbers.startswith("seeds 0-3 (added: 2,3), α = 0.05: ")
    tables = {"own": study_tables(results, "own")}
    assert "holds, decided after 4 seeds (sequential)" in document.write(results, tables, paper_tables(results))
    page = write_page(results, tables["own"], [], tmp_path / "out").read_text()
    assert "holds, decided after 4 seeds (sequential)" in page
    store.write_record(records.decision_record(**facts, added={}))
    assert decisions(results_of(store), "own")[0].numbers.startswith("seeds 0-3 (none added), ")
    add_study(store, "own", {label: numbers[:3] for label, numbers in values.items()})
    assert decisions(results_of(store), "own") == []

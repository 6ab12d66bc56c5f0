"""Norms in a study: who inherits which, radii that must be given, names that stay, manifests that agree."""

import pytest

from sweep.evaluation.asked import diagnoses_of
from sweep.store.manifests import agree
from sweep.studies.model import Study
from sweep.trials.cells import evaluation_attacks, expand, manifest
from sweep.trials.identity import trial_hash
from tests.sweep.own_study import GOOD, refusal, write

L2 = GOOD.replace("attack: {epsilon: 8/255}", "attack: {norm: l2, epsilon: 128/255, step_size: 15/255}") + (
    "selection: {epsilon: 128/255, step_size: 15/255}\nevaluation: {epsilon: 128/255, diagnostics: true}\n"
)


def test_selection_and_evaluation_have_the_norm_of_training_unless_they_say_otherwise(tmp_path):
    study = Study.load(write(tmp_path, L2))
    assert study.evaluation_norm == study.config("at").selection_norm == "l2"
    found = {attack.name: attack for attack in evaluation_attacks(study)}
    assert found["autoattack"].norm == "l2" and found["autoattack"].id.startswith("autoattack-l2-128_255-")
    assert found["pgd-20"].step_size == "32/255" and found["clean"].id == "clean-" + found["clean"].id[6:]
    (diagnosis, *_) = diagnoses_of(study, expand(study)[0])
    assert diagnosis.record.endswith("/best_test-l2-128_255-all.json")
    other = Study.load(write(tmp_path, L2), overrides=["evaluation.norm=l1", "evaluation.epsilon=12"])
    assert other.evaluation_norm == "l1" and trial_hash(other.config("at")) == trial_hash(study.config("at"))


def test_what_changes_nothing_does_not_change_a_name(tmp_path):
    plain, other = (Study.load(write(tmp_path, text)) for text in (GOOD, L2))
    said = Study.load(write(tmp_path, GOOD), overrides=["train.attack.norm=linf", "selection.norm=linf"])
    assert trial_hash(said.config("at")) == trial_hash(plain.config("at")) != trial_hash(other.config("at"))
    mixed = Study.load(write(tmp_path, L2), overrides=["selection.norm=linf"])
    assert mixed.config("at").selection_norm == "linf"
    assert trial_hash(mixed.config("at")) != trial_hash(other.config("at"))


def test_a_manifest_from_before_there_were_norms_still_agrees(tmp_path):
    study = Study.load(write(tmp_path, GOOD))
    now = manifest(study, expand(study))
    selection = {key: value for key, value in now.study["selection"].items() if key != "norm"}
    before = now.model_copy(update={"study": {**now.study, "selection": selection}})
    assert agree(before, now)
    assert not agree(now, now.model_copy(update={"norm": "l2"}))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (", epsilon: 128/255, step_size: 15/255}", "}", "train.attack.epsilon: must be given for norm l2"),
        ("selection: {epsilon: 128/255, ", "selection: {", "selection.epsilon: must be given for norm l2"),
        ("evaluation: {epsilon: 128/255, ", "evaluation: {", "evaluation.epsilon: must be given for norm l2, for exam"),
        ("norm: l2", "norm: l3", "must be one of: linf, l2, l1"),
        ("diagnostics: true", "suite: null, attacks: [spsa]", "spsa is defined for linf alone"),
        ("diagnostics: true", "suite: null, attacks: [pgd-20@l1]", "norm l1 needs a radius of its own"),
        ("diagnostics: true", "suite: null, attacks: [pgd-20@l1:x]", "must be a number or a fraction"),
        ("diagnostics: true", "suite: null, attacks: [corruptions]", "corruptions are there for cifar10 and cifar100"),
    ],
)
def test_a_radius_of_another_norm_is_never_taken_for_granted(tmp_path, before, after, message):
    assert before in L2
    assert message in refusal(tmp_path, L2.replace(before, after))


def test_radii_above_one_are_for_other_norms_alone(tmp_path):
    assert "must be at most 1" in refusal(tmp_path, GOOD + "evaluation: {epsilon: 12}\n")
    text = L2.replace("l2", "l1").replace("128/255", "12").replace("15/255", "1")
    assert evaluation_attacks(Study.load(write(tmp_path, text)))[1].epsilon == "12"

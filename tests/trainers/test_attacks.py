"""Attacks by name: their settings, identities, suites, costs and the words for them."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from trainers.attacks import AnyAttack, display_name, parse
from trainers.attacks.scoring.suites import SUITES, attacks, names_of
from trainers.values import as_float


def test_names_give_the_paper_s_settings():
    pgd = parse("pgd-20")
    assert (pgd.steps, pgd.step_size, pgd.epsilon, pgd.start, pgd.loss) == (20, "2/255", "8/255", "uniform", "ce")
    fgsm = parse("fgsm")
    assert (fgsm.steps, fgsm.start) == (1, "none") and as_float(fgsm.step_size) == as_float(fgsm.epsilon)
    spsa = parse("spsa")
    assert (spsa.steps, spsa.samples, spsa.delta, spsa.learning_rate) == (100, 256, 0.001, 0.01)
    assert parse("cw-100").loss == "cw" and parse("logit-scaling-0.1").alpha == 0.1
    standard = parse("autoattack")
    assert standard.components == ("apgd-ce", "apgd-t", "fab-t", "square")
    assert (standard.targets, standard.queries, standard.seed) == (9, 5000, 0)
    assert standard.phases == ("clean", "apgd-ce", "apgd-t", "fab-t", "square") and pgd.phases == ("",)
    for radius, larger in (("8/255", ["12/255", "16/255"]), ("0.1", ["0.15", "0.2"])):
        assert [parse(name, epsilon=radius).epsilon for name in ("autoattack*1.5", "autoattack*2")] == larger
    with pytest.raises(ValueError, match="a factor of the radius"):
        parse("autoattack*large")


def test_identities_are_stable_file_names_that_tell_every_setting_apart():
    # Written down: a changed identity would hide what stores already hold.
    assert parse("pgd-20").id == "pgd-20-8_255-56f9108b"
    assert parse("autoattack").id == "autoattack-8_255-d06d233c"
    variants = [
        parse("pgd-20"), parse("pgd-20", seed=1), parse("pgd-20", epsilon="0.031"), parse("pgd-20", step_size="1/255"),
        parse("pgd-20", images=(0, 100)), parse("autoattack"), parse("autoattack", batch_size=100), parse("cw-20"),
    ]  # fmt: skip
    assert len({attack.id for attack in variants}) == len(variants)
    # The batch moves no verdict of an attack of our own.
    assert parse("pgd-20", batch_size=7).id == parse("pgd-20").id


@pytest.mark.parametrize("suite", SUITES)
def test_suites_hold_each_attack_once_and_survive_a_record(suite):
    found = attacks(SUITES[suite], epsilon="8/255", classes=100)
    assert len({attack.id for attack in found}) == len(found) and found[0].name == "clean"
    for attack in found:
        dumped = attack.model_dump(mode="json", exclude_none=True)
        again = TypeAdapter(AnyAttack).validate_python(dumped)
        assert type(again) is type(attack) and again == attack and again.id == attack.id
        assert TypeAdapter(AnyAttack).dump_python(again, mode="json", exclude_none=True) == dumped


def test_the_paper_s_suite_is_all_of_them():
    names = {(attack.name, attack.epsilon) for attack in attacks(SUITES["paper"])}
    assert {("autoattack", f"{n}/255") for n in (8, 12, 16)} <= names
    assert {name for name, _ in names} >= {"clean", "fgsm", "pgd-20", "pgd-100", "cw-100", "spsa", "square", "fab-t"}
    assert {f"logit-scaling-{alpha}" for alpha in ("0.1", "1", "10", "100")} <= {name for name, _ in names}


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="unknown attack 'pgd20'; did you mean 'pgd-20'"):
        parse("pgd20")
    with pytest.raises(ValueError, match="unknown suite 'papr'; did you mean 'paper'"):
        names_of("papr")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("clean", "Clean"), ("fgsm", "FGSM"), ("pgd-20", "PGD-20"), ("cw-100", "CW-100"), ("spsa", "SPSA"),
        ("logit-scaling-0.1", "Logit scaling 0.1"), ("autoattack", "AutoAttack"), ("apgd-ce", "APGD-CE"),
        ("fab-t", "FAB-T"), ("square", "Square"), ("no-such-attack", "No such attack"),
    ],
)  # fmt: skip
def test_attacks_are_shown_as_the_paper_writes_them(name, shown):
    assert display_name(name) == shown


def test_costs_are_in_passes_per_image():
    costs = [parse(name).cost for name in ("clean", "fgsm", "pgd-20", "autoattack", "spsa")]
    assert costs == sorted(costs) and costs[:3] == [0.4, 1.4, 20.4]


def test_attacks_and_suites_load_no_torch():
    code = (
        "import sys; from trainers.attacks.scoring import suites; suites.attacks(suites.SUITES['paper']); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0

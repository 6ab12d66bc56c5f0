"""The official implementations' numbers through the conformance command, and what the command refuses."""

import copy
import gzip
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.__main__ import main, run
from tests.conformance.families import FAMILIES

ORACLES = Path(__file__).parents[1] / "oracles.json.gz"


@pytest.fixture(scope="module")
def results():
    return run(ORACLES)


@pytest.fixture(scope="module")
def oracles():
    return json.loads(gzip.decompress(ORACLES.read_bytes()))


@pytest.fixture
def small(oracles):
    """Three quick cases that a test may spoil."""
    wanted = ("at_ce/A/lin/0", "sovr/A/lin/0", "pgd_noinit/A/lin/0")
    cases = [case for case in oracles["cases"] if case["id"] in wanted]
    return copy.deepcopy({"inputs": oracles["inputs"], "cases": cases})


def written(content, folder):
    path = folder / "oracles.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_official_number_is_reproduced(results, family):
    assert results[family].cases > 0
    assert results[family].faults == []


def test_all_families_and_cases_of_the_oracles_are_run(results):
    assert len(results) == 44
    assert sum(result.cases for result in results.values()) == 181


def test_the_oracles_beside_the_specification_are_the_ones_of_the_suite(shared, oracles):
    original = json.loads((shared / "oracles.json").read_text())
    assert [case["expected"] for case in original["cases"]] == [case["expected"] for case in oracles["cases"]]
    assert original["inputs"] == oracles["inputs"]


def test_the_command_prints_cases_and_error_per_family(small, tmp_path, capsys):
    assert main([written(small, tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"at_ce +1 +\d\.\d\de[+-]\d\d", printed)  # an error may be exactly 0
    assert "3 families, 3 cases, 0 differences" in printed


@pytest.mark.parametrize(
    ("case", "spoil"),
    [
        (0, lambda e: e.update(loss=e["loss"] * (1 + 1e-8))),
        (0, lambda e: e["grads"]["fc.bias"].__setitem__(3, 0.5)),
        (0, lambda e: e["grads"]["fc.bias"].pop()),
        (0, lambda e: e.update(loss=math.nan)),
        (0, lambda e: e.update(unheard_of=1.0)),
        (0, lambda e: e.update(loss=10**400)),
        (1, lambda e: e["x_adv"][0][0][0].__setitem__(0, e["x_adv"][0][0][0][0] + 1e-10)),
        (2, lambda e: e["in_L"].__setitem__(0, not e["in_L"][0])),
    ],
)
def test_a_number_that_differs_is_named_and_ends_with_one(small, tmp_path, capsys, case, spoil):
    spoil(small["cases"][case]["expected"])
    assert main([written(small, tmp_path)]) == 1
    assert small["cases"][case]["id"] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda o: o["cases"][0].update(family="at_cee"), "unknown family at_cee; did you mean 'at_ce'?"),
        (lambda o: o["cases"][0].pop("expected"), "lacks 'expected'"),
        (lambda o: o["cases"][0].update(expected={}), "expects nothing"),
        (lambda o: o["cases"][0].update(expected={"grads": {}}), "expects nothing"),
        (lambda o: o["cases"][0].update(input_set="Q"), "unknown input set 'Q'"),
        (lambda o: o["cases"][0].update(input_set=[]), "unknown input set '[]'"),
        (lambda o: o["cases"][0].update(note=nested(900)), "cannot be read as JSON"),
        (lambda o: o["cases"][1]["hyper"].update(step=-1.0), "step_size: "),
        (lambda o: o["inputs"]["A"]["y_lin"].__setitem__(0, 0.5), "whole numbers from 0 to 9"),
        (lambda o: o["inputs"]["A"]["y_lin"].__setitem__(0, -100), "whole numbers from 0 to 9"),
        (lambda o: o["cases"][0].update(model="vgg"), "unknown model 'vgg'"),
        (lambda o: o["cases"][2]["hyper"].pop("M"), "hyper lacks 'M'"),
        (lambda o: o["cases"][2]["hyper"].update(M="many"), "must be a number"),
        (lambda o: o["cases"][2]["hyper"].update(M=120), "must be at most 100"),
        (lambda o: o["inputs"]["A"].update(x=[[1, 2], [3]]), "no array of numbers"),
        (lambda o: o["inputs"]["A"].update(x=[[1.0, 2.0]]), "cannot be computed"),
        (lambda o: o["inputs"]["A"].pop("y_lin"), "lack 'y_lin'"),
        (lambda o: o.update(cases=[]), "has no cases"),
        (lambda o: o.update(cases="none"), "list of 'cases'"),
        (lambda o: o.update(inputs=[]), "'inputs' must be an object"),
    ],
)
def test_a_malformed_file_gets_one_line_for_each_fault_and_ends_with_two(small, tmp_path, capsys, spoil, message):
    spoil(small)
    assert main([written(small, tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(message in line for line in lines)


def test_a_case_that_cannot_be_computed_does_not_hide_the_others(small, tmp_path, capsys):
    small["cases"][2]["hyper"].pop("lam")
    assert main([written(small, tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "at_ce" in printed.out and "1 cases cannot be computed" in printed.out
    assert printed.err == "sovr/A/lin/0: cannot be computed: hyper lacks 'lam'\n"


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "null", "9" * 5000])
def test_what_is_no_oracle_file_is_refused(tmp_path, capsys, content):
    assert main([written(content, tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_archive_is_refused(tmp_path, capsys):
    path = tmp_path / "oracles.json.gz"
    damaged = bytearray(gzip.compress(json.dumps({"cases": list(range(1000))}).encode()))
    damaged[20:40] = bytes(20)
    path.write_bytes(damaged)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_file_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "nothing.json")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_the_command_runs_as_a_module_and_shows_no_traceback(tmp_path):
    command = [sys.executable, "-m", "tests.conformance", str(tmp_path / "nothing.json")]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr


def test_inputs_without_arrays_are_made_by_their_generators(oracles, tmp_path):
    wanted = ("at_ce", "mart_full", "awp_at_step", "ddpm_trades_full", "gairat_loss", "spsa", "dlr")
    phases = {
        name: {key: values[key] for key in ("psi", "phi", "y_lin", "y_convbn")}
        for name, values in oracles["inputs"].items()
    }
    cases = [case for case in oracles["cases"] if case["family"] in wanted]
    assert main([written({"inputs": phases, "cases": cases}, tmp_path)]) == 0


def test_other_shapes_and_hyperparameters_of_a_family_work(tmp_path):
    """Five images of 2x5x3 and 12 classes, against the formulas in plain numpy."""
    rng = np.random.default_rng(0)
    images, weights, bias = rng.random((5, 2, 5, 3)), rng.normal(size=(12, 30)), rng.normal(size=12)
    labels = [0, 11, 3, 3, 7]
    logits = images.reshape(5, 30) @ weights.T + bias
    true = logits[np.arange(5), labels]
    cross_entropy = np.log(np.exp(logits).sum(axis=1)) - true
    one_vs_rest = np.log1p(np.exp(logits)).sum(axis=1) - true
    margins = np.where(np.eye(12, dtype=bool)[labels], -np.inf, logits).max(axis=1) - true
    hard = np.zeros(5, dtype=bool)
    hard[np.argsort(-margins, kind="stable")[:3]] = True  # floor(0.79 * 5)
    loss = np.where(hard, 0.7 * one_vs_rest, cross_entropy).mean()
    inputs = {
        "x": images.tolist(),
        "x_adv": images.tolist(),
        "W": weights.tolist(),
        "b": bias.tolist(),
        "y_lin": labels,
    }
    case = {
        "id": "sovr/C/lin/0",
        "family": "sovr",
        "input_set": "C",
        "model": "lin",
        "hyper": {"M": 79, "lam": 0.7},
        "expected": {"loss": loss, "in_L": hard.tolist()},
    }
    assert main([written({"inputs": {"C": inputs}, "cases": [case]}, tmp_path)]) == 0


def test_one_vs_rest_keeps_its_digits_where_the_exponential_is_huge(tmp_path):
    """Logits 21 and -30: the loss of the sure sample is exp(-21), which the identity in softplus' place would drop."""
    inputs = {"x": [[[[1.0]]]], "x_adv": [[[[1.0]]]], "W": [[21.0], [-30.0]], "b": [0.0, 0.0], "y_lin": [0]}
    expected = {"per_sample": [math.log1p(math.exp(-21)) + math.log1p(math.exp(-30))]}
    case = {"id": "ovr/C/lin/0", "family": "ovr", "input_set": "C", "model": "lin", "hyper": {}, "expected": expected}
    assert main([written({"inputs": {"C": inputs}, "cases": [case]}, tmp_path)]) == 0


def test_seats_knots_lie_at_whole_epochs(tmp_path):
    expected = {"epochs": [33, 34, 66, 67, 100], "lr_wrn": [0.1, 0.1 - 0.09 / 33, 0.01, 0.01 - 0.005 / 34, 0.005]}
    case = {"id": "lr_seat/0", "family": "lr_seat", "hyper": {"epochs": 100, "lr": 0.1}, "expected": expected}
    assert main([written({"cases": [case]}, tmp_path)]) == 0


def test_a_radius_may_have_all_digits_of_a_float(small, tmp_path, capsys):
    """1.5/255 is written with 19 decimals."""
    small["cases"][1]["hyper"].update(eps=1.5 / 255, step=1.5 / 255)
    main([written(small, tmp_path)])
    assert "cannot be computed" not in capsys.readouterr().err

"""Results as one table, a model with its card, and the command line."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hand_made import QuickStore, add_study, add_trial
from safetensors.numpy import load_file, save
from typer.testing import CliRunner

from reports.__main__ import app
from reports.export import export
from sweep.errors import UserError

AT, SOVR = [0.480, 0.482, 0.478], [0.494, 0.497, None]


@pytest.fixture
def store(tmp_path):
    store = QuickStore(tmp_path / "store")
    trials = add_study(store, "one", {"at": AT, "sovr": SOVR}, hyperparameters={"sovr": {"M": 40, "lam": 0.4}})
    for seed in (0, 1):
        weights = save({"conv.weight": np.full(3, seed, dtype=np.float32)})
        facts = {"epoch": 1, "sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)}
        add_trial(store, trials["sovr", seed], checkpoints={"best_test": facts, "last": facts})
        store.write(f"trials/{trials['sovr', seed][:16]}/best_test.safetensors", weights)
    return store


def test_all_results_are_one_table_that_pandas_opens(store, tmp_path):
    export(store.uri, None, tmp_path / "out")
    parquet, text = pd.read_parquet(tmp_path / "out/results.parquet"), pd.read_csv(tmp_path / "out/results.csv")
    assert len(parquet) == len(text) == 5 * 3 + 1
    robust = parquet[parquet["attack"] == "autoattack"]
    assert robust.groupby("label")["accuracy"].mean()["at"] == pytest.approx(0.48)
    hole = parquet[(parquet["label"] == "sovr") & (parquet["seed"] == 2)].iloc[0]
    assert hole["status"] == "missing" and pd.isna(hole["accuracy"])
    assert json.loads(parquet[parquet["label"] == "sovr"]["hyperparameters"].iloc[0]) == {"M": 40, "lam": 0.4}


def test_a_model_comes_with_weights_and_a_robustbench_card(store, tmp_path):
    written = export(store.uri, ["one"], tmp_path / "out", label="sovr", seed=1)
    weights, info, card = written[2:]
    assert load_file(weights)["conv.weight"].tolist() == [1, 1, 1]
    assert info.parent == tmp_path / "out/model_info/cifar10/Linf"
    fields = json.loads(info.read_text())
    needed = "link name authors additional_data number_forward_passes dataset venue architecture eps clean_acc reported"
    assert set(needed.split()) | {"autoattack_acc"} <= set(fields)
    assert (fields["autoattack_acc"], fields["clean_acc"], fields["eps"]) == ("49.70", "90.00", "8/255")
    assert fields["architecture"] == "PreActResNet-18" and fields["additional_data"] is False
    assert fields["number_forward_passes"] == 1
    facts = json.loads(card.read_text())
    assert facts["seed"] == 1 and facts["sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert {one["attack"]["name"] for one in facts["evaluations"]} == {"clean", "pgd-20", "autoattack"}


def test_generated_images_are_no_additional_data_in_robustbenchs_sense(tmp_path):
    store = QuickStore(tmp_path / "store")
    trials = add_study(store, "one", {"at+ddpm": [0.59]})
    weights = save({"conv.weight": np.ones(3, dtype=np.float32)})
    facts = {"epoch": 1, "sha256": hashlib.sha256(weights).hexdigest(), "bytes": len(weights)}
    add_trial(store, trials["at+ddpm", 0], checkpoints={"best_test": facts})
    store.write(f"trials/{trials['at+ddpm', 0][:16]}/best_test.safetensors", weights)
    _, _, _, info, _ = export(store.uri, ["one"], tmp_path / "out", label="at+ddpm")
    fields = json.loads(info.read_text())
    assert (fields["autoattack_acc"], fields["additional_data"]) == ("59.00", False)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"label": "sover"}, "no label 'sover'; known: at, sovr"),
        ({"label": "sovr", "seed": 2}, "no finished training"),
        (
            {"label": "sovr", "checkpoint": "best_validation"},
            "no checkpoint 'best_validation'; it has: best_test, last",
        ),
        ({"label": "sovr", "checkpoint": "last"}, "the store has no file"),
        ({"seed": 1}, "give its --label"),
    ],
)
def test_mistakes_are_told(store, tmp_path, wanted, message):
    with pytest.raises(UserError, match=message):
        export(store.uri, None, tmp_path / "out", **wanted)


def test_weights_that_are_not_the_records_are_refused(store, tmp_path):
    for path in (store.root / "trials").glob("*/best_test.safetensors"):
        path.write_bytes(save({"conv.weight": np.zeros(3, dtype=np.float32)}) + b" ")
    with pytest.raises(UserError, match="SHA-256 of trials/.*best_test.safetensors is not the recorded one"):
        export(store.uri, None, tmp_path / "out", label="sovr", seed=1)
    assert not list((tmp_path / "out").glob("*.safetensors"))


def test_the_commands_write_and_print(store, tmp_path):
    runner = CliRunner()
    out = tmp_path / "report"
    result = runner.invoke(app, ["--store", store.uri, "--out", str(out), "--no-figures"])
    assert result.exit_code == 0 and (out / "tables.md").exists()
    printed = runner.invoke(app, ["diff", "--store", store.uri, "--study", "one", "--against", "sovr"])
    assert printed.exit_code == 0 and "## Claims" in printed.output
    assert runner.invoke(app, ["--store", store.uri, "diff", "--out", str(out)]).exit_code == 0
    assert (out / "diff.md").read_text(encoding="utf-8").startswith("# Our numbers beside the paper's")
    assert runner.invoke(app, ["export", "--store", store.uri, "--out", str(out)]).exit_code == 0
    assert (out / "results.parquet").exists()


def test_a_users_mistake_is_a_message_and_exit_code_2(store):
    command = [sys.executable, "-m", "reports", "--store", store.uri, "--study", "nope"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == "error: the store has no study 'nope'; it has: one\n"


def run_reports(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "reports", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [[], ["diff"], ["export"]])
def test_a_folder_that_cannot_be_made_is_one_message(store, tmp_path, command):
    (tmp_path / "file").write_text("")
    found = run_reports("--store", store.uri, "--out", str(tmp_path / "file" / "out"), *command)
    assert found.returncode == 2 and found.stdout == ""
    assert (
        found.stderr == f"error: cannot write to {tmp_path}/file/out: Not a directory; name another folder by --out\n"
    )


@pytest.mark.parametrize(("command", "name"), [("diff", "diff.md"), ("export", "results.csv")])
def test_out_may_stand_before_or_after_the_subcommand(store, tmp_path, command, name):
    for arguments in (["--out", str(tmp_path / "a"), command], [command, "--out", str(tmp_path / "b")]):
        assert CliRunner().invoke(app, ["--store", store.uri, *arguments]).exit_code == 0
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

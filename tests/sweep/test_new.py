"""A new study: commented, legal for every data set, and one that really trains."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from sweep.application import app
from sweep.cli import main  # noqa: F401 - all commands are loaded
from sweep.studies.model import Study
from trainers.composition import method_names
from trainers.data import dataset_names
from trainers.loop.train import train


def new(folder, *words):
    return CliRunner().invoke(app, ["new", str(folder / "my own.yaml"), *words])


@pytest.mark.parametrize("dataset", dataset_names())
def test_a_new_study_of_every_data_set_loads_with_all_methods(tmp_path, dataset):
    found = new(tmp_path, "--dataset", dataset, "--methods", ",".join([*method_names(), "sovr+awp"]))
    assert found.exit_code == 0, found.output
    study = Study.load(tmp_path / "my own.yaml")
    assert study.dataset == dataset and study.seeds == (0, 1, 2) and "sovr+awp" in study.labels
    assert study.selection.headline == "best_validation"
    assert study.selection.epsilon == study.evaluation.epsilon == study.train.attack.epsilon


def test_its_search_can_be_taken_out_of_its_comment(tmp_path):
    new(tmp_path, "--methods", "at,trades")
    path = tmp_path / "my own.yaml"
    text = path.read_text().replace("# search:", "search:").replace("#   trades:", "  trades:")
    path.write_text(text)
    assert Study.load(path).search["trades"].space == "declared"


def test_a_new_study_trains(tmp_path):
    assert new(tmp_path, "--dataset", "digits", "--methods", "at,trades", "--epochs", "6").exit_code == 0
    study = Study.load(tmp_path / "my own.yaml")
    for label in study.labels:
        outcome = train(study.config(label), folder=tmp_path / label)
        assert outcome["status"] == "done" and len(outcome["curve"]) == 6
        assert outcome["curve"][-1]["validation_clean_accuracy"] > 0.5, label


def test_what_it_says_to_type_is_a_command_that_works(tmp_path):
    said = new(tmp_path, "--epochs", "2").output
    command = next(line for line in said.splitlines() if line.startswith("run it: ")).removeprefix("run it: ")
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "sweep.run"]
    shown = CliRunner().invoke(app, ["run", *words[3:], "--dry-run", "--store", str(tmp_path / "store")])
    assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize(
    "words, told",
    [
        (["--dataset", "minst"], "did you mean 'mnist'"),
        (["--methods", "at,tradse"], "did you mean 'trades'"),
        (["--model", "resnet18_64"], "16"),
        (["--model", "small_cn"], "did you mean 'small_cnn'"),
        (["--methods", ","], "empty"),
    ],
)
def test_a_mistake_is_one_message_and_writes_nothing(tmp_path, words, told):
    found = new(tmp_path, *words)
    assert found.exit_code == 2 and told in found.output and not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    assert new(tmp_path).exit_code == 0
    before = (tmp_path / "my own.yaml").read_text()
    assert yaml.safe_load(before)["title"] == "Digits, small CNN"
    found = new(tmp_path, "--methods", "st")
    assert found.exit_code == 2 and "is there already" in found.output
    assert (tmp_path / "my own.yaml").read_text() == before


def test_a_new_study_takes_data_networks_and_methods_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUSTSWEEP_CACHE", str(tmp_path / "cache"))
    images = np.zeros((60, 9, 9), np.uint8)
    np.savez(
        "own.npz", train_images=images, train_labels=np.arange(60) % 2, test_images=images, test_labels=[0, 1] * 30
    )
    Path("my_net.py").write_text(
        "from torch import nn\ndef build(): return nn.Sequential(nn.Flatten(), nn.Linear(81, 2))"
    )
    Path("thrice.py").write_text(
        "from trainers.method import Method\nclass Thrice(Method):\n"
        "    def loss(self, model, images, labels, attack): return model(images).sum()\n"
    )
    words = [
        "--dataset",
        "npz:own.npz",
        "--model",
        "my_net.py:build",
        "--methods",
        "at,thrice",
        "--plugin",
        "thrice.py",
    ]
    for place in ("here.yaml", "below/there.yaml"):  # a path in a study begins in the study's folder
        found = CliRunner().invoke(app, ["new", place, *words])
        assert found.exit_code == 0 and f"--study {place} --plugin thrice.py" in found.output, found.output
        study = Study.load(place, plugins=["thrice.py"])
        assert study.labels == ["at", "thrice"] and study.train.batch_size == 6
        assert study.evaluation.attacks == ("clean", "apgd-ce", "pgd-50")  # AutoAttack needs four classes
    assert "dataset: npz:own.npz" in Path("here.yaml").read_text()

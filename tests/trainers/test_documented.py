"""The worked examples of docs/bring_your_own.md, as a reader would copy them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from optuna.distributions import FloatDistribution

from sweep.studies.model import Study
from sweep.studies.space import search_space
from tests.sweep.tiny_study import TINY
from tests.trainers.small_trials import small_trial
from trainers import data, models
from trainers.loop.checkpoint import load_resume
from trainers.loop.train import train
from trainers.plugins import attack_contract, contract, registry
from trainers.plugins.own import cache

TEXT = (Path(__file__).parents[2] / "docs/bring_your_own.md").read_text()
PYTHON = {re.match(r'"""(\w+)\.py', block)[1]: block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)}
SPACES = [yaml.safe_load(block)["search"] for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


@pytest.fixture(autouse=True)
def examples(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    for name, text in PYTHON.items():
        (tmp_path / f"{name}.py").write_text(text)


@pytest.mark.parametrize("name", ["remembering_at", "remembering_at+awp"])
def test_the_method_that_remembers_keeps_every_promise(tmp_path, name):
    registry.load_plugin(tmp_path / "remembering_at.py")
    assert [finding for finding in contract.examine(name) if finding.fault] == []


def test_the_attack_keeps_every_promise(tmp_path):
    registry.load_plugin(tmp_path / "brightness.py")
    assert [finding for finding in attack_contract.examine("brightness") if finding.fault] == []


def test_it_remembers_every_sample_once_an_epoch(tmp_path):
    registry.load_plugin(tmp_path / "remembering_at.py")
    config = small_trial("remembering_at", recipe={"epochs": 1}, hyperparameters={"memory": 0.0, "temperature": 1.0})
    train(config, folder=tmp_path / "trial")
    kept = load_resume(tmp_path / "trial/resume.pt")["method_state"]["losses"]
    assert kept.shape == (80,) and bool((kept > 0).all())


@pytest.mark.parametrize(
    ("search", "temperature"),
    [(SPACES[0], FloatDistribution(0.1, 10.0, log=True)), (SPACES[1], FloatDistribution(0.5, 5.0, log=True))],
)
def test_its_search_space_is_declared_or_written(tmp_path, search, temperature):
    study = {**TINY, "methods": {"at": {}}, "search": search}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(study))
    loaded = Study.load(tmp_path / "own.yaml", plugins=[tmp_path / "remembering_at.py"])
    space = search_space("remembering_at", loaded.search["remembering_at"].space)
    assert space["temperature"] == temperature and set(space) == {"memory", "temperature"}
    assert "remembering_at_searched" in loaded.columns()


def test_the_network_and_the_data_set_go_together(tmp_path):
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 256, (260, 12, 12, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(260) % 2)
    dataset = registry.load_dataset("my_data.py:load", tmp_path)
    facts = data.dataset_facts(dataset)
    assert (facts.shape, facts.train_images, facts.class_names) == ((3, 12, 12), 60, ("cat", "dog"))
    network = registry.load_network("my_net.py:build", tmp_path)
    assert models.misfit_of(network, facts.classes, facts.shape) is None
    assert models.build(network, 2, shape=facts.shape)(torch.rand(2, 3, 12, 12)).shape == (2, 2)

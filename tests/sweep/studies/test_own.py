"""A network and a data set of a user's own in a study: one file each, from a folder that is not the package's."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sweep import cli
from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set, trial_model
from sweep.store.opening import open_store
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials.cells import expand, manifest
from sweep.work.pieces import Setting, Training, Workplace
from tests.own_files import NETWORK, bars, write_study, write_user_files
from trainers import assembly, data, models
from trainers.loop.train import train
from trainers.plugins import registry
from trainers.plugins.own import cache

DETACHED = """
class Detached(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, images):
        return self.inner(images.detach().flatten(1))
"""
DATASETS = ["folder:pets", "npz:bars.npz", "my_data.py:load"]


def forget_all():
    for name in registry.sources():
        registry.forget(name)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    yield write_user_files(tmp_path / "user")
    forget_all()


def refusal(path, **options) -> str:
    with pytest.raises(UserError) as caught:
        Study.load(path, **options)
    return str(caught.value)


@pytest.mark.parametrize("dataset", DATASETS)
def test_an_own_network_and_an_own_data_set_are_trained_from_another_folder(home, tmp_path, monkeypatch, dataset):
    monkeypatch.chdir(tmp_path)
    study = Study.load(write_study(home, dataset=dataset, methods={"at": {}, "sovr+awp": {}}))
    assert (study.dataset, study.model) == (dataset, "my_net.py:build")
    facts = data.dataset_facts(study.dataset)
    assert (facts.classes, facts.shape, facts.train_images, facts.test_images) == (3, (1, 6, 6), 60, 30)
    outcome = train(study.config("at"), folder=tmp_path / "trial")
    assert outcome["status"] == "done" and len(outcome["curve"]) == 2
    shown = manifest(study, expand(study)).displays
    expected = {"folder:pets": "pets", "npz:bars.npz": "bars", "my_data.py:load": "my_data"}[dataset]
    assert shown == {"dataset": expected, "model": "my_net"}


def names_of(path, **options) -> list[str]:
    forget_all()
    return [cell.trial for cell in expand(Study.load(path, **options))]


def test_text_of_the_network_and_content_of_the_data_are_in_the_trials_name(home, tmp_path):
    path = write_study(home)
    first = names_of(path)
    assert names_of(path) == first
    home.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert names_of(moved / "mine.yaml") == first, "where the files lie says nothing of the numbers"
    (moved / "my_net.py").write_text(NETWORK + "# another text\n")
    changed = names_of(moved / "mine.yaml")
    (moved / "my_net.py").write_text(NETWORK)
    Image.fromarray(bars()[0] + 1).save(moved / "pets/train/cat/000.png")
    assert len({*first, *changed, *names_of(moved / "mine.yaml")}) == 3


def test_a_plugin_fingerprint_is_that_of_the_files(home):
    study = Study.load(write_study(home, dataset="digits"))
    assert study.config("at").plugin == hashlib.sha256(NETWORK.encode()).hexdigest()


def test_set_names_a_file_of_the_working_folder_and_the_study_one_beside_itself(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_study(home, model="small_cnn", dataset="digits")
    assert Study.load(path, overrides=["model=user/my_net.py:build"]).model == "my_net.py:build"
    forget_all()
    changes = ["dataset=folder:user/pets", "name=pets", "selection.validation=12", "evaluation.suite=diagnostics"]
    assert Study.load("digits", overrides=changes).dataset == "folder:pets"
    with pytest.raises(UserError, match="at least 4 classes .* list them"):  # said when it is read, not hours later
        Study.load("digits", overrides=changes[:3])
    assert "cannot be read" in refusal(path, overrides=["model=my_net.py:build"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "my_net.py"}, "does not name a function of the file; write for example my_net.py:build"),
        ({"model": "my_net.py:make"}, "has no function 'make'; it has: build"),
        ({"model": "gone.py:build"}, "cannot be read"),
        ({"dataset": "folder:gone"}, "is not a folder; name one that exists"),
        ({"dataset": "folder:pets/train"}, "has no folder train; it needs train/ and test/"),
        ({"dataset": "npz:my_net.py"}, "is not an .npz file"),
        ({"dataset": "my_net.py:build"}, "does not load: TypeError"),
        ({"dataset": "folder:pets", "train_images": 100}, "there are 60 in folder:pets"),
    ],
)
def test_a_mistake_is_one_message_of_the_study(home, changes, message):
    path = write_study(home, **changes)
    text = refusal(path)
    assert message in text and text.startswith(f"study {path} has 1 fault:") and "Traceback" not in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "returned int, not a torch.nn.Module"),
        ("raise KeyError('width')", "line 4 does not build: KeyError: 'width'"),
        ("return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))", "cannot take images of 1x6x6: RuntimeError"),
        ("return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))", "returns (2, 2) for 2 images of 1x6x6; it must"),
        ("return Detached(nn.Linear(36, classes))", "passes no gradient to its images"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_trained_is_refused_before_anything_starts(home, body, message):
    (home / "my_net.py").write_text(f"from torch import nn\n\ndef build(classes, shape):\n    {body}\n{DETACHED}")
    assert message in refusal(write_study(home))


@pytest.mark.parametrize(
    "signature", ["", "classes", "classes, shape, mean, std", "num_classes, *, shape", "n, s", "width=5"]
)
def test_a_builder_takes_what_it_names_or_as_much_as_it_asks_for(home, signature):
    checks = {
        "classes": "assert classes == 3",
        "num_classes, *, shape": "assert (num_classes, shape) == (3, (1, 6, 6))",
        "n, s": "assert (n, s) == (3, (1, 6, 6))",
        "width=5": "assert width == 5",
        "classes, shape, mean, std": "assert mean == (0.5,) and std == (0.25,)",
    }
    body = f"    {checks.get(signature, 'pass')}\n    return nn.Sequential(nn.Flatten(), nn.Linear(36, 3))\n"
    (home / "my_net.py").write_text(f"from torch import nn\n\ndef build({signature}):\n{body}")
    name = registry.load_network("my_net.py:build", home)
    assert models.build(name, 3, shape=(1, 6, 6), mean=(0.5,), std=(0.25,))(torch.zeros(2, 1, 6, 6)).shape == (2, 3)


def test_another_process_knows_both_from_their_texts_and_makes_its_own_cache(home, tmp_path):
    study = Study.load(write_study(home))
    bundle = data.load(study.dataset)
    (home / "my_net.py").unlink()
    code = (
        "import json, sys; from trainers import data, models; from trainers.plugins import registry\n"
        "for name, text in json.load(sys.stdin).items(): registry.load_source(name, text)\n"
        "assert models.build('my_net.py:build', 3, shape=(1, 6, 6)) is not None\n"
        "print(data.load('folder:pets').train_images.sum().item())"
    )
    environment = {**os.environ, cache.VARIABLE: str(tmp_path / "other"), "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(registry.sources()), text=True, capture_output=True,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert run.stdout.strip() == str(bundle.train_images.sum().item()), run.stderr
    assert (tmp_path / "other/arrays" / bundle.sha256).is_dir()


def test_a_node_that_holds_other_images_is_refused(home, tmp_path, monkeypatch):
    name = Study.load(write_study(home)).dataset
    (home / "pets/train/cat/000.png").unlink()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "node"))
    with pytest.raises(data.DataMissing, match="holds other images here .* give every node the same files"):
        data.load(name)


def test_an_own_network_gets_a_model_of_its_trial(home):
    study = Study.load(write_study(home))
    assert assembly.build_model(study.config("at"))(torch.zeros(1, 1, 6, 6)).shape == (1, 3)


def test_a_study_handed_to_a_cluster_takes_its_network_along_and_says_where_its_data_are(home, tmp_path, monkeypatch):
    path, staged = write_study(home), tmp_path / "staged"
    staged.mkdir()
    sent = StudyOptions(str(path)).elsewhere(staged)
    assert list(sent.settings) == ["model=my_net.py:build", f"dataset=folder:{home}/pets"]
    (home / "my_net.py").unlink()
    shutil.copy(path, staged)
    monkeypatch.chdir(staged)
    forget_all()
    there = Study.load("mine.yaml", overrides=sent.settings)
    assert (there.model, there.dataset) == ("my_net.py:build", "folder:pets")
    assert StudyOptions("digits").elsewhere(staged).settings == []


@pytest.fixture
def evaluated(home, tmp_path, capsys, monkeypatch):
    """A stored trial of the study, and `sweep evaluate` as from the user's folder, in a process that knows nothing."""
    study, store = Study.load(write_study(home)), open_store(tmp_path / "store")
    config, trial = study.config("at"), expand(study)[0].trial
    folder, free = tmp_path / "store/trials" / trial[:16], lambda path: contextlib.nullcontext(True)
    place = Workplace(Setting(store.uri, "data"), store, folder, lambda row: None, free)
    place.folder.mkdir(parents=True)
    Training("at", config, trial).run(place)
    monkeypatch.chdir(home)

    def call(*words: str) -> tuple[int, str]:
        forget_all()
        trial_model.cache_clear()
        data_set.cache_clear()
        with pytest.raises(SystemExit) as caught:
            cli.main(["evaluate", "--store", store.uri, "--attacks", "pgd-2", "--epsilon", "0.1", *words])
        captured = capsys.readouterr()
        return caught.value.code, captured.out + captured.err

    return trial, call


def test_a_trial_with_an_own_network_is_attacked_again_by_naming_what_it_was_trained_with(home, evaluated):
    trial, call = evaluated
    named = ["--checkpoint", f"{trial}/last", "--model", "my_net.py:build", "--dataset", "folder:pets"]
    code, text = call(*named)
    assert code == 0 and "pgd-2" in text.lower(), text
    code, text = call(*named[:2])
    assert code == 2 and "a model of its user's own; name it with --model my_net.py:build" in text
    (home / "my_net.py").write_text(NETWORK.replace("nn.ReLU()", "nn.SiLU()"))
    code, text = call(*named)
    assert code == 2 and "was trained with another text of my_net.py:build or other images" in text


def test_weights_from_elsewhere_are_attacked_on_images_of_ones_own(home, tmp_path, evaluated):
    _, call = evaluated
    network = models.build(registry.load_network("my_net.py:build", home), 3, shape=(1, 6, 6))
    torch.save(network.state_dict(), tmp_path / "net.pt")
    words = ["--checkpoint", str(tmp_path / "net.pt"), "--model", "my_net.py:build", "--dataset", "npz:bars.npz"]
    code, text = call(*words, "--json")
    first = json.loads(text[text.index("{") :])
    assert code == 0 and next(iter(first["evaluations"].values()))["images"] == 30
    np.savez(home / "bars.npz", **{key: value[::-1] for key, value in np.load(home / "bars.npz").items()})
    code, text = call(*words, "--json")
    assert json.loads(text[text.index("{") :])["name"] != first["name"], "other images are another subject"

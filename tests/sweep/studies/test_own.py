"""A network and a data set of a user's own in a study: one file each, from a folder that is not the package's."""

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

from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials.cells import expand, manifest
from tests.own_files import CLASSES, NETWORK, bars, write_folder, write_study, write_user_files
from trainers import assembly, data, models, registry
from trainers.data.bundle import DataBundle
from trainers.own import cache
from trainers.train import train

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


def test_the_three_ways_to_the_same_images_hold_the_same_images(home):
    found = [data.load(registry.load_dataset(text, home)) for text in DATASETS]
    assert found[1].sha256 == found[2].sha256 != found[0].sha256  # a folder's are put in a fixed random order

    def rows(bundle):
        return sorted(
            (*image.flatten().tolist(), int(label))
            for image, label in zip(bundle.train_images, bundle.train_labels, strict=True)
        )

    assert rows(found[0]) == rows(found[1])
    assert data.dataset_facts("folder:pets").class_names == CLASSES
    assert data.dataset_facts("my_data.py:load").class_names == ("low", "middle", "high")
    assert found[0].train_labels[:12].unique().tolist() == [0, 1, 2]


def test_facts_and_hash_are_those_of_the_images_in_memory(home):
    name = registry.load_dataset("npz:bars.npz", home)
    facts, bundle = data.dataset_facts(name), data.load(name)
    pixels = bars()[:60] / 255
    assert facts.mean == pytest.approx((pixels.mean(),), rel=1e-5)
    assert facts.std == pytest.approx((pixels.std(),), rel=1e-5)
    parts = (bundle.train_images, bundle.train_labels, bundle.test_images, bundle.test_labels)
    assert DataBundle(name, *(part.clone() for part in parts)).sha256 == bundle.sha256
    assert bundle.sha256 == registry.sha256_of(registry.DATASETS, name)


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
    assert (
        Study.load("digits", overrides=["dataset=folder:user/pets", "selection.validation=12"]).dataset == "folder:pets"
    )
    assert "cannot be read" in refusal(path, overrides=["model=my_net.py:build"])


def test_a_changed_file_of_an_own_loader_is_noticed(home):
    def sha256():
        forget_all()
        return registry.sha256_of(registry.DATASETS, registry.load_dataset("my_data.py:load", home))

    first = sha256()
    assert sha256() == first
    np.save(home / "bars.npy", 255 - bars())
    assert sha256() != first


def test_images_are_decoded_once_and_mapped(home, monkeypatch):
    text = "folder:pets"
    registry.load_dataset(text, home)
    forget_all()
    monkeypatch.setattr("trainers.own.folder._pixels", lambda *a, **k: pytest.fail("decoded again"))
    name = registry.load_dataset(text, home)
    first, second = data.load(name), data.load(name)
    first.train_images[0, 0, 0, 0] = 255 - first.train_images[0, 0, 0, 0]
    assert not torch.equal(first.train_images, second.train_images), "a write stays in its process"
    held = second.held_out(12, "end")
    assert held.train_images.data_ptr() == second.train_images.data_ptr(), "slices of mapped images are views"


def test_images_of_several_sizes_need_a_side_and_are_cropped_and_resized_by_the_rule(tmp_path):
    root = write_folder(tmp_path / "odd")
    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, 20:60] = (200, 100, 50)  # its centred square
    Image.fromarray(wide).save(root / "train/cat/wide.png")
    with pytest.raises(ValueError, match=r"the images have 2 sizes \(6x6, 80x40\); say the side .* folder:PATH@64"):
        registry.load_dataset("folder:odd", tmp_path)
    name = registry.load_dataset("folder:odd@8", tmp_path)
    bundle = data.load(name)
    assert name == "folder:odd@8" and data.dataset_facts(name).shape == (3, 8, 8)
    expected = torch.tensor([200, 100, 50], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    assert sum(torch.equal(image, expected) for image in bundle.train_images) == 1


@pytest.mark.parametrize("shape", [(30, 5, 7), (30, 5, 7, 3), (30, 3, 5, 7)])
def test_arrays_may_have_their_channels_first_last_or_none(tmp_path, shape):
    images = np.random.default_rng(1).random(shape).astype(np.float32)
    labels = np.arange(30) % 2
    np.savez_compressed(
        tmp_path / "a.npz", train_images=images, train_labels=labels, test_images=images[:4], test_labels=labels[:4]
    )
    bundle = data.load(registry.load_dataset("npz:a.npz", tmp_path))
    first = (
        images
        if len(shape) == 4 and shape[1] == 3
        else images[:, None]
        if len(shape) == 3
        else images.transpose(0, 3, 1, 2)
    )
    assert np.array_equal(bundle.train_images.numpy(), np.rint(first * 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.full((20, 4, 4), 2.0)}, "are float64 from 2 to 2; images are uint8"),
        ({"train_images": np.zeros((20, 9, 9, 9), np.uint8)}, r"have shape \(20, 9, 9, 9\)"),
        ({"train_labels": np.arange(19) % 2}, "20 train_images, but 19 train_labels"),
        ({"train_labels": np.zeros(20)}, "must be one whole number for each image"),
        ({"test_images": np.zeros((20, 5, 5), np.uint8)}, r"train_images are \(1, 4, 4\), but test_images \(1, 5, 5\)"),
        ({"class_names": np.array(["only"])}, "labels go from 0 to 1"),
        ({"train_labels": np.array([None] * 20)}, "Python objects, which are never loaded"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_data_set_are_refused_in_words(tmp_path, changes, message):
    images, labels = np.zeros((20, 4, 4), np.uint8), np.arange(20) % 2
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "b.npz", **(parts | changes))
    with pytest.raises(ValueError, match=message):
        registry.load_dataset("npz:b.npz", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "my_net.py"}, "names no function of the file; write for example my_net.py:build"),
        ({"model": "my_net.py:make"}, "has no function 'make'; it has: build"),
        ({"model": "gone.py:build"}, "cannot be read"),
        ({"dataset": "folder:gone"}, "is no folder; name one that exists"),
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
        ("return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))", "gives (2, 2) for 2 images of 1x6x6, but must"),
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
        "import json, sys; from trainers import data, models, registry\n"
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


def test_a_sorted_data_set_is_not_held_out_at_its_end(tmp_path):
    labels = np.arange(100) // 25
    np.savez(
        tmp_path / "sorted.npz", train_images=np.zeros((100, 4, 4), np.uint8), train_labels=labels,
        test_images=np.zeros((4, 4, 4), np.uint8), test_labels=labels[:4],
    )  # fmt: skip
    bundle = data.load(registry.load_dataset("npz:sorted.npz", tmp_path))
    with pytest.raises(ValueError, match="2 of its 4 classes: it is sorted; set selection.validation_from: spread"):
        bundle.held_out(40, "end")
    assert bundle.held_out(40, "spread").validation_labels.bincount().tolist() == [10, 10, 10, 10]


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
    there = Study.load("mine.yaml", overrides=sent.settings)
    assert (there.model, there.dataset) == ("my_net.py:build", "folder:pets")
    assert StudyOptions("digits").elsewhere(staged).settings == []

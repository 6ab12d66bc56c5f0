"""`python -m sweep.evaluate` as its users meet it: checkpoints from elsewhere, refusals, warnings, JSON."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sweep import cli
from sweep.evaluation import attack
from sweep.evaluation.checkpoints import data_set
from sweep.store.folder import FolderStore
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from tests import records
from tests.own_files import write_shelf
from trainers import models
from trainers.plugins import registry

FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.fc = kind, nn.Linear(64, 10)
    def forward(self, x):
        z = self.fc(x.flatten(1))
        if self.kind == "probabilities":
            return z.softmax(dim=1)
        if self.kind == "random":
            return z + torch.rand_like(z)
        if self.kind == "nan":
            return z * float("nan")
        return z[:, :5] if self.kind == "few" else z

def plain(classes): return Net("plain")
def probabilities(): return Net("probabilities")
def random(): return Net("random")
def nan(): return Net("nan")
def few(): return Net("few")
def broken(): raise KeyError("weights")
def nothing(): return 3
"""


PLUGIN = """
from trainers.attack import EvaluationAttack
from trainers.values import as_float

class Darker(EvaluationAttack):
    kind: str = "darker"

    @classmethod
    def from_name(cls, name, settings):
        return cls(name=name, epsilon=settings.epsilon, images=settings.images) if name == "darker" else None

    @property
    def cost(self):
        return 0.8

    def adversarial(self, model, images, labels, indices):
        return (images - as_float(self.epsilon)).clamp(0, 1)
"""

NETWORK = """
from torch import nn

from trainers.network import Architecture


class Net(nn.Module):
    def __init__(self, classes, shape, mean, std):
        super().__init__()
        self.fc = nn.Linear(64, classes)

    def forward(self, images):
        return self.fc(images.flatten(1))


mynet = Architecture(Net, display="Mine")
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    torch.manual_seed(0)
    network = models.build("small_cnn", 10, shape=(1, 8, 8)).eval()
    torch.save(network.state_dict(), folder / "net.pt")
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, folder / "net.safetensors")
    wrapped = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in network.state_dict().items()}}
    torch.save(wrapped, folder / "wrapped.pt")
    linear = torch.nn.Linear(64, 10)
    torch.save({f"fc.{key}": value for key, value in linear.state_dict().items()}, folder / "linear.pt")
    (folder / "factory.py").write_text(FACTORY)
    return folder


@pytest.fixture
def evaluate(capsys, tmp_path):
    def call(*arguments: object) -> tuple[int, str, str]:
        defaults = {"--store": tmp_path / "store", "--images": "0:20"}
        options = [word for pair in defaults.items() if pair[0] not in arguments for word in pair]
        words = ("evaluate", *options, *arguments)
        with pytest.raises(SystemExit) as caught:
            cli.main(list(map(str, words)))
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return call


def known(files, name="net.pt", model="small_cnn"):
    return ("--checkpoint", files / name, "--model", model, "--dataset", "digits")


def test_all_forms_of_the_same_weights_give_the_same_result(evaluate, files):
    results = []
    for name in ("net.pt", "net.safetensors", "wrapped.pt"):
        arguments = (*known(files, name), "--attacks", "clean,pgd-10", "--epsilon", "0.02", "--json")
        code, out, err = evaluate(*arguments)
        assert code == 0, err
        entries = json.loads(out)["evaluations"].values()
        results.append([(entry["attack"], entry["accuracy"], entry["images"]) for entry in entries])
    assert results[0] == results[1] == results[2]
    assert [name for name, _, _ in results[0]] == ["clean", "pgd-10"]


def test_the_same_command_again_computes_nothing_and_says_the_same(evaluate, files, tmp_path, monkeypatch):
    arguments = (*known(files), "--attacks", "fgsm", "--epsilon", "0.05", "--output", tmp_path / "out.json")
    code, first, _ = evaluate(*arguments)
    assert code == 0 and "fgsm" in first and "worst case" in first
    monkeypatch.setattr(attack, "evaluate_phase", None)
    assert evaluate(*arguments)[1] == first
    result = json.loads((tmp_path / "out.json").read_text())
    (entry,) = result["evaluations"].values()
    record = open_store(tmp_path / "store").record(EvaluationRecord, entry["record"])
    assert record.accuracy == entry["accuracy"] and record.checkpoint == "outside"


def test_two_processes_give_the_verdicts_of_one_also_of_an_attack_of_one_s_own(evaluate, files, tmp_path):
    (tmp_path / "darker.py").write_text(PLUGIN)
    words = (*known(files), "--attacks", "darker", "--epsilon", "0.3", "--plugin", tmp_path / "darker.py", "--json")
    records = []
    for number, shards in enumerate((1, 2)):
        store = tmp_path / f"store-{number}"
        try:
            code, out, err = evaluate(*words, "--batch-size", 8, "--shards", shards, "--store", store)
        finally:
            registry.forget("darker")
        assert code == 0, err
        (entry,) = json.loads(out)["evaluations"].values()
        records.append(open_store(store).record(EvaluationRecord, entry["record"]))
    assert records[0].verdicts == records[1].verdicts and len(records[0].attack["plugin"]) == 64


def test_a_network_of_a_plug_in_is_known_by_its_text(evaluate, files, tmp_path):
    words = (*known(files, "linear.pt", "mynet"), "--attacks", "clean", "--json", "--plugin", tmp_path / "mynet.py")
    found = []
    for text in (NETWORK, NETWORK.replace("return self", "return -self"), NETWORK):
        (tmp_path / "mynet.py").write_text(text)
        try:
            code, out, err = evaluate(*words)
        finally:
            registry.forget("mynet")
        assert code == 0, err
        result = json.loads(out)
        (entry,) = result["evaluations"].values()
        found.append((result["name"], entry["accuracy"]))
    assert found[0] == found[2] and found[0][0] != found[1][0] and found[0][1] != found[1][1]


@pytest.mark.parametrize("is_finished", [True, False])
def test_other_images_under_one_name_are_refused(evaluate, tmp_path, is_finished):
    plugin = write_shelf(tmp_path)
    torch.manual_seed(0)
    torch.save(models.build("small_cnn", 3, shape=(1, 6, 6)).state_dict(), tmp_path / "net.pt")
    words = ("--checkpoint", tmp_path / "net.pt", "--model", "small_cnn", "--dataset", "shelf", "--plugin", plugin)
    words = (*words, "--attacks", "clean", "--batch-size", 5)
    try:
        assert evaluate(*words, "--data-dir", tmp_path / "data")[0] == 0
        if not is_finished:
            store = open_store(tmp_path / "store")
            (path,) = store.record_paths(EvaluationRecord)
            record = store.record(EvaluationRecord, path)
            shard = records.shard_record(path.removesuffix(".json"), 0, 5, "clean", data=record.data)
            store.write_record(shard)
            store.delete(path)
        code, out, err = evaluate(*words, "--data-dir", tmp_path / "other")
        assert code == 2 and not out and err.count("\n") == 1
        known, here = (data_set("shelf", str(tmp_path / name)).sha256[:16] for name in ("data", "other"))
        assert f"'shelf' in {tmp_path / 'other'} is not the one that evaluation evaluations/outside-" in err
        assert f"expects sha256 {known}…, this one has {here}…" in err
        assert "with --data-dir, or evaluate into another --store" in err
        assert evaluate(*words, "--data-dir", tmp_path / "data")[0] == 0
    finally:
        registry.forget("shelf")


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(evaluate, files, tmp_path):
    witness = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    for name, save in (
        ("bomb.pt", torch.save),
        ("plain.pt", lambda value, path: path.write_bytes(pickle.dumps(value))),
    ):
        save({"fc.weight": Bomb()}, tmp_path / name)
        code, _, err = evaluate(*known(tmp_path, name))
        assert code == 2 and "was refused" in err and "Traceback" not in err and "weights_only" not in err
    assert not witness.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("conv1.weight"), "1 missing: conv1.weight"),
        (lambda w: w.update({"head.bias": torch.zeros(3)}), "1 not known: head.bias"),
        (lambda w: w.update({"fc2.weight": torch.zeros(7, 128)}), "fc2.weight (7, 128) in the file, (10,"),
    ],
)
def test_weights_that_do_not_fit_are_named(evaluate, files, tmp_path, change, message):
    weights = torch.load(files / "net.pt", weights_only=True)
    change(weights)
    torch.save(weights, tmp_path / "changed.pt")
    code, _, err = evaluate(*known(tmp_path, "changed.pt"))
    assert code == 2 and message in err and "small_cnn" in err


@pytest.mark.parametrize(
    ("function", "warning"),
    [
        ("plain", None),
        ("probabilities", "returns probabilities"),
        ("random", "output is random"),
        ("nan", "not finite"),
    ],
)
def test_models_of_the_user_s_own_are_warned_about(evaluate, files, function, warning):
    model = f"{files / 'factory.py'}:{function}"
    code, out, err = evaluate(*known(files, "linear.pt", model), "--attacks", "clean", "--json")
    assert code == 0, err
    notes = json.loads(out)["warnings"]
    assert len(notes) == (warning is not None)
    assert warning is None or (warning in notes[0] and warning in err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--checkpoint", "absent.pt", "--model", "small_cnn", "--dataset", "digits"), "neither a file nor"),
        (("--checkpoint", "NET",), "need --model"),
        (("--checkpoint", "NET", "--model", "small_cn", "--dataset", "digits"), "unknown model 'small_cn'"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digit"), "unknown data set 'digit'"),
        (("--checkpoint", "NET", "--model", "none.py:f", "--dataset", "digits"), "does not exist"),
        (("--checkpoint", "LINEAR", "--model", "FACTORY:absent", "--dataset", "digits"), "has no function 'absent'"),
        (("--checkpoint", "LINEAR", "--model", "FACTORY:broken", "--dataset", "digits"), "KeyError"),
        (("--checkpoint", "LINEAR", "--model", "FACTORY:nothing", "--dataset", "digits"), "not a torch.nn.Module"),
        (("--checkpoint", "LINEAR", "--model", "FACTORY:few", "--dataset", "digits"), "one logit for each of 10"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--attacks", "pgd20"), "pgd-20"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--images", "5"), "FIRST:LAST"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--images", "0:999"), "360 test"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "svhn", "--data-dir", "absent"), "svhn"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--epsilon", "8/0"), "8/255"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--device", "gpu9"), "device"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--device", "meta"), "cannot be used"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--device", "hpu"), "cannot be used"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--epsilon", "1e400"), "8/255"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--epsilon", "1e-999999999"), "8/255"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--attacks", ""), "names no attack"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--norm", "l3"), "must be linf, l2"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--norm", "l2"), "such as 128/255"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--norm", "linf,l2", "--epsilon", "1"),
         "as many of each"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--attacks", "corruptions"),
         "there for cifar10 and cifar100, not for digits"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--dataset", "digits", "--plugin", "absent.py"), "absent.py"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--study", "digits"), "needs both its name and the model's"),
        (("--checkpoint", "NET", "--model", "small_cnn", "--study", "none", "--as", "X"), "has no study 'none'"),
    ],
)  # fmt: skip
def test_mistakes_are_messages(evaluate, files, arguments, message):
    places = {"NET": "net.pt", "LINEAR": "linear.pt", "FACTORY": "factory.py"}
    for word, name in places.items():
        arguments = [str(argument).replace(word, str(files / name)) for argument in arguments]
    code, _, err = evaluate(*arguments)
    assert code == 2 and message in err and "Traceback" not in err


@pytest.mark.parametrize(
    "content",
    [{0: torch.zeros(3)}, {"conv1.weight": torch.zeros(3, 3).to_sparse()}, {"a": torch.zeros(1, device="meta")}],
)
def test_what_is_no_state_dict_is_named(evaluate, tmp_path, content):
    torch.save(content, tmp_path / "odd.pt")
    code, _, err = evaluate(*known(tmp_path, "odd.pt"))
    assert code == 2 and "holds no state dict" in err and "Traceback" not in err


def test_an_output_without_a_place_is_refused_before_anything_is_computed(evaluate, files, tmp_path):
    for output in (tmp_path / "absent" / "x.json", tmp_path):
        code, _, err = evaluate(*known(files), "--attacks", "clean", "--output", output)
        assert code == 2 and f"--output {output} cannot be written" in err
    assert not (tmp_path / "store").exists()


def test_a_store_that_cannot_be_written_is_one_message(evaluate, files, monkeypatch):
    def read_only(self, path, data):
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(FolderStore, "write", read_only)
    code, _, err = evaluate(*known(files), "--attacks", "clean")
    assert code == 2 and err.startswith("error: Read-only file system: evaluations/") and err.count("\n") == 1


def test_several_norms_give_each_attack_in_each_and_the_worst_over_all(evaluate, files, tmp_path):
    arguments = (*known(files), "--attacks", "clean,pgd-3", "--norm", "l1,linf,l2", "--epsilon", "0.5,0.02,0.2")
    code, out, err = evaluate(*arguments, "--output", tmp_path / "out.json")
    assert code == 0, err
    assert "pgd-3 L2 ε=0.2 " in out and "pgd-3 ε=0.02 " in out and "worst over l1, l2, linf" in out
    result = json.loads((tmp_path / "out.json").read_text())
    entries = list(result["evaluations"].values())
    asked = {(one["attack"], one["norm"], one["epsilon"]) for one in entries}
    assert asked == {("clean", "linf", "0"), ("pgd-3", "linf", "0.02"), ("pgd-3", "l2", "0.2"), ("pgd-3", "l1", "0.5")}
    store = open_store(tmp_path / "store")
    survivors = [store.record(EvaluationRecord, one["record"]).survivors for one in entries]
    assert result["worst_accuracy"] == (survivors[0] & survivors[1] & survivors[2] & survivors[3]).mean()

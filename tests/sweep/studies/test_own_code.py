"""What a user's network, method, attack or data set consists of beside its file is in the names, and travels."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sweep.errors import UserError
from sweep.evaluation.outside import Outside, factory_sha256
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions
from sweep.trials.cells import expand
from tests.own_files import DATA, NETWORK, bars, write_study, write_user_files
from trainers import data, models
from trainers.plugins import registry
from trainers.plugins.own import cache

TWO_FILES = "from my_net import build as base\n\n\ndef build(classes, shape):\n    return base(classes, shape)\n"
IMPORTS = {
    "beside": TWO_FILES,
    "inside a function": "def build(classes, shape):\n    from my_net import build\n    return build(classes, shape)\n",
    "by importlib": (
        "import importlib\n\n\ndef build(classes, shape):\n"
        "    return importlib.import_module('my_net').build(classes, shape)\n"
    ),
    "relative": "from .my_net import build\n",
    "of a package beside": "from parts.layers import build\n",
    "of a folder beside": "import loose.layers\n\nbuild = loose.layers.build\n",
    "through another": "from between import build\n",
    "by its path": (
        "import importlib.util\nfrom pathlib import Path\n\n"
        "spec = importlib.util.spec_from_file_location('any', Path(__file__).parent / 'my_net.py')\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\nbuild = module.build\n"
    ),
    "by exec": "from pathlib import Path\n\nexec((Path(__file__).parent / 'my_net.py').read_text())\n",
}
CHANGED = {"of a package beside": "parts/layers.py", "of a folder beside": "loose/layers.py"}
HEAD = "from pathlib import Path\nfrom torch import nn\n\nHERE = Path(__file__).parent\n\n"
LINEAR = """
def build(classes, shape):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, classes))
    {body}
    return model
"""
READERS = {
    "load_file": "from safetensors.torch import load_file; model.load_state_dict(load_file(HERE / 'w.safetensors'))",
    "safe_open": (
        "from safetensors import safe_open\n    with safe_open(str(HERE / 'w.safetensors'), 'pt') as file:\n"
        "        model[1].weight.data.copy_(file.get_tensor('1.weight'))"
    ),
    "load_model": "import safetensors.torch; safetensors.torch.load_model(model, HERE / 'w.safetensors')",
    "torch.load": "import torch; model.load_state_dict(torch.load(HERE / 'w.pt'))",
    "torch.load mapped": "import torch; model.load_state_dict(torch.load(str(HERE / 'w.pt'), mmap=True))",
    "np.load": "import numpy, torch; model[1].weight.data = torch.from_numpy(numpy.load(HERE / 'w.npy'))",
    "np.memmap": (
        "import numpy, torch; found = numpy.memmap(HERE / 'w.bin', 'float32', shape=(3, 36)); "
        "model[1].weight.data = torch.from_numpy(found.copy())"
    ),
    "open": "import json; model[1].weight.data *= json.loads(open(HERE / 'w.json').read())",
    "relative to the working folder": "import json; model[1].weight.data *= json.load(open('w.json'))",
    "torch.jit.load": "import torch; model[1].weight.data = torch.jit.load(HERE / 'w.jit').state_dict()['1.weight']",
}
METHOD = """
from dataclasses import dataclass
from torch.nn.functional import cross_entropy
from trainers.method import Method
from losses import WEIGHT

@dataclass(frozen=True)
class Mine(Method):
    def loss(self, model, images, labels, attack):
        return WEIGHT * cross_entropy(model(images), labels)
"""
CODE = """
import json, sys
from trainers import models
from trainers.plugins import registry
registry.load_sources(json.load(sys.stdin))
model = models.build(sys.argv[1], 3, shape=(1, 6, 6))
print(sum(value.double().sum().item() for value in model.state_dict().values()) if "w" in sys.argv[2] else "built")
"""


def forget_all():
    for name in registry.sources():
        registry.forget(name)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    home = write_user_files(tmp_path / "user")
    for folder in ("parts", "loose"):
        (home / folder).mkdir()
        (home / folder / "layers.py").write_text(NETWORK)
    (home / "parts/__init__.py").write_text("")
    (home / "between.py").write_text("from my_net import build\n")
    write_weights(home)
    yield home
    forget_all()


def write_weights(home: Path, factor: float = 1.0) -> None:
    weights = {"1.weight": factor * torch.arange(108.0).reshape(3, 36), "1.bias": torch.zeros(3)}
    save_file(weights, home / "w.safetensors")
    torch.save(weights, home / "w.pt")
    np.save(home / "w.npy", weights["1.weight"].numpy())
    weights["1.weight"].numpy().tofile(home / "w.bin")
    (home / "w.json").write_text(json.dumps(factor))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    model.load_state_dict(weights)
    torch.jit.script(model).save(home / "w.jit")


def names_of(path, **options) -> list[str]:
    forget_all()
    return [cell.trial for cell in expand(Study.load(path, **options))]


def elsewhere(tmp_path, name, content="w", sources=None, check=True) -> str:
    """What a process says that knows nothing but the texts, in another folder and with another cache."""
    node = tmp_path / "node"
    node.mkdir(exist_ok=True)
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, cache.VARIABLE: str(tmp_path / "node/cache"), "PYTHONPATH": root}
    run = subprocess.run(
        [sys.executable, "-c", CODE, name, content], input=json.dumps(sources or registry.sources()), text=True,
        capture_output=True, cwd=node, env=environment,
    )  # fmt: skip
    assert not check or run.returncode == 0, run.stderr
    return run.stdout.strip() if check else run.stderr


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_module_that_a_network_imports_is_in_the_name_and_travels(home, tmp_path, imports):
    (home / "two_files.py").write_text(IMPORTS[imports])
    path = write_study(home, model="two_files.py:build", dataset="npz:bars.npz")
    first = names_of(path)
    assert names_of(path) == first
    sources = registry.sources()
    changed = home / CHANGED.get(imports, "my_net.py")
    changed.write_text(NETWORK.replace("4, 3, stride", "8, 3, stride").replace("Linear(4", "Linear(8"))
    assert set(names_of(path)).isdisjoint(first)
    changed.write_text(NETWORK)
    assert names_of(path) == first
    home.rename(tmp_path / "moved")
    assert names_of(tmp_path / "moved/mine.yaml") == first, "where the files lie says nothing of the numbers"
    assert elsewhere(tmp_path, "two_files.py:build", "", sources) == "built"


@pytest.mark.parametrize("reader", READERS)
def test_weights_that_a_network_reads_are_in_the_name_and_travel(home, tmp_path, monkeypatch, reader):
    monkeypatch.chdir(home)
    (home / "warm.py").write_text(HEAD + LINEAR.format(body=READERS[reader]))
    path = write_study(home, model="warm.py:build", dataset="npz:bars.npz")
    first = names_of(path)
    sources = registry.sources()
    torch.manual_seed(0)
    model = models.build("warm.py:build", 3, shape=(1, 6, 6))
    write_weights(home, 0.5)
    assert set(names_of(path)).isdisjoint(first)
    home.rename(tmp_path / "gone")
    text = elsewhere(tmp_path, "warm.py:build", "w" if "1.weight" in reader else "", sources)
    assert text == "built" and sum(value.numel() for value in model.state_dict().values()) == 111


def test_a_file_that_stands_alone_keeps_its_text_and_its_hash(home):
    study = Study.load(write_study(home))
    assert set(json.loads(registry.sources()["my_net.py:build"])) == {"noun", "file", "source"}
    assert registry.code_of("my_net.py:build").sha256() == registry.sha256_of(registry.NETWORKS, study.model)


def test_a_node_gets_the_weights_that_were_there_when_the_study_was_read(home, tmp_path):
    (home / "warm.py").write_text(HEAD + LINEAR.format(body=READERS["load_file"]))
    Study.load(write_study(home, model="warm.py:build", dataset="npz:bars.npz"))
    write_weights(home, 0.5)
    assert float(elsewhere(tmp_path, "warm.py:build")) == sum(range(108))


def test_a_node_with_another_file_under_an_absolute_path_is_refused(home, tmp_path):
    (home / "warm.py").write_text((HEAD + LINEAR.format(body=READERS["load_file"])).replace("HERE /", f"'{home}/' +"))
    Study.load(write_study(home, model="warm.py:build", dataset="npz:bars.npz"))
    write_weights(home, 0.5)
    message = elsewhere(tmp_path, "warm.py:build", check=False)
    assert f"{home}/w.safetensors" in message and "every node the same file" in message
    (home / "w.safetensors").unlink()
    assert "No such file" in elsewhere(tmp_path, "warm.py:build", check=False)


def test_a_large_file_is_not_sent_but_compared(home, tmp_path, monkeypatch):
    monkeypatch.setattr("trainers.plugins.own.code.MOST_SENT_BYTES", 100)
    (home / "warm.py").write_text(HEAD + LINEAR.format(body=READERS["load_file"]))
    Study.load(write_study(home, model="warm.py:build", dataset="npz:bars.npz"))
    assert float(elsewhere(tmp_path, "warm.py:build")) == sum(range(108))
    write_weights(home, 0.5)
    message = elsewhere(tmp_path, "warm.py:build", check=False)
    assert f"{home}/w.safetensors" in message and "on every node" in message


def test_a_file_that_changes_while_a_process_has_it_is_refused(home):
    (home / "two_files.py").write_text(TWO_FILES)
    path = write_study(home, model="two_files.py:build", dataset="npz:bars.npz")
    Study.load(path)
    Study.load(path)
    (home / "my_net.py").write_text(NETWORK + "# another text\n")
    with pytest.raises(UserError, match="my_net.py.* has changed since .* restart the command"):
        Study.load(path)


def test_two_files_of_a_name_in_two_folders_are_two_modules(home, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (home / "two_files.py").write_text(TWO_FILES)
    (other / "three_files.py").write_text(TWO_FILES)
    (other / "my_net.py").write_text(NETWORK.replace("4, 3, stride", "8, 3, stride").replace("Linear(4", "Linear(8"))
    names = [registry.load_network("two_files.py:build", home), registry.load_network("three_files.py:build", other)]
    assert [models.build(name, 3, shape=(1, 6, 6))[0].out_channels for name in names] == [4, 8]
    assert "my_net" not in sys.modules or sys.modules["my_net"].__file__ != str(Path(__file__))


def test_a_compiled_module_beside_a_file_is_refused_with_a_way_out(home):
    (home / "fast.so").write_bytes(b"")
    (home / "two_files.py").write_text("import fast\n" + TWO_FILES)
    with pytest.raises(UserError, match="fast.so.* install it as a package"):
        Study.load(write_study(home, model="two_files.py:build", dataset="npz:bars.npz"))


def test_a_module_that_a_method_imports_is_in_the_name_and_travels(home, tmp_path):
    (home / "losses.py").write_text("WEIGHT = 1\n")
    (home / "mine.py").write_text(METHOD)
    (home / "second.py").write_text("from mine import Mine\n\n\nclass Second(Mine):\n    pass\n")
    options = {"plugins": [home / "mine.py", home / "second.py"], "methods": ["mine", "second"]}
    path = write_study(home, dataset="npz:bars.npz")
    first = names_of(path, **options)
    assert elsewhere(tmp_path, "my_net.py:build", "") == "built"
    (home / "losses.py").write_text("WEIGHT = 2\n")
    second = names_of(path, **options)
    assert len({*first, *second}) == 4
    (home / "mine.py").write_text(METHOD.replace("WEIGHT *", "2 * WEIGHT *"))
    assert set(names_of(path, **options)).isdisjoint(second)


def test_images_are_decoded_anew_after_a_change_of_a_module_that_loads_them(home, tmp_path):
    (home / "shared.py").write_text("SHIFT = 0\n")
    (home / "my_data.py").write_text(
        "from shared import SHIFT\n" + DATA.replace("images[:60],", "images[:60] + SHIFT,")
    )
    path = write_study(home, dataset="my_data.py:load")
    first = names_of(path)
    assert names_of(path) == first
    (home / "shared.py").write_text("SHIFT = 1\n")
    assert set(names_of(path)).isdisjoint(first)
    (home / "shared.py").unlink()
    code = (
        "import json, sys; from trainers import data; from trainers.plugins import registry\n"
        "registry.load_sources(json.load(sys.stdin))\nprint(data.load('my_data.py:load').train_images.sum().item())"
    )
    environment = {**os.environ, cache.VARIABLE: str(tmp_path / "other"), "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(registry.sources()), text=True, capture_output=True,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert run.stdout.strip() == str(int(bars()[:60].sum()) + 60 * 36), run.stderr


def test_a_study_handed_to_a_cluster_takes_all_of_a_network_along(home, tmp_path, monkeypatch):
    (home / "two_files.py").write_text(
        IMPORTS["relative"] + "from pathlib import Path\n(Path(__file__).parent / 'w.json').read_text()\n"
    )
    path, staged = write_study(home, model="two_files.py:build", dataset="npz:bars.npz"), tmp_path / "staged"
    first = names_of(path)
    staged.mkdir()
    sent = StudyOptions(str(path)).elsewhere(staged)
    shutil.copy(path, staged)
    for file in ("two_files.py", "my_net.py", "w.json"):
        (home / file).unlink()
    monkeypatch.chdir(staged)
    assert names_of("mine.yaml", overrides=sent.settings) == first


def test_a_factory_of_foreign_weights_is_known_by_all_of_its_files(home):
    (home / "two_files.py").write_text(TWO_FILES)
    dataset = registry.load_dataset("npz:bars.npz", home)
    outside = Outside(str(home / "w.pt"), f"{home}/two_files.py:build", dataset)
    first = factory_sha256(outside)
    assert factory_sha256(outside) == first
    (home / "my_net.py").write_text(NETWORK + "# another text\n")
    assert factory_sha256(outside) != first
    assert data.dataset_facts(dataset).classes == 3

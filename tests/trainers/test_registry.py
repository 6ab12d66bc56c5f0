"""A user's file as a method like the others, and what is said when it cannot be one."""

import hashlib
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sweep.check import app
from sweep.studies.model import Study
from trainers import composition
from trainers.plugins import registry

MIXED = '''"""Mixed adversarial training: a weighted sum of clean and adversarial cross-entropy."""

from dataclasses import dataclass

import torch.nn.functional as F

from trainers.method import Method, hyperparameter


@dataclass(frozen=True)
class MixedAT(Method):
    clean_weight: float = hyperparameter(0.5, low=0.0, high=1.0)

    def loss(self, model, images, labels, attack):
        adversarial = attack(model, images, lambda logits: F.cross_entropy(logits, labels))
        clean = F.cross_entropy(model(images), labels)
        robust = F.cross_entropy(model(adversarial), labels)
        return self.clean_weight * clean + (1 - self.clean_weight) * robust
'''


def with_field(declared: str) -> str:
    return MIXED.replace("float = hyperparameter(0.5, low=0.0, high=1.0)", declared)


@pytest.fixture
def my_loss(tmp_path):
    path = tmp_path / "my_loss.py"
    path.write_text(MIXED)
    return path


def test_a_file_becomes_a_method_named_after_it(my_loss):
    assert registry.load_plugin(my_loss) == "my_loss"
    assert "my_loss" in composition.method_names()
    assert composition.parse("my_loss+awp") == ("my_loss", ("awp",))
    assert composition.display_name("my_loss+awp") == "my_loss+AWP"
    assert composition.resolved_hyperparameters("my_loss", {"clean_weight": 1}) == {"clean_weight": 1.0}
    with pytest.raises(ValueError, match="clean_weight = 2.0 must be at most 1.0"):
        composition.build("my_loss", {"clean_weight": 2})


def test_annotations_that_are_text_are_checked_too(tmp_path):
    registry.load_source(
        "my_loss", MIXED.replace("from dataclasses", "from __future__ import annotations\nfrom dataclasses")
    )
    with pytest.raises(ValueError, match="must be a number"):
        composition.build("my_loss", {"clean_weight": "half"})


def test_a_worker_loads_the_text_of_the_file_under_its_name():
    code = (
        "import sys; from trainers import composition; from trainers.plugins import registry; "
        "registry.load_source('my_loss', sys.stdin.read()); "
        "assert composition.build('my_loss').clean_weight == 0.5"
    )
    finished = subprocess.run([sys.executable, "-c", code], input=MIXED, text=True, cwd=Path(__file__).parents[2])
    assert finished.returncode == 0


def test_the_same_text_may_come_twice_but_not_another_one(my_loss):
    registry.load_plugin(my_loss)
    registry.load_source("my_loss", MIXED)
    with pytest.raises(ValueError, match="another plug-in is already named 'my_loss'"):
        registry.load_source("my_loss", MIXED + "\n")


def test_the_hash_of_a_plugin_is_that_of_its_bytes(my_loss):
    name = registry.load_plugin(my_loss)
    assert registry.sha256_of(registry.METHODS, name) == hashlib.sha256(my_loss.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("trades.py", MIXED, "the name 'trades' is taken"),
        ("awp.py", MIXED, "the name 'awp' is taken"),
        ("my-loss.py", MIXED, "'my-loss' is not a valid name: use letters, digits and _ only; rename the file"),
        ("my_loss.py", MIXED.replace("def loss(", "def loss("[:-1]), "line 14"),
        ("my_loss.py", "import not_there\n", "line 1: ModuleNotFoundError: No module named 'not_there'"),
        ("my_loss.py", MIXED.replace("low=0.0", "lowest=0.0"), "line 12: TypeError"),
        ("my_loss.py", "x = 1\n", "defines no method"),
        (
            "my_loss.py",
            MIXED.replace("def loss", "def lose"),
            "MixedAT defines no loss(self, model, images, labels, attack)",
        ),
        ("my_loss.py", MIXED + MIXED.replace("MixedAT", "Another"), "defines 2 methods (MixedAT, Another)"),
        (
            "my_loss.py",
            "import sys\nsys.exit()\n",
            "line 2: it exits when it is imported (SystemExit: None)",
        ),
        ("my_loss.py", "raise ValueError\n", "line 1: ValueError"),
        ("my_loss.py", MIXED + "\0", "my_loss.py: source code string cannot contain null bytes"),
        (
            "my_loss.py",
            with_field("tuple = hyperparameter((1, 2))"),
            "must be a bool, int, float or str, but is (1, 2)",
        ),
        ("my_loss.py", with_field("list = hyperparameter([1])"), "must be a bool, int, float or str, but is [1]"),
        ("my_loss.py", with_field("tuple = (1, 2)"), "give clean_weight a default that is a bool, int, float or str"),
        ("my_loss.py", with_field("float"), "give clean_weight a default that is a bool, int, float or str"),
        (
            "my_loss.py",
            with_field('str = hyperparameter("a", low=0.0)'),
            "line 12: a hyperparameter with low or high must be a number, but its default is 'a'",
        ),
        ("my_loss.py", MIXED.replace("@dataclass(frozen=True)", ""), "decorate MixedAT with @dataclass(frozen=True)"),
    ],
)
def test_a_file_that_cannot_be_a_method_gets_one_clear_message(tmp_path, file, text, message):
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        registry.load_plugin(path)
    assert message in str(caught.value)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.stem not in registry.sources()


def test_a_byte_order_mark_does_no_harm(my_loss):
    my_loss.write_text(MIXED, encoding="utf-8-sig")
    assert registry.load_plugin(my_loss) == "my_loss"


def test_what_a_plugin_prints_at_import_leaves_standard_output_alone(my_loss, capsys):
    my_loss.write_text(MIXED + "print('hello')\n")
    registry.load_plugin(my_loss)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == "hello\n"


@pytest.mark.parametrize("error", ["AttributeError", "OSError"])
def test_a_class_whose_own_check_raises_is_refused_in_words(error):
    registry.load_source("my_loss", MIXED + f"\n    def __post_init__(self):\n        raise {error}('no such thing')\n")
    with pytest.raises(ValueError, match=f"method 'my_loss' cannot be built: {error}: no such thing"):
        composition.resolved_hyperparameters("my_loss")


def test_text_for_a_hyperparameter_with_limits_is_refused_whatever_its_annotation():
    registry.load_source("my_loss", MIXED.replace("clean_weight: float", "clean_weight: str"))
    with pytest.raises(ValueError, match="clean_weight = 'a' must be a number"):
        composition.build("my_loss", {"clean_weight": "a"})


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        registry.load_plugin(tmp_path / "nothing.py")


def announce(folder, package="their-package", version="1.0", name="theirs"):
    """Describes a package as pip would, one that announces a class of their_package.py as a method."""
    described = folder / f"{package.replace('-', '_')}.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (described / "entry_points.txt").write_text(f"[robustsweep.methods]\n{name} = their_package:MixedAT\n")
    forget_installed()


def forget_installed():
    """As in a new process."""
    registry.forget("theirs")
    registry.announced.cache_clear()
    registry.all_announced.cache_clear()
    sys.modules.pop("their_package", None)
    importlib.invalidate_caches()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package on the path that announces its module as a method."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files that change within a second
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_package.py").write_text(MIXED)
    announce(tmp_path)
    yield
    forget_installed()


def test_an_installed_package_announces_its_methods(installed):
    assert "theirs" in composition.method_names()
    assert composition.build("theirs", {"clean_weight": 0.25}).clean_weight == 0.25


def test_a_file_may_not_take_the_name_of_an_installed_method(installed, tmp_path):
    with pytest.raises(ValueError, match="another plug-in is already named 'theirs'"):
        registry.load_source("theirs", MIXED)


def test_an_installed_method_has_a_hash_of_its_code_and_of_its_version(installed, tmp_path):
    def sha256():
        forget_installed()
        return Study.load("digits", methods=["theirs", "at"]).config("theirs").plugin

    first = sha256()
    assert first is not None and len(first) == 64 and sha256() == first
    (tmp_path / "their_package.py").write_text(MIXED + "# changed\n")
    changed = sha256()
    announce(tmp_path, version="1.1")
    assert len({first, changed, sha256()}) == 3


def test_a_shipped_method_has_no_hash_and_a_file_that_of_its_bytes(installed, my_loss):
    study = Study.load("digits", methods=["at", "my_loss"], plugins=[my_loss])
    assert study.config("at").plugin is None
    assert study.config("my_loss").plugin == hashlib.sha256(MIXED.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("theirs", "another plug-in is already named 'theirs'"),
        ("awp", "the name 'awp' is taken"),
        ("trades", "the name 'trades' is taken"),
        ("a+b", "'a+b' is not a valid name"),
    ],
)
def test_an_installed_package_may_not_announce_a_name_that_is_taken_or_none(installed, tmp_path, name, message):
    announce(tmp_path, package="another-package", version="2.0", name=name)
    with pytest.raises(ValueError) as caught:
        composition.method_names()
    assert message in str(caught.value) and "another-package 2.0" in str(caught.value)
    assert name != "theirs" or "their-package 1.0" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys\nsys.exit(0)\n", "it exits when it is imported"),
        (with_field("tuple = (1, 2)"), "give clean_weight a default that is a bool, int, float or str, not (1, 2)"),
    ],
)
def test_an_installed_package_that_does_not_load_is_named(installed, tmp_path, text, message):
    (tmp_path / "their_package.py").write_text(text)
    with pytest.raises(ValueError) as caught:
        composition.build("theirs")
    assert message in str(caught.value) and "of their-package 1.0" in str(caught.value)


def checked(*arguments):
    return CliRunner().invoke(app, ["check", *arguments])


def test_check_reports_every_promise_of_a_good_file(my_loss):
    result = checked("my_loss", "--plugin", str(my_loss))
    assert result.exit_code == 0
    assert "BROKEN" not in result.output
    assert "my_loss: 10 promises kept" in result.output


def test_check_finds_the_file_beside_it_and_names_what_is_broken(my_loss, monkeypatch):
    my_loss.write_text(MIXED.replace("F.cross_entropy(model(images), labels)", "undefined_name"))
    monkeypatch.chdir(my_loss.parent)
    result = checked("my_loss")
    assert result.exit_code == 1
    assert (
        "BROKEN  gives a finite loss: raised NameError: name 'undefined_name' is not defined (my_loss.py, line 16)"
        in (result.output)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tradse",), "did you mean 'trades'?"),
        (("at+at",), "composes two methods"),
        (("nothing.py",), "cannot be read"),
        (("other", "--plugin", "my_loss.py"), "defines the method 'my_loss', not 'other'"),
    ],
)
def test_check_of_what_cannot_be_loaded_ends_with_two(my_loss, monkeypatch, arguments, message):
    monkeypatch.chdir(my_loss.parent)
    result = checked(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output

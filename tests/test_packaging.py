"""What somebody gets who installs a wheel: commands, studies, papers and templates, from an empty folder."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.patience import patience
from tests.sweep.tiny_study import TINY

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
PACKAGES = [name.rstrip("*") for name in SETTINGS["tool"]["setuptools"]["packages"]["find"]["include"]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the packages of a wheel that was built from the sources, and nothing else of ours."""
    pytest.importorskip("setuptools", minversion="77", reason="building a wheel without network needs setuptools 77")
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "plots", ".records"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(source)]
    made = subprocess.run(build, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"robustsweep-{PROJECT['version']}-")
    target = folder / "site"
    install = [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(installed, folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "MPLCONFIGDIR": str(folder)}
    command = [sys.executable, str(installed / "bin" / "sweep"), *words]
    seconds = patience(240)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_every_file_that_is_no_code_is_in_the_wheel(installed):
    for top in PACKAGES:
        kinds = (".py", ".yaml", ".sbatch", ".html", ".css", ".js")
        files = [path for path in (ROOT / top).rglob("*") if path.suffix in kinds and "plots" not in path.parts]
        made = {"report.html"}  # a report may have been written beside its code
        lacking = [str(path) for path in files if path.name not in made or path.parent.name == "templates"]
        lacking = [path for path in lacking if not (installed / Path(path).relative_to(ROOT)).is_file()]
        assert lacking == []


@pytest.mark.timeout(600)
def test_a_study_runs_in_an_empty_folder_to_its_result(installed, tmp_path):
    assert run(installed, tmp_path, "new", "mine.yaml").returncode == 0
    small = {key: value for key, value in TINY.items() if key != "search"}
    small |= {"name": "small", "methods": {"st": {}}, "seeds": [0], "train": {**TINY["train"], "epochs": 1}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**small, "evaluation": {"attacks": ["clean"], "suite": None}}))
    found = run(installed, tmp_path, "run", "--study", "small")
    assert found.returncode == 0, found.stdout + found.stderr
    said = found.stderr
    assert "starting Ray (usually 10 to 30 s)" in said
    assert re.search(r"^ST +\S+ +\S+ +1$", said, re.MULTILINE), said
    assert said.index("method  ") < said.index(f"written: {tmp_path}/reports/tables.md")
    (tmp_path / "small.yaml").unlink()
    again = run(installed, tmp_path, "run", "--study", "small", "--dry-run")  # by its name in the store
    assert again.returncode == 0, again.stderr


def test_versions_agree_and_only_tried_pythons_are_named():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["version"] == PROJECT["version"]
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = next(section for section in sections if section != "Unreleased")
    assert re.match(rf"{re.escape(PROJECT['version'])} \(\d+ \w+ \d{{4}}\):", released)
    assert str(citation["date-released"].year) in released
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python ::" in one]
    assert named == ["3.11"]


# The oldest versions that have what the code uses; newer bounds may stand in pyproject.toml.
NEEDED = {
    "torch": (2, 9),  # torch.backends.cudnn.conv.fp32_precision, which 2.8 does not have
    "torchvision": (0, 24),  # the one for torch 2.9
    "ray": (2, 52),  # RAY_AUTH_MODE: 2.51 would take it without a word and ask nobody for the token
    "pandas": (2, 2, 2),  # the first that works with NumPy 2
    "typer": (0, 20),  # older ones end in a traceback with the click that pip installs beside them
}


def test_no_bound_lets_in_a_version_that_cannot_work():
    every = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    bounds: dict[str, list[tuple[int, ...]]] = {}
    for line in every:
        name, least = re.match(r"([\w-]+)(?:\[[\w,]+\])?(?:[>=]=)([\d.]+)", line).groups()
        bounds.setdefault(name, []).append(tuple(map(int, least.split("."))))
    for name, needed in NEEDED.items():
        assert min(bounds[name]) >= needed, name


def test_the_dockerfile_copies_what_there_is_and_uses_a_python_that_was_tried():
    text = (ROOT / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM python:([\d.]+)", text, re.MULTILINE)) == {"3.11"}
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied and all((ROOT / word).exists() for word in copied)
    assert len(PACKAGES) == 5 and set(PACKAGES) <= set(copied) and text.rstrip().endswith("FROM core")

"""What the documents say at first sight, and what none of them may say again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/*.md")])
FIRST_SCREEN = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])


@pytest.mark.parametrize(
    "address",
    [
        "https://proceedings.mlr.press/v202/kanai23a.html",
        "https://arxiv.org/abs/2207.10283",
        "https://github.com/fra31/auto-attack",
        "https://arxiv.org/abs/2003.01690",
        "https://robustbench.github.io",
        "https://arxiv.org/abs/2010.09670",
    ],
)
def test_the_readme_links_what_it_builds_on(address):
    assert f"({address})" in FIRST_SCREEN


def test_the_first_screen_says_what_was_not_run_and_how_small_the_study_is():
    words = " ".join(FIRST_SCREEN.split())
    assert "have not been run on a GPU yet" in words
    # Table 1 of the paper, CIFAR10 (RN18): AT 48.0, SOVR 49.4
    assert re.search(r"24\.9 % .*10,000 images on a CPU; .*48\.0 % with AT and 49\.4 % with SOVR", words)


@pytest.mark.parametrize("claim", ["against plain Ray Tune", "of plain Ray Tune", "warning holds"])
def test_no_document_repeats_what_was_wrong(claim):
    assert [path.name for path in DOCUMENTS if claim in path.read_text(encoding="utf-8")] == []


def test_files_that_the_map_of_the_code_names_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:sweep|trainers|reports|tests|benchmarks)/[\w/.]+)`", text))
    named = {path for path in named if "NAME" not in path}
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_module_form_of_a_command_needs_no_script():
    code = "import sys, sweep.run, sweep.application; sys.exit('sweep.cli' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0

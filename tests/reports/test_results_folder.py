"""The records in results/: whole, small, free of any machine's paths, and the tables beside them are theirs."""

import re
from pathlib import Path

import pytest

from reports import write_reports
from sweep.store import layout
from sweep.store.opening import existing_store
from sweep.store.verification import WEIGHTS, Verification

RESULTS = Path(__file__).parents[2] / "results"
LIMIT = 15_000_000  # bytes that a clone carries along
MACHINE = re.compile(rb"(?<![\w.])/(?:tmp|home|root|work|Users|mnt)/")


def test_the_published_tables_are_rendered_from_the_published_records_byte_for_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(RESULTS.parent)  # commands in the tables name the store as it was given
    write_reports(RESULTS.name, None, tmp_path, figures=False)
    assert (tmp_path / "tables.md").read_bytes() == (RESULTS / "tables.md").read_bytes()


def test_every_published_record_is_whole_and_only_weights_were_left_out():
    found = Verification(existing_store(str(RESULTS)))
    assert found.checked["trial"] and found.checked["evaluation"] and found.checked["study"]
    assert {(one.kind, one.reason) for one in found.findings if one.kind != WEIGHTS or not one.is_missing} == set()


def test_what_is_published_is_small_and_names_no_machine():
    caches = {*RESULTS.rglob(".*"), *(RESULTS / ".records").rglob("*")}
    files = [path for path in RESULTS.rglob("*") if path.is_file() and path not in caches]
    assert sum(path.stat().st_size for path in files) < LIMIT
    assert not any(path.name.endswith((layout.WEIGHTS, layout.LOG)) for path in files)
    assert [path for path in files if path.suffix != ".npz" and MACHINE.search(path.read_bytes())] == []


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("cifar10_small", "docs/cifar10_small.png", "docs/digits.png"), ("digits", "docs/digits.png", "## Two commands")],
)
def test_the_tables_of_the_readme_are_the_published_ones(name, begin, end):
    readme, tables = (
        (RESULTS.parent / name).read_text(encoding="utf-8") for name in ("README.md", "results/tables.md")
    )
    shown = _rows(readme.partition(begin)[2].partition(end)[0])
    study = tables.partition(f"(`{name}`)")[2].partition("### ")[2].partition("### ")[0]
    assert shown and set(shown) <= set(_rows(study))


def _rows(text: str) -> list[tuple[str, ...]]:
    """Cells of every line of a table, without the lines of dashes."""
    lines = (line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|:- "))
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]

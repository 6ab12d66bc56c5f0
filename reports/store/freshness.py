"""Check whether a report is up to date: a note beside the figures has the fingerprint of all it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from sweep.store import layout
from sweep.store.files import write_text
from sweep.store.opening import open_store

SOURCES = Path(__file__).parents[1]
CACHE = ".records"  # folder beside the tables for rows of records read before; safe to delete
NOTE = Path("plots", "made_from.txt")


def fingerprint(store_uri: str | Path, studies: Sequence[str] | None, paper: str | Path | None) -> str:
    """Return a hash of all records that a report could show, of the paper, and of the code that shows them.

    Manifests are rewritten often, so their content counts and not their time.
    """
    store = open_store(store_uri)
    facts = [f"{store.uri} {studies} {paper}", *_hashes(SOURCES, "*.py", "*.yaml", "templates/*")]
    if paper is not None:
        facts += _hashes(Path(paper), "*.yaml")
    folders = (layout.TRIALS, layout.EVALUATIONS, layout.DIAGNOSTICS, layout.SEARCHES, layout.DECISIONS)
    for folder in (*folders, layout.TRANSFERS):
        facts += sorted(
            f"{entry.path} {entry.size} {entry.modified}"
            for entry in store.entries(folder)
            if entry.path.endswith((".json", ".npz"))
        )
    manifests = store.read_many(store.paths(layout.STUDIES), lambda fault: facts.append(str(fault)))
    for path, data in manifests:
        facts.append(f"{path} {hashlib.sha256(data).hexdigest()}")
        facts += [line for folder in _paper_folders(data) for line in _hashes(folder, "*.yaml")]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _paper_folders(manifest: bytes) -> list[Path]:
    """Return the folders of the user's own papers that a manifest names. Shipped papers are among the sources."""
    try:
        names = json.loads(manifest).get("study", {}).get("papers", [])
    except (ValueError, AttributeError):  # reported when the records are loaded
        return []
    return [Path(name) for name in names if isinstance(name, str) and Path(name).is_dir()]


def write_note(out: Path, source: str, files: Sequence[Path]) -> None:
    """Note which fingerprint the files in `out` were made from."""
    names = [path.relative_to(out).as_posix() for path in files]
    write_text(out / NOTE, "\n".join([source, *names]) + "\n")


def current_files(out: Path, source: str) -> list[Path]:
    """Return the files that the note lists if it has this fingerprint and all of them exist, else nothing."""
    if not (out / NOTE).is_file():
        return []
    made_from, *names = (out / NOTE).read_text(encoding="utf-8", errors="replace").splitlines() or [""]
    files = [out / name for name in names]
    return files if made_from == source and all(path.exists() for path in files) else []


def kept_result(out: Path, study: str, source: str) -> str | None:
    """Return the stored result text of a study if it was made from this fingerprint."""
    try:
        made_from, _, text = _result_file(out, study).read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if made_from == source else None


def keep_result(out: Path, study: str, source: str, text: str) -> None:
    """Store the result text of a study with the fingerprint that it was made from."""
    path = _result_file(out, study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"{source}\n{text}")


def _result_file(out: Path, study: str) -> Path:
    return out / CACHE / f"result-{study}.txt"


def _hashes(folder: Path, *kinds: str) -> list[str]:
    """Return the hashes of files of these kinds alone: by default, reports go to the folder of the code."""
    paths = sorted({path for kind in kinds for path in folder.rglob(kind)})
    return [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]

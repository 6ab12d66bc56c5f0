"""report.html: tables, tests, figures, claims and the trials behind every number in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports import figures as drawing
from reports.layout import Cell, Table, p_text
from reports.measures import Results
from reports.page_trials import FailedTrial, failed_trials, study_trials
from reports.protocol import differences
from reports.records import ReportData
from reports.significance import study_tests
from reports.tables import attack_name, setting

TEMPLATES = Path(__file__).parent / "templates"
# A figure with thousands of points is smaller and quicker to show as pixels.
LARGEST_SVG = 160_000


@dataclass(frozen=True)
class PageCell:
    cell: Cell
    target: str  # id of the trials behind it, "" when there are none
    values: str  # per seed, for the dialog

    @property
    def sort(self) -> str:
        return "" if self.cell.sample is None else f"{self.cell.sample.mean:.6f}"


@dataclass(frozen=True)
class Body:
    header: str
    rows: tuple[tuple[str, tuple[PageCell, ...]], ...]


@dataclass(frozen=True)
class PageTable:
    """A table with methods down and measures across, whichever way the paper printed it."""

    id: str
    title: str
    corner: str
    groups: tuple[tuple[str, int], ...]  # header over so many columns; empty when there are none
    heads: tuple[str, ...]
    bodies: tuple[Body, ...]
    notes: tuple[str, ...]


def write_page(data: ReportData, tables: Sequence[Table], figures: Sequence[Path], out: Path) -> Path:
    """Write `out`/report.html. `figures` are the files of `draw_all`; captions come from the index beside them."""
    results = Results(data)
    trials = {name: study_trials(results, name, index) for index, name in enumerate(data.manifests)}
    targets = {(name, one.label): one.id for name, found in trials.items() for one in found}
    shown = [table for table in tables if table.filled or any(cell.planned for cell in table.cells())]
    pages = [(table, page_table(table, f"table-{index}", targets, results)) for index, table in enumerate(shown)]
    entries = _figures(figures)
    studies = []
    for index, (name, manifest) in enumerate(data.manifests.items()):
        names = results.labels[name]
        studies.append(
            {
                "id": f"study-{index}",
                "name": name,
                "title": str(manifest.get("title") or name),
                "setting": setting(manifest),
                "facts": _facts(results, name),
                "tables": [page for table, page in pages if table.number is None and _study_of(table) == name],
                "tests": study_tests(results, name),
                "figures": [entry for entry in entries if entry["study"] == name and entry["uri"]],
                "lacking": [entry for entry in entries if entry["study"] == name and not entry["uri"]],
                "differences": differences(manifest, names),
                "searches": _searches(data, name, names),
                "trials": trials[name],
            }
        )
    failed: list[FailedTrial] = failed_trials(results)
    html = _render(
        studies=studies,
        paper=[page for table, page in pages if table.number is not None],
        general=[entry for entry in entries if entry["study"] is None and entry["uri"]],
        claims=[],
        failed=failed,
        problems=data.problems,
    )
    path = out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path


def _render(**content: Any) -> str:
    """Autoescape is on for every template; only our own style sheet and script are put in as they are."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"p": p_text, "attack": attack_name, "marks": marks}
    style = (TEMPLATES / "report.css").read_text("utf-8")
    script = (TEMPLATES / "report.js").read_text("utf-8")
    return environment.get_template("report.html").render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        **content,
    )


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def marks(cell: Cell) -> str:
    return ("†" if cell.warned else "") + ("‡" if cell.collapsed else "") + ("§" if cell.failed else "")


def page_table(table: Table, name: str, targets: dict[tuple[str, str], str], results: Results) -> PageTable:
    title = f"Table {table.number}: {table.title}" if table.number else table.title

    def place(cell: Cell) -> PageCell:
        target = targets.get((cell.key.study, cell.label), "") if cell.label else ""
        values = ""
        if cell.sample is not None and cell.seeds:
            pairs = zip(cell.seeds, cell.sample.values, strict=False)
            values = ", ".join(f"seed {seed}: {value:.2f}" for seed, value in pairs)
        return PageCell(cell, target, values)

    if table.compare == "column" or len(table.columns) == 1:
        bodies = tuple(
            Body(block.header, tuple((row.header, tuple(map(place, row.cells))) for row in block.rows))
            for block in table.blocks
        )
        heads = tuple(column.header for column in table.columns)
        return PageTable(name, title, table.corner or "Method", (), heads, bodies, table.notes)
    rows = [(block.header, row) for block in table.blocks for row in block.rows]
    bodies = tuple(
        Body(
            group,
            tuple(
                (column.header, tuple(place(row.cells[index]) for _, row in rows))
                for index, column in enumerate(table.columns)
                if column.group == group
            ),
        )
        for group in dict.fromkeys(column.group for column in table.columns)
    )
    spans = tuple((block.header, len(block.rows)) for block in table.blocks)
    groups = spans if any(header for header, _ in spans) else ()
    # What stands in a row of the paper's layout stands in a column here.
    notes = tuple(re.sub(r"(of its|within the) row", r"\1 column", note) for note in table.notes)
    return PageTable(name, title, "Method", groups, tuple(row.header for _, row in rows), bodies, notes)


def _study_of(table: Table) -> str | None:
    return next((cell.key.study for cell in table.cells()), None)


def _facts(results: Results, study: str) -> dict[str, Any]:
    manifest = results.data.manifests[study]
    planned = [one for label in results.labels[study] for one in results.seeds(study, label)]
    return {
        "protocol": str(manifest.get("protocol", "paper")),
        "checkpoint": results.data.headline(study),
        "epsilon": str(manifest.get("epsilon", "")),
        "seeds": ", ".join(str(seed) for seed in manifest["seeds"]),
        "done": sum(one.status == "done" for one in planned),
        "planned": len(planned),
        "failed": sum(one.status == "failed" for one in planned),
        "collapsed": sum(one.status == "collapsed" for one in planned),
    }


def _figures(figures: Sequence[Path]) -> list[dict[str, Any]]:
    """The index of what was drawn, each figure as a data address."""
    if not figures:
        return []
    folder = figures[0].parent
    entries = []
    for entry in drawing.read_index(folder):
        uri = ""
        if entry.files:
            svg, png = (folder / name for name in entry.files)
            chosen = svg if svg.stat().st_size <= LARGEST_SVG else png
            kind = "image/svg+xml" if chosen is svg else "image/png"
            uri = f"data:{kind};base64,{base64.b64encode(chosen.read_bytes()).decode()}"
        entries.append(
            {
                "study": entry.study,
                "name": entry.name,
                "title": entry.title,
                "caption": entry.caption,
                "uri": uri,
                "reason": entry.reason,
                "command": entry.command,
            }
        )
    return entries


def _searches(data: ReportData, study: str, names: dict[str, str]) -> list[dict[str, Any]]:
    found = []
    for entry in data.manifests[study].get("searches") or []:
        record = data.searches.get(entry["id"])
        if record is None:
            continue
        candidates = record.get("candidates") or []
        parameters = list(dict.fromkeys(name for one in candidates for name in one.get("hyperparameters") or {}))
        found.append(
            {
                "title": names.get(str(entry["label"]), str(entry["label"])),
                "objective": str(record.get("objective") or "score").replace("_", " "),
                "chosen": _values(record.get("chosen")),
                "paper": _values(record.get("paper_value")),
                "reason": str(record.get("reason") or ""),
                "parameters": parameters,
                "candidates": [_candidate(one, record, parameters) for one in candidates],
            }
        )
    return found


def _candidate(one: dict[str, Any], record: dict[str, Any], parameters: list[str]) -> dict[str, Any]:
    values, chosen = one.get("hyperparameters") or {}, record.get("chosen") or {}
    score = one.get("value")
    return {
        "values": [str(values.get(name, "")) for name in parameters],
        "score": score if isinstance(score, int | float) else None,
        "epochs": one.get("epochs"),
        "state": "pruned" if one.get("pruned") else str(one.get("state") or ""),
        "chosen": bool(chosen) and all(values.get(name) == value for name, value in chosen.items()),
        "trial": str(one.get("trial") or "")[:16],
    }


def _values(values: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) if isinstance(values, dict) else ""

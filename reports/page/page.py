"""report.html: tables, tests, figures, claims and the trials behind every number in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports.claims import judge as claims
from reports.claims.sources import Ours
from reports.decisions import NOTE as SEQUENTIAL
from reports.decisions import decisions
from reports.names import attack_name, listed, ranking_words, setting
from reports.page.pictures import Picture, first_sentence, read_pictures
from reports.page.tables import PageTable, page_table, shorter
from reports.page.trials import FailedTrial, MethodTrials, failed_trials, study_trials
from reports.protocol import differences
from reports.results import Results
from reports.significance import Tests, study_tests
from reports.tables.caption import study_twins
from reports.tables.table import Key, Table, headline_measure, p_text, signed
from sweep.commands import spelled, store_words
from sweep.store import layout
from sweep.store.files import write_text
from sweep.store.records.search import CandidateEntry, SearchRecord

TEMPLATES = Path(__file__).parent / "templates"
REFRESH_SECONDS = 60
# Each method can be compared with each other while these are so many; else with the baseline and the best alone.
MOST_REFERENCES = 24


@dataclass(frozen=True)
class Download:
    """A file beside the page, by its relative address."""

    address: str
    words: str
    bytes: int

    @property
    def size(self) -> str:
        return f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{max(1, round(self.bytes / 1e3))} kB"


def write_page(
    results: Results,
    tables: Sequence[Table],
    figures: Sequence[Path],
    out: Path,
    *,
    running: bool = False,
    home: str = "",
    downloads: Sequence[Download] = (),
) -> Path:
    """Write `out`/report.html. `figures` are the files of `draw_all`; captions come from the index beside them.

    A page of a sweep that is `running` looks for a newer one of itself. As a part of a site it has a way `home`, and
    `downloads` beside it.
    """
    data = results.data
    trials = {name: study_trials(results, name, index) for index, name in enumerate(data.manifests)}
    targets = {(name, one.label): one.id for name, found in trials.items() for one in found}
    shown = [table for table in tables if table.planned]
    pages = [(table, page_table(table, f"table-{index}", targets)) for index, table in enumerate(shown)]
    pictures = read_pictures(figures)
    drawn = [one for one in pictures if one.uri]
    studies = []
    for index, (name, manifest) in enumerate(data.manifests.items()):
        own = [(table, page) for table, page in pages if table.number is None and _study_of(table) == name]
        mine = [one for one in drawn if one.entry.study == name]
        measure = headline_measure(own[0][0]) if own else "autoattack"
        tests = study_tests(results, name, measure, everyone=len(results.labels[name]) <= MOST_REFERENCES)
        searches = _searches(results, name)
        studies.append(
            {
                "id": f"study-{index}",
                "name": name,
                "title": results.title(name),
                "setting": setting(manifest),
                "tables": [shorter(page, results.title(name)) for _, page in own],
                "hero": next((one for one in mine if one.entry.name == "hero"), None),
                "figures": [one for one in mine if one.entry.name != "hero"],
                "measure": measure,
                "results": _results(results, name, measure, trials[name]),
                "sections": _sections(own, tests, mine, searches),
                "tests": tests,
                "twins": study_twins(results, name),
                "decisions": decisions(results, name),
                **summary(results, name, own[0][0] if own else None, tests),
                "lacking": [one.entry for one in pictures if one.entry.study == name and not one.uri],
                "differences": differences(manifest, results.labels[name]),
                "searches": searches,
                "trials": trials[name],
            }
        )
    failed: list[FailedTrial] = failed_trials(results)
    html = render(
        "report.html",
        studies=studies,
        paper=[page for table, page in pages if table.number is not None],
        general=[one for one in drawn if one.entry.name in results.paper.theory],
        together=[one for one in drawn if one.entry.study is None and one.entry.name not in results.paper.theory],
        written=datetime.now(UTC) if running else None,
        refresh=REFRESH_SECONDS,
        home=home,
        downloads=downloads,
        citation=" ".join(paper.citation for paper in results.papers),
        sequential=SEQUENTIAL,
        claims=_claims(results),
        failed=failed,
        problems=data.problems,
        again=spelled("reports", *store_words(data.store.uri), "--out", str(out)),
        start=data.run_command("digits"),
    )
    path = out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def render(template: str, folder: Path = TEMPLATES, **content: Any) -> str:
    """Autoescape is on for every template; only our own style sheet and script are put in as they are."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"p": p_text, "attack": attack_name, "signed": signed, "first_sentence": first_sentence}
    style = (TEMPLATES / "report.css").read_text("utf-8")
    script = (TEMPLATES / "report.js").read_text("utf-8")
    return environment.get_template(template).render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        **content,
    )


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _claims(results: Results) -> list[dict[str, Any]]:
    """The paper's claims in its own settings, then what other studies say to them."""
    groups = []
    for paper in results.papers:
        ours = results.beside(paper)
        source = Ours(ours)
        of = f"{paper.name}: " if len(results.papers) > 1 else ""
        if judged := claims.judge(source):
            groups.append(_claim_group(f"{of}In the settings of the paper", "", judged))
        for study in results.data.manifests:
            other = study not in paper.studies and ours.compares(study)
            if other and (judged := claims.judge_study(source, study)):
                note = "Not a setting of the paper: what follows neither supports nor refutes it."
                groups.append(_claim_group(f"{of}The same claims on {results.title(study)}", note, judged))
    return groups


def _claim_group(title: str, note: str, judged: list[claims.Claim]) -> dict[str, Any]:
    known = [claim for claim in judged if claim.verdict != "not run"]
    return {"title": title, "note": note, "judged": known, "open": [one for one in judged if one not in known]}


def summary(results: Results, study: str, main: Table | None, tests: list[Tests]) -> dict[str, Any]:
    """What a study comes to, in the words of one sentence; `main` is its first table."""
    return {
        "facts": _facts(results, study),
        "winners": _winners(main) if main else [],
        "ranking": " ".join(ranking_words(headline_measure(main) if main else "autoattack")),
        "reference": tests[0].reference_display if tests else "",
        "verdicts": _verdicts(tests),
    }


def _winners(main: Table) -> list[tuple[str, str]]:
    """The best of the main table's first row, with another n than the usual; a single method is no winner."""
    pairs = zip(main.columns, main.blocks[0].rows[0].cells, strict=True)
    best = [pair for pair in pairs if pair[1].best and not pair[1].same_as]
    return [(column.header, f"{cell.text} %{cell.marks}{cell.n_text}") for column, cell in best]


def _verdicts(tests: list[Tests]) -> list[tuple[str, str]]:
    if not tests:
        return []
    words = {"better": "Better than", "worse": "Worse than", "undecided": "Not told apart from"}
    return [
        (text, listed(names))
        for verdict, text in words.items()
        if (names := [row.display for row in tests[0].rows if row.verdict == verdict])
    ]


def _study_of(table: Table) -> str | None:
    return next((cell.key.study for cell in table.cells()), None)


def _facts(results: Results, study: str) -> dict[str, Any]:
    planned = results.trainings(study)
    return {
        "protocol": results.protocol(study),
        "checkpoint": results.data.headline(study),
        "epsilon": results.radius_text(study).removeprefix("ε = "),
        "seeds": ", ".join(str(seed) for seed in results.data.manifests[study].seeds),
        "done": sum(one.status == "done" for one in planned),
        "planned": len(planned),
        "failed": sum(one.status == "failed" for one in planned),
        "collapsed": sum(one.status == "collapsed" for one in planned),
    }


def _results(results: Results, study: str, measure: str, trials: list[MethodTrials]) -> dict[str, tuple[str, str]]:
    """By id of a method's trials: its headline number as shown, and as what it is sorted by."""
    found = {}
    for one in trials:
        cell = results.cell(Key(study, one.label, measure, results.epsilon(study)))
        found[one.id] = (cell.text, f"{cell.sample.mean:.6f}" if cell.sample else "")
    return found


def _sections(
    own: list[tuple[Table, PageTable]], tests: list[Tests], figures: list[Picture], searches: list[dict[str, Any]]
) -> list[tuple[str, str]]:
    """Of one study, for the contents: the end of the section's id, and its heading."""
    sections = {
        "results": ("Results", bool(own)),
        "sure": ("How sure is that?", bool(tests)),
        "tables": ("More tables", len(own) > 1),
        "figures": ("Figures", any(one.entry.name != "hero" for one in figures)),
        "protocol": ("Differences in protocol", True),
        "searches": ("Searches", bool(searches)),
        "trials": ("Trials", True),
    }
    return [(name, heading) for name, (heading, present) in sections.items() if present]


def _searches(results: Results, study: str) -> list[dict[str, Any]]:
    found = []
    paper = results.paper if results.compares(study) else results.paper.bare()
    for label, search in results.searches(study).items():
        record = results.data.searches.get(search)
        if record is None:
            continue
        parameters = list(dict.fromkeys(name for one in record.candidates for name in one.hyperparameters))
        found.append(
            {
                "title": results.labels[study].get(label, label),
                "objective": record.objective.replace("_", " "),
                "chosen": _values(record.chosen),
                "paper": _values(record.paper_value) if paper.has_method(record.method) else "",
                "own": _values(record.own_value),
                "reason": record.reason,
                "parameters": parameters,
                "candidates": [_candidate(one, record, parameters) for one in record.candidates],
            }
        )
    return found


def _candidate(one: CandidateEntry, record: SearchRecord, parameters: list[str]) -> dict[str, Any]:
    values, chosen = one.hyperparameters, record.chosen or {}
    return {
        "values": [str(values.get(name, "")) for name in parameters],
        "score": one.value,
        "epochs": one.epochs,
        "state": one.state,
        "chosen": bool(chosen) and all(values.get(name) == value for name, value in chosen.items()),
        "trial": layout.short(one.trial),
    }


def _values(values: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) if isinstance(values, dict) else ""

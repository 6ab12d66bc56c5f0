"""report.html: tables, tests, figures, claims and the trials behind every number, in one file that needs no network."""

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

from reports.analysis.claims import judge as claims
from reports.analysis.claims.sources import Ours
from reports.analysis.decisions import NOTE as SEQUENTIAL
from reports.analysis.decisions import Decision, decisions
from reports.analysis.names import attack_name, listed, ranking_words, setting
from reports.analysis.results import Results
from reports.analysis.significance import Tests, study_tests
from reports.comparison.protocol import SettingDifference, differences
from reports.figures.draw import FigureEntry
from reports.page.pictures import Picture, first_sentence, read_pictures
from reports.page.tables import PageTable, page_table, shorter
from reports.page.trials import MethodTrials, failed_trials, study_trials
from reports.tables.caption import study_twins
from reports.tables.table import Key, Table, headline_measure, p_text, signed
from sweep.commands import spelled, store_words
from sweep.store import layout
from sweep.store.files import write_text
from sweep.store.records.search import CandidateEntry, SearchRecord

TEMPLATES = Path(__file__).parent / "templates"
REFRESH_SECONDS = 60
# Up to this many methods, each can be compared with each other; beyond it, only with the baseline and the best.
MOST_REFERENCES = 24


@dataclass(frozen=True)
class Download:
    """A file beside the page, with its relative address."""

    address: str
    words: str
    bytes: int

    @property
    def size(self) -> str:
        return f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{max(1, round(self.bytes / 1e3))} kB"


@dataclass(frozen=True)
class StudyFacts:
    """Settings of a study, and the counts of its trainings by status."""

    protocol: str
    checkpoint: str
    epsilon: str
    seeds: str
    done: int
    planned: int
    failed: int
    collapsed: int


@dataclass(frozen=True)
class StudySummary:
    """The outcome of a study, for one sentence."""

    facts: StudyFacts
    winners: list[tuple[str, str]]  # name and number
    ranking: str  # "robust under AutoAttack"
    reference: str  # the method that the verdicts refer to
    verdicts: list[tuple[str, str]]  # verdict and the names of the methods


@dataclass(frozen=True)
class CandidateRow:
    """A candidate of a search; `values` are in the order of the search's parameters."""

    values: list[str]
    score: float | None
    epochs: int | None
    state: str
    chosen: bool
    trial: str


@dataclass(frozen=True)
class SearchSection:
    """A search of a study, with its candidates. `paper` and `own` are the fixed candidates, in words."""

    title: str
    objective: str
    chosen: str
    paper: str
    own: str
    reason: str
    parameters: list[str]
    candidates: list[CandidateRow]


@dataclass(frozen=True)
class StudySection:
    """One study on the page."""

    id: str
    name: str
    title: str
    setting: str
    summary: StudySummary
    tables: list[PageTable]  # the main one first
    hero: Picture | None
    figures: list[Picture]
    missing_figures: list[FigureEntry]
    measure: str  # by which methods are ranked
    results: dict[str, tuple[str, str]]  # by id of a method's trials: the number as text and as sort key
    sections: list[tuple[str, str]]  # end of the section's id, and its heading
    tests: list[Tests]
    twins: list[str]
    decisions: list[Decision]
    differences: list[SettingDifference]
    searches: list[SearchSection]
    trials: list[MethodTrials]


@dataclass(frozen=True)
class ClaimGroup:
    """Claims judged in the same settings, with those not run yet."""

    title: str
    note: str
    judged: list[claims.Claim]
    open: list[claims.Claim]


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
    """Write report.html into the folder `out`.

    Args:
        figures: The files that `draw_all` returned. Captions come from the index beside them.
        running: Whether the sweep is still running. The page then reloads itself.
        home: Relative address of the site's index, if the page is part of a site.
        downloads: Files beside the page to offer.

    Returns:
        The path of the page.
    """
    data = results.data
    trials = {name: study_trials(results, name, index) for index, name in enumerate(data.manifests)}
    targets = {(name, method.label): method.id for name, methods in trials.items() for method in methods}
    planned = [table for table in tables if table.planned]
    pages = [(table, page_table(table, f"table-{index}", targets)) for index, table in enumerate(planned)]
    pictures = read_pictures(figures)
    drawn = [picture for picture in pictures if picture.uri]
    theory = results.paper.theory
    html = render(
        "report.html",
        studies=[
            _study_section(results, name, index, pages, pictures, trials[name])
            for index, name in enumerate(data.manifests)
        ],
        paper=[page for table, page in pages if table.number is not None],
        general=[picture for picture in drawn if picture.entry.name in theory],
        together=[picture for picture in drawn if picture.entry.study is None and picture.entry.name not in theory],
        written=datetime.now(UTC) if running else None,
        refresh=REFRESH_SECONDS,
        home=home,
        downloads=downloads,
        citation=" ".join(paper.citation for paper in results.papers),
        sequential=SEQUENTIAL,
        claims=_claims(results),
        principle=claims.PRINCIPLE,
        failed=failed_trials(results),
        problems=data.problems,
        again=spelled("reports", *store_words(data.store.uri), "--out", str(out)),
        start=data.run_command("digits"),
    )
    path = out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def _study_section(
    results: Results,
    study: str,
    index: int,
    pages: list[tuple[Table, PageTable]],
    pictures: list[Picture],
    trials: list[MethodTrials],
) -> StudySection:
    manifest = results.data.manifests[study]
    own = [(table, page) for table, page in pages if table.number is None and _study_of(table) == study]
    drawn = [picture for picture in pictures if picture.entry.study == study and picture.uri]
    measure = headline_measure(own[0][0]) if own else "autoattack"
    tests = study_tests(results, study, measure, everyone=len(results.labels[study]) <= MOST_REFERENCES)
    searches = _searches(results, study)
    return StudySection(
        id=f"study-{index}",
        name=study,
        title=results.title(study),
        setting=setting(manifest),
        summary=summary(results, study, own[0][0] if own else None, tests),
        tables=[shorter(page, results.title(study)) for _, page in own],
        hero=next((picture for picture in drawn if picture.entry.name == "hero"), None),
        figures=[picture for picture in drawn if picture.entry.name != "hero"],
        missing_figures=[picture.entry for picture in pictures if picture.entry.study == study and not picture.uri],
        measure=measure,
        results=_results(results, study, measure, trials),
        sections=_sections(own, tests, drawn, searches),
        tests=tests,
        twins=study_twins(results, study),
        decisions=decisions(results, study),
        differences=differences(manifest, results.labels[study]),
        searches=searches,
        trials=trials,
    )


def render(template: str, folder: Path = TEMPLATES, **content: Any) -> str:
    """Return the filled template. All content is escaped, except our own style sheet and script."""
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


def _claims(results: Results) -> list[ClaimGroup]:
    """Return each paper's claims in its own settings, then judged on the other studies."""
    groups = []
    for paper in results.papers:
        ours = results.beside(paper)
        source = Ours(ours)
        prefix = f"{paper.name}: " if len(results.papers) > 1 else ""
        if judged := claims.judge(source):
            groups.append(_claim_group(f"{prefix}In the settings of the paper", "", judged))
        for study in results.data.manifests:
            is_other = study not in paper.studies and ours.compares(study)
            if is_other and (judged := claims.judge_study(source, study)):
                note = "Not a setting of the paper, so these results neither support nor refute it."
                groups.append(_claim_group(f"{prefix}The same claims on {results.title(study)}", note, judged))
    return groups


def _claim_group(title: str, note: str, claim_list: list[claims.Claim]) -> ClaimGroup:
    judged = [claim for claim in claim_list if claim.verdict != "not run"]
    return ClaimGroup(title, note, judged, [claim for claim in claim_list if claim not in judged])


def summary(results: Results, study: str, main: Table | None, tests: list[Tests]) -> StudySummary:
    """Return the outcome of a study; `main` is its first table."""
    return StudySummary(
        facts=_facts(results, study),
        winners=_winners(main) if main else [],
        ranking=" ".join(ranking_words(headline_measure(main) if main else "autoattack")),
        reference=tests[0].reference_display if tests else "",
        verdicts=_verdicts(tests),
    )


def _winners(main: Table) -> list[tuple[str, str]]:
    """Return name and number of the best methods in the main table's first row; a single method is no winner."""
    pairs = zip(main.columns, main.blocks[0].rows[0].cells, strict=True)
    best = [pair for pair in pairs if pair[1].best and not pair[1].same_as]
    return [(column.header, f"{cell.text} %{cell.marks}{cell.n_text}") for column, cell in best]


def _verdicts(tests: list[Tests]) -> list[tuple[str, str]]:
    if not tests:
        return []
    words = {"better": "Better than", "worse": "Worse than", "undecided": "Undecided against"}
    return [
        (text, listed(names))
        for verdict, text in words.items()
        if (names := [row.display for row in tests[0].rows if row.verdict == verdict])
    ]


def _study_of(table: Table) -> str | None:
    return next((cell.key.study for cell in table.cells()), None)


def _facts(results: Results, study: str) -> StudyFacts:
    statuses = [training.status for training in results.trainings(study)]
    return StudyFacts(
        protocol=results.protocol(study),
        checkpoint=results.data.headline(study),
        epsilon=results.radius_text(study).removeprefix("ε = "),
        seeds=", ".join(str(seed) for seed in results.data.manifests[study].seeds),
        done=statuses.count("done"),
        planned=len(statuses),
        failed=statuses.count("failed"),
        collapsed=statuses.count("collapsed"),
    )


def _results(results: Results, study: str, measure: str, trials: list[MethodTrials]) -> dict[str, tuple[str, str]]:
    """Return, by id of a method's trials, its headline number as text and as sort key."""
    numbers = {}
    for method in trials:
        cell = results.cell(Key(study, method.label, measure, results.epsilon(study)))
        numbers[method.id] = (cell.text, f"{cell.sample.mean:.6f}" if cell.sample else "")
    return numbers


def _sections(
    own: list[tuple[Table, PageTable]], tests: list[Tests], figures: list[Picture], searches: list[SearchSection]
) -> list[tuple[str, str]]:
    """Return a study's entries in the table of contents: the end of the section's id, and its heading."""
    sections = {
        "results": ("Results", bool(own)),
        "sure": ("How sure is that?", bool(tests)),
        "tables": ("More tables", len(own) > 1),
        "figures": ("Figures", any(picture.entry.name != "hero" for picture in figures)),
        "protocol": ("Differences in protocol", True),
        "searches": ("Searches", bool(searches)),
        "trials": ("Trials", True),
    }
    return [(name, heading) for name, (heading, present) in sections.items() if present]


def _searches(results: Results, study: str) -> list[SearchSection]:
    sections = []
    paper = results.paper if results.compares(study) else results.paper.bare()
    for label, search in results.searches(study).items():
        record = results.data.searches.get(search)
        if record is None:
            continue
        parameters = list(dict.fromkeys(name for candidate in record.candidates for name in candidate.hyperparameters))
        sections.append(
            SearchSection(
                title=results.labels[study].get(label, label),
                objective=record.objective.replace("_", " "),
                chosen=_values(record.chosen),
                paper=_values(record.paper_value) if paper.has_method(record.method) else "",
                own=_values(record.own_value),
                reason=record.reason,
                parameters=parameters,
                candidates=[_candidate(candidate, record, parameters) for candidate in record.candidates],
            )
        )
    return sections


def _candidate(candidate: CandidateEntry, record: SearchRecord, parameters: list[str]) -> CandidateRow:
    values, chosen = candidate.hyperparameters, record.chosen or {}
    return CandidateRow(
        values=[str(values.get(name, "")) for name in parameters],
        score=candidate.value,
        epochs=candidate.epochs,
        state=candidate.state,
        chosen=bool(chosen) and all(values.get(name) == value for name, value in chosen.items()),
        trial=layout.short(candidate.trial),
    )


def _values(values: Any) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) if isinstance(values, dict) else ""

"""tables.md: an overview, the paper's tables, and each study's tables and tests. Equal records give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reports.analysis.decisions import NOTE as SEQUENTIAL
from reports.analysis.decisions import asked_pairs, decisions
from reports.analysis.names import attack_name, listed, ranking_words, setting
from reports.analysis.results import Results
from reports.analysis.significance import Tests, Versus, advice, seeds_command, study_tests
from reports.tables.caption import added_notes, study_twins
from reports.tables.markdown import code, escape, grid, render
from reports.tables.table import Table, TableCell, best_index, headline_measure, p_text, signed
from sweep.commands import spelled, store_words

MOST_ADVICE = 8


def write(results: Results, studies: dict[str, list[Table]], paper: list[Table]) -> str:
    """Return the content of tables.md. `studies` has the tables of each study, the main one first."""
    tests = {study: study_tests(results, study, headline_measure(tables[0])) for study, tables in studies.items()}
    present = [table for table in paper if table.planned]
    absent = [table for table in paper if not table.planned]
    parts = ["# Results", glance(results, studies, tests), *paper_section(results, present)]
    for study, tables in studies.items():
        parts.append(study_section(results, study, tables, tests[study]))
    if absent:
        command = code(results.data.run_command("NAME"))
        parts.append(f"## Tables of the paper not run in this store\n\n{command} runs a study.")
        parts.append("\n".join(_absent(table) for table in absent))
    problems = results.data.problems
    if problems:
        parts.append(f"## Left out\n\nThese {len(problems)} records could not be used:")
        parts.append("\n".join(f"- {code(problem.path)}: {escape(problem.reason)}" for problem in problems[:50]))
        if len(problems) > 50:
            parts.append(f"… and {len(problems) - 50} more.")
    return "\n\n".join(parts) + "\n"


def glance(results: Results, studies: dict[str, list[Table]], tests: dict[str, list[Tests]]) -> str:
    if not studies:
        return f"The store holds no study yet. {code(results.data.run_command('digits'))} runs the default one."
    rows = []
    for study, tables in studies.items():
        robust = tables[0].blocks[0].rows[0]
        best = [i for i, cell in enumerate(robust.cells) if cell.best and not cell.same_as]
        # A single method is listed although it is not better than any other.
        listed_cells = best or [i for i, cell in enumerate(robust.cells) if cell.sample is not None][:1]
        winner = ", ".join(_winner(tables[0].columns[i].header, robust.cells[i]) for i in listed_cells) or "—"
        lead, done = _lead(results, tests[study]), _done(results, study)
        rows.append([code(study), escape(setting(results.data.manifests[study])), robust.header, winner, lead, done])
    compared = f"Compared with {results.paper.display(results.paper.baseline)}"
    table = grid(rows, ["Study", "Data, model", "Against", "Best", compared, "Trainings"], numbers=False)
    return "\n\n".join([table, *_headlines(tests)])


def _winner(name: str, cell: TableCell) -> str:
    return f"**{escape(name)}** {cell.text}{cell.marks}{cell.n_text}"


def _lead(results: Results, tests: list[Tests]) -> str:
    """Return the lead of the best method over the baseline, in a few words."""
    against = next((test for test in tests if test.reference == results.paper.baseline), None)
    if against is None or not against.rows:
        return "—"
    if against.is_best:
        return f"the best is {results.paper.display(against.reference)} itself"
    row = against.rows[best_index(row.cell.sample for row in against.rows) or 0]
    p = row.comparison.deciding
    outcome = f", p = {p_text(p)}".replace("= <", "< ")
    if row.shaky:
        outcome = ", undecided: lost seeds"
    return f"{signed(row.comparison.difference)} points{'' if p is None else outcome}"


def _headlines(tests: dict[str, list[Tests]]) -> list[str]:
    lines = [f"- {code(study)}: {_sentence(study_tests[0])}" for study, study_tests in tests.items() if study_tests]
    return ["\n".join(lines)] if lines else []


def _sentence(test: Tests) -> str:
    named: dict[str, list[str]] = {"better": [], "worse": [], "undecided": []}
    for row in test.rows:
        named.setdefault(row.verdict, []).append(escape(row.display))
    reference = escape(test.reference_display)
    robust, condition = ranking_words(test.measure)
    parts = []
    if named["better"]:
        parts.append(f"more {robust} than {reference}: {listed(named['better'])}")
    if named["worse"]:
        parts.append(f"less {robust} than {reference}: {listed(named['worse'])}")
    if named["undecided"]:
        parts.append(f"not decided against {reference}: {listed(named['undecided'])}")
    rest = [
        name for verdict, names in named.items() if verdict not in ("better", "worse", "undecided") for name in names
    ]
    if rest:
        parts.append(f"not testable yet: {listed(rest)}")
    return f"{condition}, {'; '.join(parts)} ({test.rule})."


def _done(results: Results, study: str) -> str:
    planned = results.trainings(study)
    counts = Counter(training.status for training in planned)
    text = f"{counts.pop('done', 0)}/{len(planned)}"
    return text + "".join(f", {count} {status}" for status, count in sorted(counts.items()))


def study_section(results: Results, study: str, tables: list[Table], tests: list[Tests]) -> str:
    parts = [f"## {escape(results.title(study))} ({code(study)})"]
    parts.append(render(tables[0], heading="Robust and clean accuracy"))
    if tests:
        parts.append(f"### How sure is that? ({attack_name(tests[0].measure)})")
        parts += [tests_text(test) for test in tests]
        notes = [*study_twins(results, study), *added_notes(tables[0].blocks[0].rows[0].cells)]
        parts.append(f"<sub>{' '.join([TESTS_CAPTION, *map(escape, notes)])}</sub>")
        parts += _advice(results, study, tests)
    decided = decisions(results, study)
    if decided:
        parts.append("### Sequential claims")
        parts.append("\n".join(f"- {escape(decision.line)}" for decision in decided))
        parts.append(f"<sub>{SEQUENTIAL}</sub>")
    for table in tables[1:]:
        heading = table.title.removeprefix(f"{results.title(study)}: ")
        parts.append(render(table, heading=heading[:1].upper() + heading[1:]))
    parts.append(runs_text(results, study))
    return "\n\n".join(parts)


TESTS_CAPTION = (
    "Δ: difference of the means in percentage points, with its 95 % interval over seeds (Welch). p: two-sided t-tests "
    "over seeds: Student (equal variances), Welch (unequal) and paired (the same seed means the same initial weights "
    "and data order). p deciding gives the verdict at α = 0.05: against a reference that was fixed beforehand Welch's "
    "after Holm within the table; against the best, which the data chose, Dunnett's T3 over all pairs. The paired p "
    "decides nothing: it has half the degrees of freedom, and how far a seed moves two methods alike is unknown. What "
    "looks better while one of its seeds collapsed or failed stays undecided. g: Hedges' g. Over images: the same "
    "difference with its 95 % interval if the test images were drawn again (paired bootstrap), and McNemar's exact p "
    "of each seed. Seeds and images are two different sources of chance; a claim should survive both."
)


def tests_text(test: Tests) -> str:
    against = f"{test.reference_display}, the best" if test.is_best else test.reference_display
    rows = []
    for row in test.rows:
        c = row.comparison
        images = row.over_images
        between = "–" if c.low is None or c.high is None else f"[{signed(c.low)}, {signed(c.high)}]"
        rows.append(
            [
                escape(row.name),
                signed(c.difference),
                between,
                p_text(c.student),
                p_text(c.welch),
                p_text(row.paired),
                p_text(c.deciding),
                "–" if c.hedges_g is None else signed(c.hedges_g),
                "–" if images is None else f"[{signed(images.low)}, {signed(images.high)}]",
                "–" if images is None else _span(images.mcnemar),
                _verdict(row),
            ]
        )
    headers = [
        *("Δ", "95 % over seeds", "p Student", "p Welch", "p paired", "p deciding"),
        *("g", "95 % over images", "p McNemar", "Verdict"),
    ]
    return grid(rows, [f"against {escape(against)}", *headers])


def _verdict(row: Versus) -> str:
    text = escape(row.verdict)
    return f"**{text}**" if row.verdict in ("better", "worse") else text


def _span(p_values: Iterable[float]) -> str:
    texts = [p_text(p) for p in sorted(p_values)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _advice(results: Results, study: str, tests: list[Tests]) -> list[str]:
    lines: dict[str, None] = {}
    for test in tests:
        compared_pairs = asked_pairs(results, study, test.measure)
        if test.can_find is not None:
            lines[escape(test.can_find)] = None
        for row in test.rows:
            already_compared = frozenset((row.label, test.reference)) in compared_pairs
            text = None if already_compared else advice(results.data, test, row)
            if text is not None:
                name, _, command = text.partition("`")
                lines[f"{escape(name)} `{command}" if command else escape(name)] = None
    items = list(lines)
    if len(items) > MOST_ADVICE:
        items = [*items[:MOST_ADVICE], f"… and {len(items) - MOST_ADVICE} more undecided comparisons."]
    return ["\n".join(f"- {item}" for item in items)] if items else []


def runs_text(results: Results, study: str) -> str:
    """Return the section on what was trained, with which values, and what is missing."""
    configs, searched = results.configs(study), results.searches(study)
    rows = []
    failed: dict[str, list[int]] = {}
    for label, display in results.labels[study].items():
        seeds = results.seeds(study, label)
        counts = Counter(planned.status for planned in seeds)
        used = results.hyperparameters[study, label]
        values = ", ".join(f"{name} = {plain(value)}" for name, value in used.items()) or "–"
        if counts["waiting"] == len(seeds):
            values = "chosen by the search"
        elif label in searched:
            values += " (searched)"
        recipe = configs[label].recipe if label in configs else None
        rate = recipe.learning_rate if recipe else "–"
        length = "–" if recipe is None else f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs} epochs"
        state = ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=_done_first))
        rows.append([escape(display), escape(values), str(rate), length, state])
        if counts["failed"]:
            failed[label] = [planned.seed for planned in seeds if planned.status == "failed"]
    parts = [
        "### What was trained",
        grid(rows, ["Method", "Hyperparameters", "Learning rate", "Length", "Trainings"], False),
    ]
    if failed:
        commands = "\n".join(
            seeds_command(results.data, study, [label], seeds, "--retry-failed") for label, seeds in failed.items()
        )
        parts.append(f"Failed trainings are run again by:\n\n```\n{commands}\n```")
    return "\n\n".join(parts)


def plain(value: object) -> str:
    """Return a value for reading, with six significant digits (0.333333); the record has all of them."""
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else str(value)


def _done_first(entry: tuple[str, int]) -> tuple[bool, str]:
    return entry[0] != "done", entry[0]


def paper_section(results: Results, tables: list[Table]) -> list[str]:
    if not tables:
        return []
    diff = code(spelled("reports", "diff", *store_words(results.data.store.uri)))
    note = f"Filled from our records, in the paper's layout. {diff} compares cell by cell."
    return [f"## The paper's tables\n\n{note}", *(render(table) for table in tables)]


def _absent(table: Table) -> str:
    studies = dict.fromkeys(cell.key.study for cell in table.cells())
    names = ", ".join(map(code, studies))
    word = "study" if len(studies) == 1 else "studies"
    return f"- Table {table.number}, {escape(table.title)}: {word} {names}"

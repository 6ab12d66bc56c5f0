"""All figures from records; what cannot be drawn is listed with its reason."""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from reports.figures import effects, style
from reports.figures.view import Missing, ReportFigure, StudyView
from reports.papers.paper import Paper, Together
from reports.results import Results
from sweep.store.files import write_text

INDEX = "index.json"
Save = Callable[[Figure, Path], tuple[str, ...]]


@dataclass(frozen=True)
class FigureEntry:
    """One line of the index: a figure that was drawn (files), or one that was not (reason, command)."""

    study: str | None
    name: str
    title: str
    caption: str = ""
    files: tuple[str, ...] = ()  # SVG, PNG, PDF
    narrow: tuple[str, ...] = ()  # the same for a phone, where there is one
    width: float = 0.0  # inches
    reason: str = ""
    command: str = ""


def declared(paper: Paper) -> list[ReportFigure]:
    """By the files of this folder, in the order of the page; those without a study only where the paper has them."""
    modules = [
        import_module(f"reports.figures.{one.name}") for one in pkgutil.iter_modules([str(Path(__file__).parent)])
    ]
    found = [figure for module in modules for figure in getattr(module, "FIGURES", [])] + effects.figures(paper)
    shown = [figure for figure in found if figure.needs_study or figure.name in paper.theory]
    return sorted(shown, key=lambda figure: figure.place)


def draw_all(results: Results, out: Path, *, pdf: bool = True) -> list[Path]:
    """Draw into the folder `out` what the records allow; index.json there says what is what and what is missing.

    Without `pdf` in two thirds of the time: a PDF embeds its fonts.
    """
    save = partial(_save, pdf=pdf)
    out.mkdir(parents=True, exist_ok=True)
    figures = declared(results.paper)
    with rc_context(style.RC):  # type: ignore[arg-type]
        entries = [_draw(results.paper, figure, [], out, save) for figure in figures if not figure.needs_study]
        views = {study: StudyView(results, study) for study in results.data.manifests}
        wanted = _wanted(results.paper, views)
        entries += [_draw_together(results.paper, one, figures, views, out, save) for one in wanted]
        for view in views.values():
            entries += [
                _draw(view.paper, figure, [view], out, save) for figure in declared(view.paper) if figure.needs_study
            ]
    index = out / INDEX
    write_text(index, json.dumps([asdict(entry) for entry in entries], indent=1, ensure_ascii=False) + "\n")
    return [out / name for entry in entries for name in (*entry.files, *entry.narrow)] + [index]


def _wanted(paper: Paper, views: Mapping[str, StudyView]) -> list[Together]:
    """One study alone has the same as a figure of its own."""
    return [one for one in paper.together if len(views.keys() & {*one.studies}) > 1]


def _draw_together(
    paper: Paper,
    wanted: Together,
    figures: Sequence[ReportFigure],
    views: Mapping[str, StudyView],
    out: Path,
    save: Save,
) -> FigureEntry:
    draw = next((figure.together for figure in figures if figure.name == wanted.figure), None)
    if draw is None:
        known = ", ".join(figure.name for figure in figures if figure.together)
        raise ValueError(f"paper {paper.name!r} wants {wanted.figure!r} of several studies together; known: {known}")
    shown = [views[name] for name in wanted.studies if name in views]
    try:
        picture, caption = draw(*shown)
    except Missing as missing:
        return FigureEntry(None, wanted.name, wanted.title, reason=missing.reason, command=missing.command)
    files = save(picture, out / wanted.name)
    absent = [name for name in wanted.studies if name not in views]
    lacking = f"Not in the store: {', '.join(absent)} (`{shown[0].data.run_command(absent[0])}`)." if absent else ""
    caption = " ".join(filter(None, [wanted.caption, caption, lacking, paper.figure_number(wanted.name, None)]))
    return FigureEntry(None, wanted.name, wanted.title, caption, files, width=picture.get_figwidth())


def _draw(paper: Paper, figure: ReportFigure, views: Sequence[StudyView], out: Path, save: Save) -> FigureEntry:
    study = views[0].name if views else None
    try:
        picture, caption = figure.draw(*views)
    except Missing as missing:
        return FigureEntry(study, figure.name, figure.title, reason=missing.reason, command=missing.command)
    stem = f"{file_stem(study)}-{figure.name}" if study else figure.name
    files = save(picture, out / stem)
    narrow = _save(figure.narrow(*views), out / f"{stem}-narrow", pdf=False) if figure.narrow else ()
    caption = " ".join(filter(None, [caption, paper.remarks.get(figure.name), paper.figure_number(figure.name, study)]))
    return FigureEntry(study, figure.name, figure.title, caption, files, narrow, picture.get_figwidth())


def _save(picture: Figure, stem: Path, *, pdf: bool) -> tuple[str, ...]:
    return tuple(path.name for path in style.save(picture, stem, pdf=pdf))


def file_stem(study: str) -> str:
    """A study's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", study).lstrip(".") or "study"


def read_index(folder: Path) -> list[FigureEntry]:
    """What `draw_all` left in the folder; nothing when no figures were drawn."""
    path = folder / INDEX
    if not path.exists():
        return []
    entries = json.loads(path.read_text("utf-8"))
    return [FigureEntry(**{**one, "files": tuple(one["files"]), "narrow": tuple(one["narrow"])}) for one in entries]

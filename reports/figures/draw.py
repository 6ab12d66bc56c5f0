"""Draw all figures from records, and list those that cannot be drawn with the reason."""

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

from reports.analysis.results import Results
from reports.figures import effects, style
from reports.figures.view import MissingResults, ReportFigure, StudyView
from reports.papers.paper import Paper, Together
from sweep.store.files import write_text

INDEX = "index.json"
Save = Callable[[Figure, Path], tuple[str, ...]]


@dataclass(frozen=True)
class FigureEntry:
    """An entry of the index: a figure with its files, or the reason why it was not drawn and the missing command."""

    study: str | None
    name: str
    title: str
    caption: str = ""
    files: tuple[str, ...] = ()  # SVG, PNG, PDF
    narrow: tuple[str, ...] = ()  # version for phones, if any
    width: float = 0.0  # inches
    reason: str = ""
    command: str = ""


def declared(paper: Paper) -> list[ReportFigure]:
    """Return the figures that the files of this folder declare, in page order.

    Figures that need no study are included only if the paper lists them under `theory`.
    """
    modules = [
        import_module(f"reports.figures.{module.name}") for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    ]
    figures = [figure for module in modules for figure in getattr(module, "FIGURES", [])] + effects.figures(paper)
    return sorted(
        (figure for figure in figures if figure.needs_study or figure.name in paper.theory),
        key=lambda figure: figure.place,
    )


def draw_all(results: Results, out: Path, *, pdf: bool = True) -> list[Path]:
    """Draw every figure that the records allow into the folder `out`, and write index.json there.

    Args:
        pdf: Also write PDFs. They embed their fonts, which takes a third of the time.

    Returns:
        All files written; index.json, which also lists the figures that are missing, comes last.
    """
    save = partial(_save, pdf=pdf)
    out.mkdir(parents=True, exist_ok=True)
    figures = declared(results.paper)
    with rc_context(style.RC):  # type: ignore[arg-type]
        entries = [_draw(results.paper, figure, [], out, save) for figure in figures if not figure.needs_study]
        views = {study: StudyView(results, study) for study in results.data.manifests}
        wanted = _wanted(results.paper, views)
        entries += [_draw_together(results.paper, together, figures, views, out, save) for together in wanted]
        for view in views.values():
            entries += [
                _draw(view.paper, figure, [view], out, save) for figure in declared(view.paper) if figure.needs_study
            ]
    index = out / INDEX
    write_text(index, json.dumps([asdict(entry) for entry in entries], indent=1, ensure_ascii=False) + "\n")
    return [out / name for entry in entries for name in (*entry.files, *entry.narrow)] + [index]


def _wanted(paper: Paper, views: Mapping[str, StudyView]) -> list[Together]:
    """Return the joint figures of at least two studies in the store; a single study has its own figure."""
    return [together for together in paper.together if len(views.keys() & {*together.studies}) > 1]


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
        joint = ", ".join(figure.name for figure in figures if figure.together)
        raise ValueError(
            f"paper {paper.name!r}: figure {wanted.figure!r} cannot show several studies together; these can: {joint}"
        )
    present = [views[name] for name in wanted.studies if name in views]
    try:
        picture, caption = draw(*present)
    except MissingResults as missing:
        return FigureEntry(None, wanted.name, wanted.title, reason=missing.reason, command=missing.command)
    files = save(picture, out / wanted.name)
    absent = [name for name in wanted.studies if name not in views]
    missing_studies = (
        f"Not in the store: {', '.join(absent)} (`{present[0].data.run_command(absent[0])}`)." if absent else ""
    )
    caption = " ".join(filter(None, [wanted.caption, caption, missing_studies, paper.figure_number(wanted.name, None)]))
    return FigureEntry(None, wanted.name, wanted.title, caption, files, width=picture.get_figwidth())


def _draw(paper: Paper, figure: ReportFigure, views: Sequence[StudyView], out: Path, save: Save) -> FigureEntry:
    study = views[0].name if views else None
    try:
        picture, caption = figure.draw(*views)
    except MissingResults as missing:
        return FigureEntry(study, figure.name, figure.title, reason=missing.reason, command=missing.command)
    stem = f"{file_stem(study)}-{figure.name}" if study else figure.name
    files = save(picture, out / stem)
    narrow = _save(figure.narrow(*views), out / f"{stem}-narrow", pdf=False) if figure.narrow else ()
    caption = " ".join(filter(None, [caption, paper.remarks.get(figure.name), paper.figure_number(figure.name, study)]))
    return FigureEntry(study, figure.name, figure.title, caption, files, narrow, picture.get_figwidth())


def _save(picture: Figure, stem: Path, *, pdf: bool) -> tuple[str, ...]:
    return tuple(path.name for path in style.save(picture, stem, pdf=pdf))


def file_stem(study: str) -> str:
    """Return a study's name in a form that is safe in a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", study).lstrip(".") or "study"


def read_index(folder: Path) -> list[FigureEntry]:
    """Return the index that `draw_all` wrote into the folder; empty if no figures were drawn."""
    path = folder / INDEX
    if not path.exists():
        return []
    entries = json.loads(path.read_text("utf-8"))
    return [
        FigureEntry(**{**entry, "files": tuple(entry["files"]), "narrow": tuple(entry["narrow"])}) for entry in entries
    ]

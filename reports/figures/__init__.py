"""The paper's figures from records. Each has a file of its own; what cannot be drawn is listed with its reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from reports.figures import (
    bars,
    effects,
    gradients,
    hero,
    logit_scaling,
    margin_trajectories,
    margins,
    search,
    style,
    toy_trajectories,
    trade_off,
    training_curves,
)
from reports.figures.view import Missing, StudyView
from reports.results import Results
from reports.store.load import ReportData

INDEX = "index.json"

# File name, title, and what draws it from one study. The order is that of the page.
FIGURES: tuple[tuple[str, str, Callable[[StudyView], tuple[Figure, str]]], ...] = (
    ("hero", "PGD-20 against AutoAttack", hero.draw),
    ("components", "Components of AutoAttack", bars.draw),
    ("trade_off", "Clean against robust accuracy", trade_off.draw),
    ("training_curves", "Training curves", training_curves.draw),
    ("margin_histograms", "Logit margins", margins.draw_logit),
    ("probability_margins", "Probabilistic margins", margins.draw_probability),
    ("margin_trajectories", "Margins over training", margin_trajectories.draw),
    ("effect_of_m", "Effect of M", effects.draw_rate),
    ("effect_of_lambda", "Effect of λ", effects.draw_lambda),
    ("potentially_misclassified", "Potentially misclassified images", gradients.draw_rates),
    ("gradient_norms", "Gradient norms", gradients.draw_norms),
    ("logit_scaling", "Scaled logits", logit_scaling.draw),
    ("search_landscape", "Landscape of the search", search.draw_landscape),
    ("search_history", "History of the search", search.draw_history),
)


@dataclass(frozen=True)
class FigureEntry:
    """One line of the index: a figure that was drawn (files), or one that was not (reason, command)."""

    study: str | None
    name: str
    title: str
    caption: str = ""
    files: tuple[str, ...] = ()
    reason: str = ""
    command: str = ""


def draw_all(data: ReportData, out: Path) -> list[Path]:
    """Draw into the folder `out` what the records allow; index.json there says what is what and what is missing."""
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    with rc_context(style.RC):  # type: ignore[arg-type]
        figure, caption = toy_trajectories.draw()
        files = style.save(figure, out / "toy_trajectories")
        entries.append(
            FigureEntry(None, "toy_trajectories", "The toy problem", caption, tuple(path.name for path in files))
        )
        results = Results(data)
        for study in data.manifests:
            view = StudyView(results, study)
            entries += [_draw(view, name, title, draw, out) for name, title, draw in FIGURES]
    index = out / INDEX
    index.write_text(json.dumps([asdict(entry) for entry in entries], indent=1, ensure_ascii=False) + "\n", "utf-8")
    return [out / name for entry in entries for name in entry.files] + [index]


def _draw(view: StudyView, name: str, title: str, draw: Callable, out: Path) -> FigureEntry:
    try:
        figure, caption = draw(view)
    except Missing as missing:
        return FigureEntry(view.name, name, title, reason=missing.reason, command=missing.command)
    files = style.save(figure, out / f"{file_stem(view.name)}-{name}")
    return FigureEntry(view.name, name, title, caption, tuple(path.name for path in files))


def file_stem(study: str) -> str:
    """A study's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", study).lstrip(".") or "study"


def read_index(folder: Path) -> list[FigureEntry]:
    """What `draw_all` left in the folder; nothing when no figures were drawn."""
    path = folder / INDEX
    if not path.exists():
        return []
    return [FigureEntry(**{**entry, "files": tuple(entry["files"])}) for entry in json.loads(path.read_text("utf-8"))]

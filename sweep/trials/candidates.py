"""Candidates of a study's search: the space, the first points, and the maximum number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import search_spaces
from sweep.errors import UserError
from sweep.store.encoding import canonical
from sweep.studies.grid import size, widened
from sweep.studies.model import Study
from sweep.studies.space import search_space
from trainers.values import as_float

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class SearchedSpace:
    space: Mapping[str, BaseDistribution]
    own: dict[str, Any]  # the study's own values
    paper: dict[str, Any]


def radius_of(study: Study, label: str) -> float:
    """Return the label's training radius; hyperparameters that are lengths are searched in multiples of it."""
    return as_float(study.config(label).recipe.attack.epsilon)


def searched_space(study: Study, label: str) -> SearchedSpace:
    from optuna.distributions import CategoricalDistribution

    config, radius = study.search_config(label, {}), radius_of(study, label)
    try:
        space = search_space(config.method, study.search[label].space, radius)
    except ValueError as fault:
        raise UserError(
            f"search of {label}: at the training's radius {radius:g} there is nothing to search ({fault}); leave it "
            f"out with --set search.{label}.pin=true"
        ) from None
    if not space:
        known = ", ".join(search_spaces.names())
        raise UserError(f"search of {label}: {config.method} has nothing to search; known: {known}")
    own = canonical({name: config.hyperparameters[name] for name in sorted(space)})
    paper = search_spaces.paper_value(config.method, study.dataset, study.model, radius) or {}
    paper = canonical({name: paper.get(name, own[name]) for name in sorted(space)})
    # Optuna fixes choices from the start, so they must include the first candidates; ranges may exclude them.
    space = {
        name: widened(widened(item, own[name]), paper[name]) if isinstance(item, CategoricalDistribution) else item
        for name, item in space.items()
    }
    return SearchedSpace(space, own, paper)


def first_points(own: Mapping[str, Any], paper: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the study's own values, which the choice must beat, then the paper's values if they differ."""
    points = [canonical(dict(own)), canonical(dict(paper))]
    return points[:1] if points[0] == points[1] else points


def most_candidates(study: Study, label: str) -> int:
    """Return the maximum number of candidates: the whole grid, or at most the number of distinct candidates."""
    wanted, found = study.search[label], searched_space(study, label)
    whole = size(found.space, first_points(found.own, found.paper))
    return int(whole if wanted.sampler == "grid" else min(wanted.candidates, whole))

"""Shipped studies as written, without loading the methods they name, for comparing settings."""

from __future__ import annotations

from functools import cache
from typing import Any

from sweep import studies
from sweep.studies import file as study_file
from sweep.studies.model import Study


@cache
def written_study(name: str) -> Study:
    # Read by path; by name, a file of the same name in the working folder would take precedence.
    return Study.model_validate({"name": name, **study_file.read(studies.FOLDER / f"{name}.yaml")})


@cache
def written_settings(name: str, label: str) -> dict[str, Any]:
    """Return the configuration of a label; it is complete because shipped studies write out all hyperparameters."""
    study = written_study(name)
    return study.template(label, study.methods[label].hyperparameters).model_dump(mode="json")

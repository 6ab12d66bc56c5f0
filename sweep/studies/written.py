"""What a shipped study writes down, without loading the methods it names: enough to compare settings with."""

from __future__ import annotations

from functools import cache
from typing import Any

from sweep import studies
from sweep.studies import file as study_file
from sweep.studies.model import Study


@cache
def written_study(name: str) -> Study:
    # By path: a file of the same name in the working folder would win otherwise.
    return Study.model_validate({"name": name, **study_file.read(studies.FOLDER / f"{name}.yaml")})


@cache
def written_settings(name: str, label: str) -> dict[str, Any]:
    """The configuration of a label; shipped studies write all hyperparameters out, so it is the whole one."""
    study = written_study(name)
    return study.template(label, study.methods[label].hyperparameters).model_dump(mode="json")

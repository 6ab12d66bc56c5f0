"""Which papers a report shows: those that its studies name, each beside these studies alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.papers import load
from reports.papers.paper import Paper
from reports.store.load import Problem
from sweep import studies
from sweep.errors import UserError
from sweep.store.records.manifest import Manifest
from sweep.studies import file as study_file


@dataclass(frozen=True)
class Chosen:
    """`lead` gives the report its order of methods, its colours and its baseline."""

    lead: Paper
    by_study: Mapping[str, tuple[Paper, ...]]
    problems: tuple[Problem, ...] = ()


def chosen(manifests: Mapping[str, Manifest]) -> Chosen:
    by_study, problems = {}, []
    for name, manifest in manifests.items():
        found = []
        for paper in named_by(manifest):
            try:
                found.append(load(paper))
            except UserError as fault:  # a folder that is not on this machine takes no report away
                problems.append(Problem(f"paper {paper} of study {name}", str(fault)))
        by_study[name] = tuple(dict.fromkeys(found))
    every = [paper for found in by_study.values() for paper in found]
    return Chosen(every[0] if every else load().bare(), by_study, tuple(problems))


def named_by(manifest: Manifest) -> list[str]:
    """Manifests of earlier versions do not say; the file of a shipped study does, and any other study names none."""
    if "papers" in manifest.study:
        return list(manifest.study["papers"])
    if manifest.name in studies.shipped():
        return list(study_file.read(studies.FOLDER / f"{manifest.name}.yaml").get("papers", []))
    return []

"""The papers of a report: each study is compared only with the papers that it names."""

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
    """The papers of each study. `lead` sets the report's order of methods, colours and baseline."""

    lead: Paper
    by_study: Mapping[str, tuple[Paper, ...]]
    problems: tuple[Problem, ...] = ()


def chosen(manifests: Mapping[str, Manifest]) -> Chosen:
    """Load the papers that the studies name. One that cannot be loaded becomes a problem in the result."""
    by_study, problems = {}, []
    for name, manifest in manifests.items():
        papers = []
        for paper in named_by(manifest):
            try:
                papers.append(load(paper))
            except UserError as fault:  # for example, a folder that does not exist on this machine
                problems.append(Problem(f"paper {paper} of study {name}", str(fault)))
        by_study[name] = tuple(dict.fromkeys(papers))
    lead = next((papers[0] for papers in by_study.values() if papers), None)
    return Chosen(lead or load().bare(), by_study, tuple(problems))


def named_by(manifest: Manifest) -> list[str]:
    """Return the papers that a study names, by name or path.

    Older manifests lack this field. For shipped studies it is read from the study's file; others name none.
    """
    if "papers" in manifest.study:
        return list(manifest.study["papers"])
    if manifest.name in studies.shipped():
        return list(study_file.read(studies.FOLDER / f"{manifest.name}.yaml").get("papers", []))
    return []

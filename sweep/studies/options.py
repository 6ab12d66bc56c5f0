"""Study options of the command line, and the study that they select."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep import studies
from sweep.commands import option_words
from sweep.errors import UserError
from sweep.repeated import setting_key
from sweep.store.opening import existing_store
from sweep.studies import file as study_file
from sweep.studies import own
from sweep.studies.check_search import SEARCHED
from sweep.studies.model import Study
from trainers.plugins import registry

MOST_SEEDS = 100_000


@dataclass(frozen=True)
class StudyOptions:
    study: str = "digits"
    settings: Sequence[str] | None = None
    methods: str | None = None
    seeds: str | None = None
    plugins: Sequence[str] | None = None
    store: str | None = None  # read for the manifest of a study that has no file here

    def load(self) -> Study:
        return Study.load(
            self.study,
            overrides=self.settings or (),
            methods=None if self.methods is None else parse_names(self.methods),
            seeds=None if self.seeds is None else parse_seeds(self.seeds),
            plugins=self.plugins or (),
            written=self._stored(),
        )

    def words(self) -> list[str]:
        """Return the options as they would be typed on a command line."""
        one = option_words(study=self.study, set=self._typable(), plugin=map(str, self.plugins or ()))
        return [*one, *option_words(methods=self.methods, seeds=self.seeds)]

    def _typable(self) -> list[str]:
        """Return the settings that no later setting or option replaces; a command line would refuse the others."""
        settings: list[str] = []
        for setting in self.settings or ():
            key = setting_key(setting)
            settings = [other for other in settings if setting_key(other)[: len(key)] != key]
            if key == ("methods",) and self.methods is not None:
                settings += _by_label(setting, parse_names(self.methods))
            elif key != ("seeds",) or self.seeds is None:
                settings.append(setting)
        return settings

    def _stored(self) -> Mapping[str, Any] | None:
        """Return the study from the store's manifest if neither a file nor a shipped study has this name."""
        if self.store is None or not re.fullmatch(r"[\w-]+", self.study):
            return None
        try:
            studies.find(self.study)
            return None
        except UserError as fault:
            try:
                known = existing_store(self.store).manifest(self.study)
            except UserError:  # the store does not exist yet
                known = None
            if known is None or not known.study:
                raise UserError(f"{fault}; nor is it in the store {self.store}") from None
            return as_in_a_file(known.study)

    def elsewhere(self, folder: Path) -> StudyOptions:
        """Return the options for a process that starts in `folder`, a copy of the working folder.

        Copies the file of a user's own network into `folder`. Data are not copied; their absolute path is given.
        """
        stored, settings = self._stored(), list(self.settings or ())
        path = studies.find(self.study) if stored is None else Path(self.study)
        written = study_file.read(path) if stored is None else dict(stored)
        content = dict(written)
        study_file.override(content, settings)
        for key, value in own.own_names(content).items():
            absolute = own.with_absolute_path(value, own.base_of(key, value, written, path.parent))
            if key == "model":
                file, _, function = absolute.rpartition(":")
                shutil.copy(file, folder / Path(file).name)
                self.load()  # records the modules and files that the network needs
                if code := registry.code_of(f"{Path(file).name}:{function}"):
                    code.copy_to(folder)
                absolute = f"{Path(file).name}:{function}"
            settings = [*(other for other in settings if setting_key(other) != (key,)), f"{key}={absolute}"]
        return replace(self, settings=settings)


def as_in_a_file(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's study as a valid file content: a list of attacks drops the default suite stored with it."""
    content = _without_nothing(stored)
    evaluation = content.get("evaluation")
    if isinstance(evaluation, dict) and evaluation.get("attacks"):
        evaluation.pop("suite", None)
    return content


def _by_label(setting: str, labels: Sequence[str]) -> list[str]:
    """Split a `methods={…}` setting into one setting for each of these labels."""
    entries = study_file.parse(setting.partition("=")[2], f"--set {setting}")
    if not isinstance(entries, dict):
        return [setting]
    chosen = dict.fromkeys(label if label in entries else label.removesuffix(SEARCHED) for label in labels)
    return [f"methods.{label}={json.dumps(entries.get(label) or {})}" for label in chosen]


def _without_nothing(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content without null values, which the store writes for missing keys and few keys accept."""
    return {
        key: _without_nothing(value) if isinstance(value, Mapping) else value
        for key, value in content.items()
        if value is not None
    }


def parse_names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as '0,1,2', '0-9' or a mix of both."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if not match:
            raise UserError(f"--seeds {text}: must be whole numbers such as 0,1,2 or a range such as 0-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(f"--seeds {text}: the range {part.strip()} is empty; write {last}-{first}")
        if len(seeds) + last + 1 - first > MOST_SEEDS:
            raise UserError(f"--seeds {text}: at most {MOST_SEEDS:,} seeds; give a shorter range")
        seeds.extend(range(first, last + 1))
    return seeds

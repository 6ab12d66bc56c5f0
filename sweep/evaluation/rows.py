"""Additional rows of a study: other models, attacked like the study's own trials and shown beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from sweep.errors import UserError
from sweep.evaluation.subject import EvaluateOptions, Subject
from sweep.store.base import Store
from sweep.store.records.manifest import Manifest
from sweep.store.records.row import RowRecord
from sweep.store.same_data import data_faults, recorded_data
from sweep.studies.model import Study
from sweep.trials.cells import evaluation_attacks
from sweep.trials.provenance import made_here
from trainers.attack import EvaluationAttack
from trainers.plugins.spelling import nearest


@dataclass(frozen=True)
class Row:
    """The study and label under which a model is shown."""

    manifest: Manifest
    study: Study
    label: str
    display: str

    def attacks(self, names: Sequence[str] | None) -> list[EvaluationAttack]:
        """Return the named attacks, or the study's if None, in the study's norm and radius and on its images."""
        study, limit = self.study, self.study.test_images
        if names is not None:
            evaluation = study.evaluation.model_copy(update={"attacks": tuple(names), "suite": None})
            study = study.model_copy(update={"evaluation": evaluation})
        found = evaluation_attacks(study)
        if limit is None:
            return found
        return [one if one.images else one.model_copy(update={"images": (0, limit)}) for one in found]

    def check(self, store: Store, subject: Subject) -> None:
        """Raise a UserError unless the study shows this checkpoint and its trials use the same images."""
        labels = [cell.label for cell in self.manifest.cells]
        shown = {name for label in labels for name in self.manifest.checkpoints(label)} or {self.manifest.checkpoint}
        if subject.outside is None and subject.checkpoint not in shown:
            listed = ", ".join(sorted(shown))
            raise UserError(
                f"study {self.study.name!r} shows {listed}, not {subject.checkpoint}; give TRIAL/{sorted(shown)[0]}"
            )
        recorded = recorded_data(store, (cell.trial for cell in self.manifest.cells if cell.trial))
        instead = "leave --study and --as out: a table shows one data set"
        for fault in data_faults(recorded, subject.data(), subject.data_dir, instead):
            raise UserError(fault)

    def write(self, store: Store, subject: Subject, options: EvaluateOptions) -> None:
        store.write_record(
            RowRecord(
                study=self.manifest.name,
                label=self.label,
                display=self.display,
                subject=subject.name,
                checkpoint=subject.checkpoint,
                model=(options.model or self.manifest.model).rpartition("/")[2],
                **made_here(subject.data()),
            )
        )


def wanted_row(store: Store, options: EvaluateOptions) -> Row | None:
    """Return the row that the options ask for, or None if they name no study; raise a UserError for invalid options."""
    if options.study is None and options.display is None:
        return None
    if options.study is None or not (options.display or "").strip():
        raise UserError('a row of a study needs both its name and the model\'s: --study my_mnist --as "Madry-CNN"')
    display = str(options.display).strip()
    manifest = _manifest(store, options.study)
    try:
        # Resources do not matter here, and their stored form is not valid input.
        study = Study.model_validate({key: value for key, value in manifest.study.items() if key != "resources"})
    except ValidationError:
        raise UserError(
            f"study {manifest.name!r} of {store.uri} is not one that this version can read; run it again first"
        ) from None
    if options.dataset not in (None, study.dataset):
        raise UserError(f"study {study.name!r} is on {study.dataset}, not on {options.dataset}; leave --dataset out")
    label = re.sub(r"[^A-Za-z0-9_+-]+", "_", display).lstrip("+-_") or "model"
    if label in {cell.label for cell in manifest.cells}:
        raise UserError(f"study {study.name!r} has trials of its own called {label!r}; choose another --as")
    return Row(manifest, study, label, display)


def _manifest(store: Store, name: str) -> Manifest:
    """Return a manifest by the name or the file of its study."""
    known = store.manifests(lambda fault: None)
    text = re.sub(r"\.ya?ml$", "", name.rpartition("/")[2])
    found = known.get(name) or known.get(re.sub(r"[^\w-]", "_", text))
    if found is None:
        listed, guess = ", ".join(sorted(known)) or "none yet", nearest(text, known)
        raise UserError(f"{store.uri} has no study {name!r}{guess} it has: {listed}; run the study first")
    return found

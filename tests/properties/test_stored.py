"""Records, manifests, leases, weights and arrays: what is damaged is never used, what is odd is never a crash."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from reports.store.load import load
from reports.writing import write
from sweep.errors import UserError
from sweep.evaluation.outside import Outside, load_outside
from sweep.store import layout
from sweep.store.encoding import BrokenRecord, encode
from sweep.store.folder import FolderStore
from sweep.store.lease_upkeep import abandoned, busy, held
from sweep.store.leases import take
from sweep.store.leftovers import leftovers
from sweep.store.merging import Merge
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.kinds import RECORD_TYPES
from sweep.store.records.record import Record
from sweep.trials.standing import standings
from tests import records
from tests.properties.mutations import VALUES, damaged, mutated
from trainers import models
from trainers.loop.checkpoint import UnusableState, load_resume, save_resume

EVALUATION = records.evaluation_record()
RECORDS: dict[str, Record] = {
    record.kind: record
    for record in (
        records.trial_record(),
        EVALUATION,
        records.shard_record(EVALUATION.path.removesuffix(".json"), 0, 10, "clean"),
        records.candidate_record(),
        records.search_record(),
        records.diagnostics_record(),
        records.decision_record(),
        records.row_record(),
        records.transfer_record(),
        records.manifest(),
    )
}
SPOILED = sorted(RECORDS.keys() - {"shard"})  # a shard is read by its evaluation alone


def content(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.encoded())
    del found["sha256"]
    return found


def test_every_kind_of_record_is_here() -> None:
    assert RECORDS.keys() == RECORD_TYPES.keys()


@given(data=st.data(), kind=st.sampled_from(sorted(RECORDS)))
def test_damaged_bytes_are_broken_or_mean_the_same(data: st.DataObject, kind: str) -> None:
    record = RECORDS[kind]
    changed = data.draw(damaged(record.encoded()))
    with contextlib.suppress(BrokenRecord):
        assert type(record).decoded(record.path, changed) == record


@given(data=st.data(), kind=st.sampled_from(sorted(RECORDS)))
def test_odd_content_under_a_good_checksum_is_broken_or_a_record(data: st.DataObject, kind: str) -> None:
    record = RECORDS[kind]
    sealed = _sealed(data.draw(mutated(content(record))))
    if sealed is not None:
        with contextlib.suppress(BrokenRecord):
            found = type(record).decoded(record.path, sealed)
            assert type(record).decoded(record.path, found.encoded()) == found


@given(data=st.data(), kind=st.sampled_from(SPOILED))
def test_a_store_with_an_odd_record_is_read_by_everybody(data: st.DataObject, kind: str) -> None:
    sealed = _sealed(data.draw(mutated(content(RECORDS[kind]))))
    if sealed is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        store = _store(Path(folder) / "store")
        store.write(RECORDS[kind].path, sealed)
        for read in (
            lambda: [one.text() + json.dumps(one.facts()) for one in standings(store, None, lambda _: None)],
            lambda: leftovers(store),
            lambda: Merge(FolderStore(Path(folder) / "other"), [store]).write(),
            lambda: write(store.uri, None, Path(folder) / "out", figures=False),
            lambda: list(store.broken_records()),
        ):
            with contextlib.suppress(UserError):
                read()


@given(
    lease=st.binary(max_size=60)
    | st.fixed_dictionaries(
        {}, optional={key: VALUES for key in ("id", "owner", "host", "pid", "started", "seconds", "expires", "more")}
    ).map(lambda found: json.dumps(found).encode())
)
def test_a_lease_of_any_content_is_held_or_free(lease: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FolderStore(Path(folder))
        store.write(layout.lease("work", 1), lease)
        held(store)
        busy(store)
        abandoned(store, 0.0)
        taken = take(store, "work")
        if taken is not None:
            assert take(store, "work") is None
            taken.release()


@pytest.fixture(scope="module")
def weights() -> bytes:
    return save(models.build("small_cnn", 10, shape=(1, 8, 8)).state_dict())


@given(data=st.data(), suffix=st.sampled_from([".safetensors", ".pt"]))
def test_damaged_weights_are_refused_or_fit(weights: bytes, data: st.DataObject, suffix: str) -> None:
    whole = weights
    if suffix == ".pt":
        stream = io.BytesIO()
        torch.save(models.build("small_cnn", 10, shape=(1, 8, 8)).state_dict(), stream)
        whole = stream.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"weights{suffix}"
        file.write_bytes(data.draw(damaged(whole)))
        with contextlib.suppress(UserError):
            load_outside(Outside(str(file), "small_cnn", "digits"))


@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_resume_state_is_never_a_crash(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "resume.pt"
        save_resume(file, {"epoch": 1, "curve": [], "model": {"weight": torch.zeros(3)}})
        file.write_bytes(data.draw(damaged(file.read_bytes())))
        with contextlib.suppress(UnusableState):
            assert isinstance(load_resume(file), dict | None)


@given(data=st.data(), sealed=st.booleans())
def test_damaged_arrays_are_a_problem_of_the_report(data: st.DataObject, sealed: bool) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, margin=np.zeros(5, np.float32), labels=np.arange(5))
    changed = data.draw(damaged(stream.getvalue()))
    known = hashlib.sha256(changed if sealed else stream.getvalue()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        store = _store(Path(folder))
        record = records.diagnostics_record(arrays_sha256=known)
        store.write(record.arrays_path, changed)
        store.write_record(record)
        loaded = load(store)
        found = loaded.diagnostics(layout.short(record.trial), "last")
        if found is None:
            assert any(problem.path == record.path for problem in loaded.problems)
        elif not sealed:
            assert changed == stream.getvalue()


def _store(folder: Path) -> FolderStore:
    store = FolderStore(folder)
    for record in RECORDS.values():
        store.write_record(record)
        if isinstance(record, DiagnosticsRecord):
            store.write(record.arrays_path, b"")
    return store


def _sealed(changed: Any) -> bytes | None:
    """With the checksum that belongs to it; None for what no JSON can hold."""
    try:
        return encode(changed)
    except (ValueError, TypeError, AttributeError):
        return None

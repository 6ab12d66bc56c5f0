"""All record types, by kind."""

from __future__ import annotations

from sweep.store.records.decision import DecisionRecord
from sweep.store.records.diagnostics import DiagnosticsRecord
from sweep.store.records.evaluation import EvaluationRecord, ShardRecord
from sweep.store.records.manifest import Manifest
from sweep.store.records.record import Record
from sweep.store.records.row import RowRecord
from sweep.store.records.search import CandidateRecord, SearchRecord
from sweep.store.records.transfer import TransferRecord
from sweep.store.records.trial import TrialRecord

RECORD_TYPES: dict[str, type[Record]] = {
    one.kind: one
    for one in (
        *(TrialRecord, EvaluationRecord, ShardRecord, CandidateRecord, SearchRecord, DiagnosticsRecord),
        *(DecisionRecord, RowRecord, TransferRecord, Manifest),
    )
}

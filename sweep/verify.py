"""`python -m sweep.verify`: check the numbers of anyone's store by forward passes alone."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweep import application, listing
from sweep.application import app
from sweep.errors import FAILED, UserError

if TYPE_CHECKING:
    from sweep.evaluation.proof import Proof as AnyProof
    from sweep.evaluation.verifying import TransferProof
    from sweep.store.base import Store
    from sweep.store.encoding import BrokenRecord


@app.command()
def verify(
    store: application.StoreOption = "store",
    study: Annotated[
        str | None, typer.Option(help="Only this study's cells; everything in the store by default.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The network of the store's author, my_net.py:build. Its file is run: read it first."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="The data set of the store's author: folder:PATH, npz:PATH or my_data.py:load.")
    ] = None,
    data_dir: Annotated[str, typer.Option(help="Where data sets are.")] = "data",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    as_json: application.JsonOption = False,
) -> None:
    """Check every number of a store without attacking anything. Forward passes alone; nothing in the store is executed.

    For each cell, check that weights and data are those of the records, that the weights reach the recorded clean
    accuracy, and that every image that an attack fooled has a counterexample. Each counterexample must lie in the ball
    and in [0, 1] and be misclassified. That proves "at most so many per cent are robust". No attack can prove that the
    other images are robust: it only did not break them.

    Missing weights, data or counterexamples (in older records) are reported but are not failures. The exit code is 1 if
    anything differs from its record.

    \b
    Examples:
      python -m sweep.verify
      python -m sweep.verify --store downloaded/results --study cifar10_small --data-dir data
      python -m sweep.verify --json > proof.json
    """
    from sweep.store.opening import existing_store

    opened = existing_store(store)
    wanted = _wanted(opened, study)
    from sweep.evaluation.proof import Proof  # after the checks: torch takes seconds to load
    from sweep.evaluation.subject import check_device
    from sweep.evaluation.verifying import verified
    from sweep.studies import own

    check_device(device)
    own.register_named(model, dataset)
    broken: list[BrokenRecord] = []
    shown: Counter[str] = Counter()
    proofs: list[AnyProof | TransferProof] = []
    for title, found in verified(opened, wanted, data_dir, device, broken.append):
        if not as_json:
            sys.stdout.write("\n".join([title, *(f"  {proof.line()}" for proof in found)]) + "\n")
            sys.stdout.flush()
        proofs += found
    shown.update(proof.status for proof in proofs)
    shown["failed"] += len(broken)
    if as_json:
        content = {
            "evaluations": [_content(one) for one in proofs if isinstance(one, Proof)],
            "transfers": [_content(one) for one in proofs if not isinstance(one, Proof)],
            "broken": [{"record": fault.path, "reason": fault.reason} for fault in broken],
        }
        sys.stdout.write(json.dumps(content, indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.write("\n".join([*(f"FAILED: {fault}" for fault in broken), _summary(shown)]) + "\n")
    if shown["failed"]:
        raise typer.Exit(FAILED)


def _wanted(store: Store, study: str | None) -> dict[str, list[str]]:
    """Return the paths of evaluations by the title of their model."""
    from sweep.store import layout
    from sweep.store.records.evaluation import EvaluationRecord
    from sweep.store.records.row import RowRecord

    manifests = store.manifests(skip=lambda _: None)
    if study is not None and study not in manifests:
        known = ", ".join(sorted(manifests)) or "none"
        raise UserError(f"study {study!r} is not in {store.uri}; there: {known}")
    titles: dict[str, str] = {}
    chosen: dict[str, None] = {}
    for manifest in [manifests[study]] if study else manifests.values():
        for cell in manifest.cells:
            if cell.trial is not None:
                titles.setdefault(
                    layout.short(cell.trial), f"{manifest.name}: {cell.display or cell.label} seed {cell.seed}"
                )
                chosen.update(dict.fromkeys(manifest.evaluation_paths(cell)))
        for row in store.records(
            RowRecord, store.record_paths(RowRecord, f"{layout.ROWS}/{manifest.name}"), lambda _: None
        ):
            titles.setdefault(layout.short(row.subject), f"{manifest.name}: {row.display}")
            chosen.update(dict.fromkeys(store.record_paths(EvaluationRecord, layout.evaluations_of(row.subject))))
    paths = list(chosen) if study else [*chosen, *(set(store.record_paths(EvaluationRecord)) - set(chosen))]
    found: dict[str, list[str]] = {}
    for path in paths if study else sorted(paths, key=lambda path: path.split("/")[1] not in titles):
        _, place, checkpoint, _ = path.split("/")
        found.setdefault(f"{titles.get(place, place)}, {checkpoint}", []).append(path)
    return found


def _content(proof: AnyProof | TransferProof) -> dict[str, Any]:
    return {**vars(proof), "status": proof.status}


def _summary(counts: Counter[str]) -> str:
    total = listing.count(sum(counts.values()), "check")
    parts = [f"{counts[status]:,} {status}" for status in ("confirmed", "not verified", "failed") if counts[status]]
    return f"{total}: {', '.join(parts) or 'nothing to check'}"


if __name__ == "__main__":
    application.main(["verify", *sys.argv[1:]])

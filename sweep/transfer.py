"""`python -m sweep.transfer`: try every stored counterexample on every other model of the same data and radius."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweep import application, listing
from sweep.application import app
from sweep.errors import UserError

if TYPE_CHECKING:
    from reports.analysis.results import Results
    from sweep.store.base import Store


@app.command()
def transfer(
    store: application.StoreOption = "store",
    study: Annotated[str | None, typer.Option(help="Only this study's models; all of the store by default.")] = None,
    model: Annotated[str | None, typer.Option(help="A network of your own that models have, my_net.py:build.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="A data set of your own that they have: folder:PATH, npz:PATH or my_data.py:load."),
    ] = None,
    data_dir: Annotated[str, typer.Option(help="Where data sets are.")] = "data",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    as_json: application.JsonOption = False,
) -> None:
    """Try each model's counterexamples on every other model. Forward passes alone: which model breaks which.

    An attack that fails on a model says little if another model's counterexamples break it: its gradients misled the
    attack. The study's tables get a row "Worst known": the accuracy that remains after AutoAttack, all other attacks
    and all transfers. They also say how many images fell that AutoAttack had not broken. The report shows the matrix
    as table and figure.

    Transfers are stored and never repeated: after further trainings, the same command adds the new ones.

    \b
    Examples:
      python -m sweep.transfer --study cifar10_small
      python -m sweep.transfer --store results --data-dir data && python -m reports --store results
    """
    from sweep.store.opening import existing_store

    opened = existing_store(store)
    manifests = opened.manifests(skip=lambda _: None)
    if study is not None and study not in manifests:
        raise UserError(f"study {study!r} is not in {opened.uri}; there: {', '.join(sorted(manifests)) or 'none'}")
    from sweep.evaluation.subject import check_device  # torch takes seconds to load
    from sweep.evaluation.transferring import balls, try_all
    from sweep.store.encoding import BrokenRecord
    from sweep.store.records.evaluation import EvaluationRecord
    from sweep.studies import own

    check_device(device)
    own.register_named(model, dataset)
    left_out: dict[str, None] = {}

    def skip(fault: BrokenRecord) -> None:
        left_out[str(fault)] = None

    records = list(opened.records(EvaluationRecord, _paths(opened, study), skip))
    for ball in balls(records):
        total = len(ball.targets)
        for number, found in enumerate(
            try_all(opened, ball, data_dir, device, lambda text: left_out.update({text: None})), 1
        ):
            if not as_json:
                tried = listing.count(len(found.transfers), "set")
                sys.stderr.write(
                    f"{found.norm} ε={found.epsilon}: {number}/{total} models, {tried} of counterexamples\n"
                )
    shown = [study] if study is not None else list(manifests)
    from reports.analysis.results import Results

    outcomes = {name: _outcome(Results.read(opened, [name]), name) for name in shown}
    if as_json:
        sys.stdout.write(json.dumps({"studies": outcomes, "left_out": list(left_out)}, indent=2, sort_keys=True) + "\n")
        return
    for name, outcome in outcomes.items():
        sys.stdout.write("\n".join(_lines(name, outcome)) + "\n")
    for text in left_out:
        sys.stdout.write(f"left out: {text}\n")


def _paths(store: Store, study: str | None) -> list[str]:
    from sweep.store import layout
    from sweep.store.records.evaluation import EvaluationRecord
    from sweep.store.records.row import RowRecord

    if study is None:
        return store.record_paths(EvaluationRecord)
    manifest = store.manifest(study)
    paths = [path for cell in manifest.cells for path in manifest.evaluation_paths(cell)] if manifest else []
    for row in store.records(RowRecord, store.record_paths(RowRecord, f"{layout.ROWS}/{study}"), lambda _: None):
        paths += store.record_paths(EvaluationRecord, layout.evaluations_of(row.subject))
    return list(dict.fromkeys(paths))


def _outcome(results: Results, study: str) -> dict[str, Any]:
    from reports.analysis.transfers import Transfers

    found = Transfers(results, study)
    labels = results.labels[study]
    matrix = {
        labels[source]: {
            labels[target]: sum(values.values()) / len(values)
            for target in labels
            if (values := found.shares(source, target))
        }
        for source in labels
    }
    worst = {
        labels[label]: {
            str(one.seed): {
                "worst_known": known.accuracy,
                "autoattack": float(known.reference.mean()),
                "fallen": known.fallen,
                "images": len(known.left),
            }
            for one in found.seeds(label)
            if (known := found.worst_known(one.trial)) is not None
        }
        for label in labels
    }
    return {"percent_broken": matrix, "models": worst}


def _lines(study: str, outcome: dict[str, Any]) -> list[str]:
    matrix = {source: row for source, row in outcome["percent_broken"].items() if row}
    if not matrix:
        return [f"{study}: no counterexamples of one model and weights of another"]
    names = list(outcome["percent_broken"])
    rows = [(source, *(f"{row[name]:.1f}" if name in row else "–" for name in names)) for source, row in matrix.items()]
    lines = [f"{study}: percent of a model's right images that counterexamples of another break"]
    lines.append(listing.columns(("counterexamples of", *names), rows))
    for name, seeds in outcome["models"].items():
        for seed, one in seeds.items():
            fell = f", {listing.count(one['fallen'], 'image')} fell that AutoAttack had left" if one["fallen"] else ""
            known, alone = 100 * one["worst_known"], 100 * one["autoattack"]
            lines.append(f"{name} seed {seed}: worst known {known:.1f} %, AutoAttack alone {alone:.1f} %{fell}")
    return lines


if __name__ == "__main__":
    application.main(["transfer", *sys.argv[1:]])

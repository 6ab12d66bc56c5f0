"""The files of `python -m reports export`: all results as one frame, and one model's weights with its cards."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reports.analysis.names import network_name
from reports.analysis.results import Results
from reports.store.load import ReportData
from sweep.errors import UserError
from sweep.store.files import replacing, write_text
from sweep.store.folder import make_folder
from trainers.values import NORM_DISPLAYS


def export(
    store: str | Path,
    studies: Sequence[str] | None,
    out: Path,
    *,
    label: str | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    paper: str | Path | None = None,
) -> list[Path]:
    """Write all results to `out`, and with `label` one of its models too. Return the paths of the files."""
    results = Results.read(store, studies, paper)
    if label is None and (seed is not None or checkpoint is not None):
        raise UserError("--seed and --checkpoint choose a model: give its --label too")
    make_folder(out)
    frame = results_frame(results.data)
    written = [out / "results.csv", out / "results.parquet"]
    write_frame(frame, *written)
    if label is not None:
        written += export_model(results, label, out, seed=seed, checkpoint=checkpoint)
    return written


def results_frame(data: ReportData) -> pd.DataFrame:
    """Return one row per trial and evaluation. A trial without evaluations has one row, so that gaps show."""
    columns = ["study", "label", "display", "method", "hyperparameters", "seed", "trial", "status", "reason", "commit"]
    cells = data.cells[[*columns, "device", "wall_seconds"]].copy()
    cells["hyperparameters"] = [json.dumps(value, sort_keys=True) for value in cells["hyperparameters"]]
    for fact in ("dataset", "model", "protocol"):
        cells[fact] = [getattr(data.manifests[study], fact) for study in cells["study"]]
    wanted = [
        "trial",
        "checkpoint",
        "attack",
        "norm",
        "epsilon",
        "epsilon_value",
        "attack_id",
        "images",
        "accuracy",
        "clean_accuracy",
        "warnings",
    ]
    evaluations = data.evaluations[wanted].copy()
    evaluations["warnings"] = ["; ".join(texts) for texts in evaluations["warnings"]]
    cells = pd.concat([cells, hyperparameter_columns(data.cells["hyperparameters"])], axis=1)
    numbers = {"accuracy": "float64", "clean_accuracy": "float64", "images": "Int64"}
    joined = cells.merge(evaluations, on="trial", how="left").astype(numbers)
    joined["wall_seconds"] = joined["wall_seconds"].astype("float64")
    return joined.sort_values(["study", "label", "seed", "checkpoint", "attack", "epsilon"], ignore_index=True)


def hyperparameter_columns(hyperparameters: pd.Series) -> pd.DataFrame:
    """Return one column per hyperparameter that some method has; it is empty for the other methods."""
    names = sorted({name for values in hyperparameters for name in values})
    columns = {f"hyperparameter_{name}": [values.get(name) for values in hyperparameters] for name in names}
    frame = pd.DataFrame(columns, index=hyperparameters.index)
    # Parquet has no columns of mixed types.
    return frame.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else _uniform(column))


def _uniform(column: pd.Series) -> pd.Series:
    kinds = {type(value) for value in column.dropna()}
    if kinds <= {int, float}:
        return column.astype("float64")
    return column if len(kinds) < 2 else column.map(lambda value: None if value is None else str(value))


def export_model(
    results: Results, label: str, out: Path, *, seed: int | None = None, checkpoint: str | None = None
) -> list[Path]:
    """Write a model's weights as safetensors, its RobustBench model_info and a card on its origin."""
    data = results.data
    row = _chosen(data, label, seed)
    study, trial = str(row["study"]), str(row["trial"])
    manifest = data.manifests[study]
    checkpoint = checkpoint or data.headline(study)
    stored = row["checkpoints"] or {}
    weights = f"trials/{trial}/{checkpoint}.safetensors"
    model = f"{study}/{label} seed {row['seed']}"
    if checkpoint not in stored:
        raise UserError(f"{model} has no checkpoint {checkpoint!r}; it has: {', '.join(stored)}")
    if not data.store.exists(weights):
        raise UserError(f"{model}: the store has no file {weights}: its weights were deleted or never copied here")
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", f"{study}_{label}_seed{row['seed']}_{checkpoint}")
    target = out / f"{name}.safetensors"
    data.store.fetch_file(weights, target)
    expected = stored[checkpoint].get("sha256")
    if expected and hashlib.sha256(target.read_bytes()).hexdigest() != expected:
        target.unlink()
        raise UserError(f"the SHA-256 of {weights} is not the recorded one: the file was changed or damaged")
    info = out / "model_info" / manifest.dataset / NORM_DISPLAYS[manifest.norm] / f"{name}.json"
    info.parent.mkdir(parents=True, exist_ok=True)
    _write_json(info, robustbench_card(results, row, checkpoint, name))
    card = out / f"{name}.card.json"
    _write_json(card, _provenance(data, row, checkpoint, target.name, expected))
    return [target, info, card]


def _chosen(data: ReportData, label: str, seed: int | None) -> pd.Series:
    """Return the row of the training to export: that of the seed, else the first that finished."""
    cells = data.cells
    if label not in set(cells["label"]):
        raise UserError(f"no label {label!r}; known: {', '.join(sorted(set(cells['label'])))}")
    done = cells[(cells["label"] == label) & (cells["status"] == "done")]
    if seed is not None:
        done = done[done["seed"] == seed]
    if done.empty:
        which = f"seed {seed} of " if seed is not None else ""
        raise UserError(f"{which}{label!r} has no finished training")
    if done["study"].nunique() > 1:
        raise UserError(f"{label!r} is in several studies ({', '.join(sorted(set(done['study'])))}): give one --study")
    return done.sort_values("seed").iloc[0]


def robustbench_card(results: Results, row: pd.Series, checkpoint: str, name: str) -> dict[str, Any]:
    """Return RobustBench's model_info fields. Its accuracies are texts in percent.

    `additional_data` is false for generated images in RobustBench; no study trains on further real images.
    """
    study = str(row["study"])
    manifest, epsilon = results.data.manifests[study], results.epsilon(study)
    trial = str(row["trial"])
    attacked = results.evaluation(study, trial, checkpoint, "autoattack", epsilon)
    clean = results.clean_accuracy(study, trial, checkpoint)
    if attacked is None or clean is None:
        raise UserError(f"{study}/{row['label']} seed {row['seed']} is not evaluated with AutoAttack at {checkpoint!r}")
    robust = f"{100 * attacked.accuracy:.2f}"
    return {
        "link": "",
        "name": f"{row['display']} ({study}, seed {row['seed']})",
        "authors": "",
        "additional_data": False,
        "number_forward_passes": 1,
        "dataset": manifest.dataset,
        "venue": "",
        "architecture": network_name(manifest).replace("WRN-", "WideResNet-"),
        "eps": epsilon,
        "clean_acc": f"{clean:.2f}",
        "reported": robust,
        "autoattack_acc": robust,
        "unreliable": attacked.warned,
        "footnote": f"Checkpoint {checkpoint}, {attacked.images} test images; weights {name}.safetensors.",
    }


def _provenance(data: ReportData, row: pd.Series, checkpoint: str, weights: str, sha256: str | None) -> dict[str, Any]:
    """Return the content of the card: everything that says how these weights came about."""
    trial = str(row["trial"])
    mine = data.evaluations[(data.evaluations["trial"] == trial) & (data.evaluations["checkpoint"] == checkpoint)]
    return {
        "weights": weights,
        "sha256": sha256,
        "input": "images in [0, 1]; the standardisation is part of the model",
        "study": row["study"],
        "label": row["label"],
        "method": row["method"],
        "seed": int(row["seed"]),
        "trial": trial,
        "checkpoint": checkpoint,
        "epoch": (row["checkpoints"] or {}).get(checkpoint, {}).get("epoch"),
        "config": row["config"],
        "versions": row["versions"],
        "commit": row["commit"],
        "device": row["device"],
        "command": row["command"],
        "evaluations": [
            {"attack": settings, "images": int(images), "accuracy": float(accuracy), "warnings": list(warnings)}
            for settings, images, accuracy, warnings in zip(
                mine["settings"], mine["images"], mine["accuracy"], mine["warnings"], strict=True
            )
        ],
    }


def write_frame(frame: pd.DataFrame, csv: Path, parquet: Path) -> None:
    with replacing(csv) as stream:
        frame.to_csv(stream, index=False)
    with replacing(parquet) as stream:
        frame.to_parquet(stream, index=False)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, sort_keys=False, ensure_ascii=False) + "\n")

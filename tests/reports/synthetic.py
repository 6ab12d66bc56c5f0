"""A store with plausible numbers that no training made: every kind of record, in the formats of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hand_made import QuickStore, add_diagnostics, add_evaluation, add_trial, trained_on, trial_hash

from sweep.store.records.manifest import PlannedCell, PlannedSearch
from sweep.store.records.search import CandidateEntry, SearchRecord
from sweep.store.records.transfer import Transfer
from sweep.store.verdicts import pack, pack_distances
from tests import records
from trainers.config import TrialConfig

EPOCHS = 30
IMAGES = 400
VERSIONS = {"torch": "2.13.0", "ray": "2.55.0", "python": "3.11.2", "robustsweep": "0.1.0"}

# label: (display, method, hyperparameters, clean, PGD-20, AutoAttack, mean margin)
METHODS: dict[str, tuple[str, str, dict[str, Any], float, float, float, float]] = {
    "st": ("ST", "st", {}, 95.0, 1.0, 0.4, -9.0),
    "at": ("AT", "at", {}, 81.6, 52.9, 48.0, -3.7),
    "ovr": ("OVR", "ovr", {}, 80.2, 53.3, 48.3, -6.8),
    "mart": ("MART", "mart", {"beta": 6.0}, 78.3, 54.6, 46.9, -3.4),
    "mma": ("MMA", "mma", {"d_max": 0.1255}, 85.5, 52.2, 37.2, 0.5),
    "gairat": ("GAIRAT", "gairat", {"Lambda": 3.0}, 78.7, 57.6, 37.7, -0.3),
    "mail": ("MAIL", "mail", {"slope": 10.0}, 79.5, 55.3, 39.6, -0.1),
    "ewat": ("EWAT", "ewat", {}, 82.8, 53.2, 48.2, -2.3),
    "sovr": ("SOVR", "sovr", {"M": 40, "lam": 0.4}, 81.9, 52.1, 49.4, -4.3),
    "trades": ("TRADES", "trades", {"beta": 6.0}, 80.2, 53.1, 48.8, -2.6),
    "tsovr": ("TSOVR", "tsovr", {"M": 80, "lam": 0.8, "beta": 6.0}, 79.4, 53.5, 50.2, -3.0),
    "sovr+awp": ("SOVR+AWP", "sovr+awp", {"M": 40, "lam": 0.4}, 80.6, 54.9, 51.0, -3.8),
}
ABLATIONS = {
    f"sovr_m{rate}": (f"SOVR (M={rate})", "sovr", {"M": rate, "lam": 0.4}, 81.5, 52.4, 48.1 + 1.5 * share, -3.7 - share)
    for rate, share in ((20, 0.6), (60, 0.8), (80, 0.4), (100, 0.1))
} | {
    f"sovr_l{int(10 * lam)}": (f"SOVR (λ={lam:g})", "sovr", {"M": 40, "lam": lam}, 81.0, 52.0, 48.6, -3.0 - 2 * lam)
    for lam in (0.2, 0.6, 1.0)
}
TRAJECTORIES = {
    f"{loss}_{weight}": (
        f"{loss.upper()} w={weight}",
        f"weighted_{loss}",
        {"weight": float(weight)},
        80,
        50,
        47,
        margin,
    )
    for loss, weight, margin in (("ce", 1, -3.7), ("ce", 5, -4.0), ("ovr", 1, -6.9), ("ovr", 5, -7.4))
}


def write_store(
    folder: Path,
    *,
    name: str = "synthetic",
    title: str = "Synthetic, small CNN",
    methods: dict[str, tuple] | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    diagnostics: bool = True,
    components: bool = True,
    search: bool = True,
    failed: tuple[tuple[str, int], ...] = (("mma", 2),),
    transfers: bool = False,
) -> QuickStore:
    """One study with the given methods; `failed` lists (label, seed) of trials that broke.

    With `transfers` the counterexamples of every model were tried on all others.
    """
    store = QuickStore(folder)
    methods = METHODS if methods is None else methods
    cells, configs = [], {}
    for label, entry in methods.items():
        display, method, hyperparameters = entry[:3]
        config = configs[label] = trial_config(method, hyperparameters)
        for seed in seeds:
            trial = trial_hash(name, label, seed)
            cells.append(
                PlannedCell(
                    label=label, display=display, method=method, hyperparameters=hyperparameters, seed=seed, trial=trial
                )
            )
            _write_trial(store, name, trial, label, seed, config, entry, broken=(label, seed) in failed)
            if (label, seed) not in failed:
                _write_evaluations(store, trial, label, seed, entry, components)
                if transfers:
                    _write_transfers(store, name, trial, label, seed, list(methods), seeds)
                if diagnostics:
                    _write_diagnostics(store, trial, seed, entry)
    searches = [PlannedSearch(label=label, id=f"{name}-{label}") for label in ("sovr", "tsovr")] if search else []
    for planned in searches:
        store.write_record(_search(planned.id, planned.label))
    facts: dict[str, Any] = {"seeds": seeds, "attacks": (), "searches": searches, "config_by_label": configs}
    facts["study"] = {"papers": ["sovr"], "evaluation": {"diagnostics": diagnostics}}
    store.write_record(records.manifest(name, title=title, cells=cells, inner_attacks=trained_on(methods), **facts))
    return store


def trial_config(method: str, hyperparameters: dict[str, Any], **attack: Any) -> TrialConfig:
    """With the differences between methods that the real studies have."""
    kl = method.startswith(("trades", "tsovr"))
    mode = "eval" if kl or method in ("mart", "mail", "gairat") else "train"
    recipe = {
        "epochs": EPOCHS,
        "learning_rate": 0.05 if method == "sovr" else 0.1,
        "weight_decay": 2e-4 if method == "mma" else 5e-4,
        "schedule": {"kind": "piecewise_epoch" if kl else "piecewise", "at": (15.0, 22.0)},
        "augmentation": {"crop": "zero" if kl else "reflect", "flip": True},
        "standardize": not kl,
        "attack": {"mode": mode, **attack},
    }
    awp = {"gamma": 0.01, "warmup_epochs": 10} if "+awp" in method else None
    return records.trial_config(method=method, hyperparameters=hyperparameters, awp=awp, recipe=recipe, margins=True)


def _rng(*parts: object) -> np.random.Generator:
    return np.random.default_rng(int(trial_hash(*parts)[:12], 16))


def _write_trial(store, study, trial, label, seed, config, entry, *, broken: bool) -> None:
    facts: dict[str, Any] = {
        "config": config.model_copy(update={"seed": seed}),
        "curve": () if broken else _curve(label, seed, entry),
        "checkpoints": {
            "last": {"epoch": EPOCHS - 1, "sha256": "c" * 64},
            "best_test": {"epoch": 18 + seed, "sha256": "c" * 64},
        },
        "versions": VERSIONS,
        "commit": "0123456789abcdef",
        "device": "cpu (2 threads)",
        "wall_seconds": 61.5 + seed,
        "command": f"python -m sweep.run --study {study} --methods {label} --seeds {seed}",
    }
    if broken:
        reason = "RuntimeError: out of memory"
        facts |= {"status": "failed", "reason": reason, "log": ("epoch 3", reason)}
    add_trial(store, trial, **facts)


def _curve(label: str, seed: int, entry: tuple) -> list[dict[str, Any]]:
    rng = _rng(label, seed, "curve")
    _, _, _, clean, pgd, _, margin = entry
    rise = 1 - np.exp(-np.arange(1, EPOCHS + 1) / 5)
    decline = np.clip(np.arange(EPOCHS) - 18, 0, None) * 0.3
    noise = rng.normal(0, 0.6, (3, EPOCHS)) + rng.normal(0, 2, (3, 1))
    return [
        {
            "epoch": epoch, "learning_rate": 0.1, "train_loss": float(2.3 - rise[epoch]),
            "train_accuracy": float(np.clip((pgd + 8) * rise[epoch] + decline[epoch] + noise[2, epoch], 0, 100)) / 100,
            "test_clean_accuracy": float(np.clip(clean * rise[epoch] + noise[0, epoch], 0, 100)) / 100,
            "test_pgd_accuracy": float(np.clip(pgd * rise[epoch] - decline[epoch] + noise[1, epoch], 0, 100)) / 100,
            "validation_pgd_accuracy": None, "validation_clean_accuracy": None,
            "train_margin": float(margin * rise[epoch] + 0.05 * noise[2, epoch]), "seconds": 2.0,
        }
        for epoch in range(EPOCHS)
    ]  # fmt: skip


def _write_evaluations(store, trial, label, seed, entry, components: bool) -> None:
    rng = _rng(label, seed, "evaluation")
    _, _, _, clean, pgd, aa, _ = entry
    accuracies = {"clean": clean, "pgd-20": pgd, "autoattack": aa}
    if components:
        accuracies |= {"apgd-ce": pgd - 1.5, "apgd-t": aa + 0.2, "fab-t": aa + 0.7, "square": (aa + clean) / 2 - 8}
        drops = {"0.1": 6, "1": 0, "10": 0.5, "100": 4}
        accuracies |= {f"logit-scaling-{a}": max(0, pgd - d * (pgd - aa) / 5) for a, d in drops.items()}
        accuracies["curve"] = aa
    for attack, accuracy in accuracies.items():
        share = max(0.0, accuracy + rng.normal(0, 0.4)) / 100
        warnings = ["square found more than the others: gradient masking?"] if label == "gairat" else []
        facts: dict[str, Any] = {"images": IMAGES, "clean": clean / 100, "warnings": warnings}
        if attack == "autoattack":
            steps = {"clean": clean, "apgd-ce": pgd - 1.5, "apgd-t": aa + 0.2, "fab-t": aa + 0.1, "square": aa}
            facts["phases"] = {step: pack(records.first_survive(left / 100, IMAGES)) for step, left in steps.items()}
        if attack == "curve":
            facts["distances"] = pack_distances(_distances(share, clean / 100))
        add_evaluation(store, trial, attack, share, **facts)


def _write_transfers(store, study, trial, label, seed, labels, seeds) -> None:
    """A few images fall to each other model, beyond what AutoAttack broke now and then."""
    rng = _rng(label, seed, "transfers")
    tried = records.first_survive(0.7, IMAGES)
    found = [
        Transfer(
            trial=trial_hash(study, other, number),
            checkpoint="best_test",
            attack="autoattack",
            sha256="d" * 64,
            images=IMAGES,
            right=320,
            tried=pack(tried),
            fooled=pack(tried & (rng.random(IMAGES) < (0.01 if other == "st" else 0.1))),
        )
        for other in labels
        for number in seeds
        if (other, number) != (label, seed)
    ]
    store.write_record(records.transfer_record(trial, transfers=tuple(found)))


def _distances(share: float, clean: float) -> np.ndarray:
    """The later an image, the nearer; those beyond `clean` are wrong as they are."""
    survived, right = (records.first_survive(one, IMAGES) for one in (share, clean))
    falling = np.linspace(1, 0, IMAGES, endpoint=False)
    return np.where(right, np.where(survived, 8 / 255 * (1.01 + falling), 8 / 255 * falling), 0.0)


def _write_diagnostics(store, trial, seed, entry) -> None:
    rng = _rng(entry[0], seed, "diagnostics")
    for checkpoint, factor in (("best_test", 0.6), ("last", 1.0)):
        easy = rng.random(1500) < 0.6
        margin = np.where(easy, rng.normal(1.6, 0.6, 1500), rng.normal(0.2, 0.5, 1500)) * entry[6] * factor
        margin = (margin + rng.normal(0, 0.4, 1500)).astype(np.float32)
        arrays = {
            "train_margin": margin,
            "train_correct": margin <= 0,
            "train_probability_margin": np.tanh(margin / 2).astype(np.float32),
        }
        rate = float(1 - entry[5] / 100)
        summary = {
            "train_margin_mean": float(margin.mean()), "generalization_gap": 0.12 - 0.01 * entry[6] + 0.002 * seed,
            "train_potentially_misclassified": rate - 0.2 * rate, "test_potentially_misclassified": rate,
            "gradient_norm_ce_label": 1.1, "gradient_norm_ce_runner_up": 3.4 + 0.1 * seed,
            "gradient_norm_ce_random": 4.9, "gradient_norm_logit_label": 3.0, "gradient_norm_logit_max": 5.5 - rate,
        }  # fmt: skip
        add_diagnostics(store, trial, summary, arrays, checkpoint=checkpoint)


def _search(identity: str, label: str) -> SearchRecord:
    rng = _rng(label, "search")
    candidates = [{"M": 40, "lam": 0.4}] + [
        {"M": int(rng.integers(1, 10)) * 10, "lam": round(float(rng.uniform(0.1, 1.2)), 2)} for _ in range(13)
    ]
    entries = []
    for number, values in enumerate(candidates):
        score = 0.5 - 2e-5 * (values["M"] - 50) ** 2 - 0.05 * (values["lam"] - 0.6) ** 2 + float(rng.normal(0, 0.002))
        pruned = number % 5 == 3
        entries.append(
            CandidateEntry(
                index=number,
                generation=0,
                hyperparameters=values,
                trial=trial_hash("search", label, number),
                state="pruned" if pruned else "done",
                value=score - 0.05 * pruned,
                epochs=8 if pruned else EPOCHS,
            )
        )
    best = max((entry for entry in entries if entry.state == "done"), key=lambda entry: entry.value or 0.0)
    return records.search_record(
        identity,
        label=label,
        method=label,
        candidates=entries,
        chosen=best.hyperparameters,
        reason="highest validation_pgd_accuracy of 11 candidates",
        paper_value={"M": 40, "lam": 0.4},
    )

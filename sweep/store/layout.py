"""The layout of a store: the only module that knows its paths and the short name of a trial."""

from __future__ import annotations

import re
from typing import NamedTuple

TRIALS, EVALUATIONS, DIAGNOSTICS, SEARCHES, STUDIES = "trials", "evaluations", "diagnostics", "searches", "studies"
DECISIONS, ROWS, TRANSFERS = "decisions", "rows", "transfers"
LEASES, BROKEN, PREFLIGHT, USAGE = "leases", "broken", "preflight", "usage"
FOLDERS = (
    TRIALS,
    EVALUATIONS,
    DIAGNOSTICS,
    SEARCHES,
    STUDIES,
    DECISIONS,
    ROWS,
    TRANSFERS,
    LEASES,
    BROKEN,
    PREFLIGHT,
    USAGE,
)
RECORD, RESUME, PROGRESS, LOG = "record.json", "resume.pt", "progress.json", "log.txt"
WEIGHTS, COUNTEREXAMPLES = ".safetensors", ".npz"
SHORT_NAME = re.compile(r"[0-9a-f]{16}")

_MERGE = "merge-"
_CHECKPOINT = r"(?:last|best_test|best_validation|epoch-\d+)(?:-[0-9a-f]{16})?\.safetensors"
_TRIAL_FILE = re.compile(
    rf"trials/[^/]+/(?:record\.json|failed-\d+\.json|resume\.pt|progress\.json|log\.txt|{_CHECKPOINT})"
)
_COUNTEREXAMPLES = re.compile(r"evaluations/[^/]+/[^/]+/[^/]+\.npz")
_LEASE = re.compile(r"leases/[^/]+\.[0-9a-f]{1,40}\.json")
_SET_ASIDE = re.compile(rf"broken/(?:{'|'.join(FOLDERS)})/.+\.\d+")
_SHARD = re.compile(r"shard-(\d+)-(\d+)(?:\.(.+))?\.json")
_DIAGNOSED = re.compile(r"(epoch-\d+|[a-z_]+)-")


def kind_at(path: str) -> str | None:
    """Return the kind of record that belongs at a path, or None if the path is not that of a record."""
    match path.split("/"):
        case ["trials", _, "record.json"]:
            return "trial"
        case ["evaluations", _, _, name] if name.endswith(".json"):
            return "evaluation"
        case ["evaluations", _, _, _, name] if _SHARD.fullmatch(name):
            return "shard"
        case ["diagnostics", _, name] if name.endswith(".json"):
            return "diagnostics"
        case ["searches", _, "record.json"]:
            return "search"
        case ["searches", _, "candidates", name] if name.endswith(".json"):
            return "candidate"
        case ["decisions", _, name] if name.endswith(".json"):
            return "decision"
        case ["rows", _, name] if name.endswith(".json"):
            return "row"
        case ["transfers", _, name] if name.endswith(".json"):
            return "transfer"
        case ["studies", name] if name.endswith(".json"):
            return "study"
    return None


def short(trial: str) -> str:
    """Return the folder name of a trial. The record inside holds the full hash."""
    return trial[:16]


def trial_folder(trial: str) -> str:
    return f"{TRIALS}/{short(trial)}"


def trial_record(trial: str) -> str:
    return f"{trial_folder(trial)}/{RECORD}"


def trial_file(trial: str, name: str) -> str:
    return f"{trial_folder(trial)}/{name}"


def failed_record(trial: str, number: int) -> str:
    """Return the path of a failed record that was kept when the trial was retried."""
    return trial_file(trial, f"failed-{number}.json")


def in_trial(path: str) -> tuple[str, str]:
    """Split a path below `trials/` into the trial's short name and the file name."""
    trial, _, name = path.removeprefix(f"{TRIALS}/").partition("/")
    return trial, name


def is_trial_file(path: str) -> bool:
    """Return whether training writes a file of this name. Any other file in a trial folder is not ours."""
    return _TRIAL_FILE.fullmatch(path) is not None


def weights(trial: str, checkpoint: str) -> str:
    return trial_file(trial, f"{checkpoint}{WEIGHTS}")


def evaluations_of(trial: str) -> str:
    return f"{EVALUATIONS}/{short(trial)}"


def evaluation_folder(trial: str, checkpoint: str, attack: str) -> str:
    """Return the folder that holds the shards of an evaluation until they are merged into its record."""
    return f"{evaluations_of(trial)}/{checkpoint}/{attack}"


def evaluation_record(trial: str, checkpoint: str, attack: str) -> str:
    return f"{EVALUATIONS}/{trial[:16]}/{checkpoint}/{attack}.json"  # called tens of thousands of times, hence inlined


def evaluated_trial(record: str) -> str:
    """Return the short name of the trial in the path of an evaluation record."""
    return record.split("/", 2)[1]


def counterexamples(record: str) -> str:
    """Return the path of the counterexamples that belong to an evaluation record."""
    return f"{record.removesuffix('.json')}{COUNTEREXAMPLES}"


def is_counterexamples(path: str) -> bool:
    return _COUNTEREXAMPLES.fullmatch(path) is not None


def evaluation_of_counterexamples(path: str) -> str:
    return f"{path.removesuffix(COUNTEREXAMPLES)}.json"


def shard(folder: str, first: int, last: int, phase: str) -> str:
    return f"{folder}/shard-{first}-{last}{f'.{phase}' if phase else ''}.json"


def record_of_shard(path: str) -> str:
    """Return the path of the evaluation record that a shard belongs to."""
    return f"{path.rpartition('/')[0]}.json"


class ShardName(NamedTuple):
    first: int
    last: int
    phase: str


def shard_name(path: str) -> ShardName | None:
    match = _SHARD.fullmatch(path.rpartition("/")[2])
    return ShardName(int(match[1]), int(match[2]), match[3] or "") if match else None


def diagnostics_record(trial: str, checkpoint: str, epsilon: str, images: int | None, norm: str = "linf") -> str:
    """Return the path of a diagnostics record. It contains the settings, so studies that share a trial do not clash."""
    radius = f"{'' if norm == 'linf' else f'{norm}-'}{epsilon.replace('/', '_')}"
    settings = f"{radius}-{'all' if images is None else images}"
    return f"{DIAGNOSTICS}/{short(trial)}/{checkpoint}-{settings}.json"


def diagnosed_checkpoint(record: str) -> str:
    """Return the checkpoint in the path of a diagnostics record. The settings after it may contain dashes too."""
    match = _DIAGNOSED.match(record.rpartition("/")[2])
    return match[1] if match else ""


def search_record(search: str) -> str:
    return f"{SEARCHES}/{search}/{RECORD}"


def search_journal(search: str) -> str:
    return f"{SEARCHES}/{search}/journal.log"


def candidate_record(search: str, trial: str) -> str:
    return f"{SEARCHES}/{search}/candidates/{short(trial)}.json"


def decision_record(study: str, name: str) -> str:
    return f"{DECISIONS}/{study}/{name}.json"


def row_record(study: str, label: str) -> str:
    return f"{ROWS}/{study}/{label}.json"


def transfers_of(trial: str) -> str:
    return f"{TRANSFERS}/{short(trial)}"


def transfer_record(trial: str, checkpoint: str, norm: str, epsilon: str) -> str:
    return f"{transfers_of(trial)}/{checkpoint}-{norm}-{epsilon.replace('/', '_')}.json"


def manifest(study: str) -> str:
    return f"{STUDIES}/{study}.json"


def usage_folder(study: str) -> str:
    return f"{USAGE}/{study}"


def usage(study: str, driver: str) -> str:
    return f"{usage_folder(study)}/{driver}.json"


def lease(name: str, part: int | str) -> str:
    """Return the path of a lease file. `part` is a number, or the identity of the holder that was taken over."""
    return f"{LEASES}/{name}.{part}.json"


def is_lease(path: str) -> bool:
    return _LEASE.fullmatch(path) is not None


def is_set_aside(path: str) -> bool:
    """Return whether this is the path of a broken file that was set aside."""
    return _SET_ASIDE.fullmatch(path) is not None


def merge_lease(merge: str) -> str:
    """Return the lease name of a merge. Until it ends, its files may look unused."""
    return f"{_MERGE}{merge}"


def is_merge(name: str) -> bool:
    return name.startswith(_MERGE)


def trial_lease(trial: str) -> str:
    """Return the lease name of a trial's training."""
    return f"{TRIALS}-{short(trial)}"


def search_lease(search: str) -> str:
    return f"{SEARCHES}-{search}"

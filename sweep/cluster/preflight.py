"""Checks, in the first seconds, for anything that would make a sweep wait forever or fail after hours."""

from __future__ import annotations

import platform
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweep.cluster.gpus import GpuFacts, examine_gpus
from sweep.cluster.resources import TrialResources, nodes, resources_by_piece, slots
from sweep.commands import spelled, store_words
from sweep.errors import UserError
from sweep.listing import size
from sweep.store import layout
from sweep.store.base import Store
from sweep.store.opening import open_store
from sweep.store.same_data import data_faults, node_fault, recorded_data
from sweep.studies.model import Study
from sweep.trials.cells import stored_trials
from sweep.trials.disk import planned_bytes
from sweep.work.node_check import SPARE_BYTES, versions_here
from trainers import data
from trainers.assembly import data_sha256
from trainers.plugins import registry
from trainers.wrapper import Wrapper

WAIT_SECONDS = 300.0  # cold nodes of a large cluster take minutes to load our code
RACERS, RACES = 8, 3


@dataclass
class NodeFacts:
    """A node's report about itself."""

    node: str
    versions: dict[str, str] = field(default_factory=dict)
    store: str | None = None  # the fault of the store there, if any
    data: str | None = None  # the fault of the data there, if any
    sha256: dict[str, str] = field(default_factory=dict)  # of the data there, by name
    gpus: GpuFacts = GpuFacts()


class Checked(NamedTuple):
    """Facts that the driver needs after the check."""

    notes: list[str]  # for the user
    data: dict[str, str]  # SHA-256 of the study's data, the same on every node
    versions: dict[str, str]  # of the packages that every node must have


def check(
    study: Study,
    store: Store,
    resources: TrialResources,
    data_dir: Path,
    *,
    seconds: float = WAIT_SECONDS,
    scales: bool = False,
) -> Checked:
    """Check the cluster, the store, the data and the disk. Ray must be running.

    Args:
        seconds: Time that nodes have to answer.
        scales: The cluster adds nodes, so that a suitable one may still be missing.

    Raises:
        UserError: With all faults at once.
    """
    faults = []
    for wanted_resources in {resources, *resources_by_piece(study, resources).values()} if not scales else ():
        faults += resource_faults(wanted_resources, [node["Resources"] for node in nodes()])
    mark = f"{layout.PREFLIGHT}/{uuid.uuid4().hex}"
    try:
        store.write(mark, b"driver")
    except OSError as fault:
        raise UserError(f"store {store.uri} is not writable: {fault}; choose another with --store") from None
    try:
        wanted = (study.dataset, str(data_dir), wrappers_of(study), registry.sources())
        own = _own_node()
        gpus = own["Resources"].get("GPU", 0.0) if own and resources.gpus else 0.0
        here = probe(store.uri, mark, *wanted, gpus=gpus, download=True)
        here.store = here.store or create_fault(store, mark)
        found = [here, *_others([store.uri, mark, *wanted], seconds, gpus=bool(resources.gpus))]
        if here.store is None:
            here.store = _replies(store, mark, found)
    finally:
        for path in store.paths(layout.PREFLIGHT):
            if path.startswith(mark):
                store.delete(path)
    faults += node_faults(found)
    recorded = recorded_data(store, stored_trials(study, store))
    faults += data_faults(recorded, here.sha256, data_dir, "begin anew in another --store")
    faults += disk_faults(study, store, slots(resources))
    if faults:
        raise UserError("this sweep cannot start:\n" + "\n".join(f"  {fault}" for fault in faults))
    return Checked(
        [f"node {facts.node}: {line}" for facts in found for line in facts.gpus.lines()], here.sha256, here.versions
    )


def resource_faults(resources: TrialResources, available: Sequence[dict[str, float]]) -> list[str]:
    """Return a fault if a trial fits on no node: Ray would keep it waiting forever."""
    if any(resources.fits(node) for node in available):
        return []
    counts = [
        f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU, {size(node.get('memory', 0))}" for node in available
    ]
    return [
        f"one trial needs {resources}, but no node of the cluster has that much (nodes: {'; '.join(counts)}); "
        "lower it with --set resources.gpus=0.5, resources.cpus=1 or resources.memory=4GB"
    ]


def node_faults(found: Sequence[NodeFacts]) -> list[str]:
    faults = [
        f"node {facts.node}: {fault}"
        for facts in found
        for fault in (facts.store, facts.data, facts.gpus.fault)
        if fault
    ]
    here = found[0]
    for facts in found[1:]:
        differing = [
            f"{name} {facts.versions.get(name, 'absent')} (here {here.versions.get(name, 'absent')})"
            for name in sorted({*here.versions, *facts.versions})
            if facts.versions.get(name) != here.versions.get(name)
        ]
        if differing:
            faults.append(f"node {facts.node} has other versions: {', '.join(differing)}; install the same everywhere")
        if other := node_fault(here.sha256, facts.sha256):
            faults.append(f"node {facts.node} has {other}")
    return faults


def disk_faults(study: Study, store: Store, at_once: int) -> list[str]:
    place = store.local("")
    if place is None:
        return []
    place.mkdir(parents=True, exist_ok=True)
    needed = planned_bytes(study, store, at_once) + SPARE_BYTES
    free = shutil.disk_usage(place).free
    if needed <= free:
        return []
    return [
        f"store {place} has {size(free)} free, but the planned checkpoints take {size(needed)}; "
        f"free some with '{spelled('sweep.gc', *store_words(store.uri))}', or choose another with --store"
    ]


def wrappers_of(study: Study) -> list[Wrapper]:
    """Return the wrappers of the study's methods that need files."""
    configs = [study.config(label) for label in study.labels]
    return [wrapper for config in configs for wrapper in config.wrappers.values() if wrapper.needs_files]


def probe(
    store_uri: str,
    mark: str,
    dataset: str,
    data_dir: str,
    wrappers: Sequence[Wrapper] = (),
    plugins: Mapping[str, str] | None = None,
    *,
    gpus: float = 0.0,
    download: bool = False,
) -> NodeFacts:
    """Check the node on which this runs, and its GPUs if it should have any.

    Only the driver downloads data, because two nodes may share the folder.
    """
    facts = NodeFacts(platform.node(), versions_here())
    facts.store = _store_fault(store_uri, mark)
    if gpus:
        facts.gpus = examine_gpus(gpus)
    try:
        registry.load_sources(plugins or {})
    except ValueError as fault:  # a file of the user's is missing here, or differs
        facts.data = str(fault)
        return facts
    try:
        bundle = data.load(dataset, data_dir, download=download)
        for wrapper in wrappers:
            wrapper.check_files(data.dataset_facts(dataset), Path(data_dir))
        facts.sha256 = data_sha256(bundle, wrappers, data_dir)
    except (data.DataMissing, OSError) as fault:
        facts.data = str(fault)
    return facts


def _store_fault(store_uri: str, mark: str) -> str | None:
    store = open_store(store_uri)
    try:
        if not store.exists(mark):
            return f"store {store_uri} is not the same folder here; use one that every node sees, or s3://"
        store.write(f"{mark}-{uuid.uuid4().hex}", b"node")
    except OSError as fault:
        return f"store {store_uri} is not writable: {fault}"
    return None


def _replies(store: Store, mark: str, found: Sequence[NodeFacts]) -> str | None:
    replies = sum(path.startswith(f"{mark}-") for path in store.paths(layout.PREFLIGHT))
    expected = sum(facts.store is None for facts in found)
    return None if replies >= expected else f"store {store.uri} does not show what other nodes write"


def create_fault(store: Store, mark: str) -> str | None:
    """Return a fault if the store lets several writers create one file: drivers would repeat each other's work."""
    for race in range(RACES):
        path, start = f"{mark}.race{race}", threading.Barrier(RACERS)

        def create(racer: int, path: str = path, start: threading.Barrier = start) -> bool:
            start.wait()
            return store.create(path, str(racer).encode())

        with ThreadPoolExecutor(RACERS) as racers:
            made = sum(racers.map(create, range(RACERS)))
        made += store.create(path, b"later")
        if made != 1:
            return (
                f"store {store.uri} let {made} writers create one file, so two drivers could not share it; use a file "
                "system with atomic exclusive creation, or an S3 service that honours If-None-Match"
            )
    return None


def _own_node() -> dict[str, Any] | None:
    own = ray.get_runtime_context().get_node_id()
    return next((node for node in nodes() if node["NodeID"] == own), None)


def _others(question: Sequence[Any], seconds: float, *, gpus: bool) -> list[NodeFacts]:
    """Probe all other nodes at once."""
    own = ray.get_runtime_context().get_node_id()
    asked: dict[Any, str] = {}
    for node in nodes():
        if node["NodeID"] != own:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task: Any = ray.remote(probe).options(num_cpus=0, max_retries=0, scheduling_strategy=where)
            present = node["Resources"].get("GPU", 0.0) if gpus else 0.0
            asked[task.remote(*question, gpus=present)] = node["NodeManagerHostname"]
    if not asked:
        return []
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=seconds)
    found = [_answer(reference, asked[reference]) for reference in answered]
    return found + [NodeFacts(asked[one], store=_silence(seconds)) for one in silent]


def _silence(seconds: float) -> str:
    return f"no answer within {seconds:.0f} s; give cold nodes longer with --wait-for-nodes {2 * seconds:.0f}"


def _answer(reference: Any, name: str) -> NodeFacts:
    try:
        facts: NodeFacts = ray.get(reference)
        return facts
    except ray.exceptions.RayError as fault:
        last = str(fault).strip().splitlines()[-1]
        return NodeFacts(name, store=f"cannot run our code: {last}")

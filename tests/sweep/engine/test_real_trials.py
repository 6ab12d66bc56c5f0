"""A sweep by a real Ray Tune: what its trials hold, how they look, what one leaves to the next, and who shares work."""

import json
import os
import textwrap
from types import SimpleNamespace

import pytest

from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from tests.sweep.tiny_study import tiny

# Writes down the process in which it trains, and changes all that a process has for all.
METHOD = """
    import json, os, random
    from dataclasses import dataclass
    from pathlib import Path
    import numpy, ray, torch
    import torch.nn.functional as F
    from trainers.method import Method

    FOLDER = Path({folder!r})

    @dataclass(frozen=True)
    class Looks(Method):
        def loss(self, model, images, labels, attack):
            context = ray.get_runtime_context()
            facts = {{
                "title": Path("/proc/self/cmdline").read_text().rstrip(chr(0)),
                "resources": context.get_assigned_resources(),
                "pid": os.getpid(),
                "left": os.environ.get("LEFT_BEHIND"),
                "dtype": str(torch.get_default_dtype()),
                "threads": torch.get_num_threads(),
            }}
            with (FOLDER / "facts.jsonl").open("a") as file:
                file.write(json.dumps(facts) + chr(10))
            value = F.cross_entropy(model(images), labels)
            os.environ["LEFT_BEHIND"] = "1"
            random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
            print("from the loss")
            return value
"""
# A chunk of some images is worth a lease, and takes a while: devices that have nothing else to do can help.
ATTACK = """
    import time
    from trainers.attack import EvaluationAttack

    class Slow(EvaluationAttack):
        kind: str = "slow"

        @property
        def cost(self):
            return 3e4

        def adversarial(self, model, images, labels, indices):
            time.sleep(0.4)
            return images + 0.1 * (indices % 3 == 0).view(-1, 1, 1, 1)
"""
METHODS = {"looks": {}, "wide": {"method": "looks", "resources": {"cpus": 2}, "train": {"epochs": 4}}}


@pytest.fixture(scope="module")
def cluster():
    """One node with two cores, and a GPU of which only Ray knows."""
    before = dict(os.environ)
    os.environ["RAY_AUTH_MODE"] = "disabled"
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "num_gpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, connect=False, head_node_args=node)
    yield made
    made.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def swept(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    texts = {"looks": textwrap.dedent(METHOD).format(folder=str(folder)), "slow": textwrap.dedent(ATTACK)}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    study = tiny(
        folder,
        plugins=tuple(folder / f"{name}.py" for name in texts),
        methods=METHODS,
        seeds=[0, 1],
        search=None,
        test_images=None,
        resources={"gpus": 0, "cpus": 1, "evaluation": {"cpus": 1}},
        evaluation={"attacks": ["clean", "slow"], "epsilon": "0.1", "batch_size": 24},
    )
    store = open_store(folder / "store")
    options = RunOptions(address=cluster.address, data_dir=folder, out=None, loggers=(), yes=True)
    summary = run_study(study, store, options)
    lines = (folder / "facts.jsonl").read_text().splitlines()
    return SimpleNamespace(
        folder=folder, study=study, store=store, summary=summary, facts=[json.loads(line) for line in lines]
    )


def records_by_label(swept):
    return {cell.label: swept.store.trial_record(cell.trial) for cell in swept.store.manifest("tiny").cells}


def first_facts(swept):
    """Return what each training found when it began, by its title."""
    facts = {}
    for fact in swept.facts:
        facts.setdefault(fact["title"].removeprefix("ray::"), fact)
    return facts


@pytest.mark.timeout(400)
def test_a_trial_of_tune_is_a_piece_of_the_study(swept):
    assert swept.summary.complete and not swept.summary.failed
    titles = set(swept.summary.trials["title"])
    pieces = {f"{label} seed {seed}" for label in METHODS for seed in (0, 1)}
    assert pieces <= titles and {f"{piece} · clean" for piece in pieces} <= titles
    assert set(swept.summary.trials["state"]) <= {"done", "shared"}
    assert swept.summary.done == {"train": 4, "attack": 4 * 2}


def test_processes_are_used_again_and_nothing_of_the_trial_before_is_there(swept):
    facts = first_facts(swept)
    assert len(facts) == 4 and len({fact["pid"] for fact in facts.values()}) < 4
    assert "1" in {fact["left"] for fact in swept.facts}  # within a training
    assert {(fact["left"], fact["dtype"]) for fact in facts.values()} == {(None, "torch.float32")}


def outcome(store, trials):
    """Return everything of these trials that must not depend on where it was computed."""
    numbers = {}
    for trial in trials:
        record = store.trial_record(trial)
        curve = [{key: value for key, value in row.items() if key != "seconds"} for row in record.curve]
        numbers[trial] = (record.status, curve, record.checkpoints)
        for path in store.record_paths(EvaluationRecord, layout.evaluations_of(trial)):
            evaluation = store.usable(EvaluationRecord, path)
            numbers[path] = (evaluation.verdicts, evaluation.clean, evaluation.accuracy, evaluation.images)
    return numbers


def test_numbers_are_those_of_a_run_in_one_process(swept, tmp_path, monkeypatch):
    """Whoever trained what, in whichever process, and however many shared an attack."""
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_assigned_resources=dict))
    facts = swept.folder / "facts.jsonl"
    before, store = facts.read_text(), open_store(tmp_path / "store")
    options = RunOptions(data_dir=tmp_path, out=None, local=True, progress=False)
    assert run_study(swept.study, store, options).complete
    facts.write_text(before)
    trials = [cell.trial for cell in store.manifest("tiny").cells if cell.label == "looks"]  # of one thread each
    expected = outcome(store, trials)
    assert len(expected) == 2 * 3 and outcome(swept.store, trials) == expected


def test_an_attack_is_shared_by_devices_that_have_nothing_else_to_do(swept):
    titles = list(swept.summary.trials["title"])
    assert any(title.endswith("slow 2/2") for title in titles), titles
    paths = swept.store.record_paths(EvaluationRecord)
    assert len(paths) == 4 * 2 and {swept.store.usable(EvaluationRecord, path).images for path in paths} == {360}
    assert not [path for path in swept.store.paths(layout.EVALUATIONS) if "shard" in path]


def test_a_column_and_the_attacks_hold_what_the_study_says(swept):
    facts, records = first_facts(swept), records_by_label(swept)
    for label, cpus in (("looks", 1.0), ("wide", 2.0)):
        fact = facts[f"{label} seed 0"]
        assert fact["resources"]["CPU"] == cpus and fact["threads"] == cpus == records[label].threads
        assert not fact["resources"].get("GPU")  # resources.gpus 0 keeps it on the CPU
    paths = swept.store.record_paths(EvaluationRecord)
    assert {swept.store.usable(EvaluationRecord, path).threads for path in paths} == {1}


def test_every_trial_shows_its_title_where_ps_looks(swept):
    titles = {fact["title"] for fact in swept.facts}
    assert titles == {f"ray::{label} seed {seed}" for label in METHODS for seed in (0, 1)}

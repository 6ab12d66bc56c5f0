"""A trial's name is a function of all that can move its numbers, and planning stays quick whatever a study's shape."""

import json
import subprocess
import sys

import pytest
from optuna.distributions import FloatDistribution
from tiny_study import tiny

from search_spaces import sovr
from sweep.store.base import BrokenRecord, open_store
from sweep.store.encoding import encode
from sweep.studies.model import Study
from sweep.trials import cells as plan
from sweep.trials.identity import canonical_json, trial_hash, trial_hashes
from sweep.work.tasks import Job
from sweep.work.work import Work
from trainers.config import Recipe, TrialConfig


def config(**changes) -> TrialConfig:
    return TrialConfig(**{"dataset": "digits", "model": "small_cnn", "method": "sovr", **changes})


def test_a_trials_name_is_known_for_ever():
    # A change of this value orphans every stored trial: raise NUMERICS_VERSION on purpose, never by accident.
    fixed = TrialConfig(
        dataset="cifar10", model="preact_resnet18", method="sovr", hyperparameters={"M": 40, "lam": 0.4}
    )
    assert trial_hash(fixed) == "0ac067d8b9117f6fb780deb841453068da0bba24291d4a348d4605da00964281"


def test_the_manifest_says_how_things_are_shown_and_what_a_method_trains_on():
    study = Study.load("digits", methods=["st", "mart"])
    made = plan.manifest(study, plan.expand(study))
    assert made["displays"] == {"dataset": "Digits", "model": "small CNN"}
    assert made["inner_attacks"] == {
        "st": {"start": "uniform", "mode": "train", "trains_on": "clean"},
        "mart": {"start": "gauss", "mode": "eval", "trains_on": "attacked"},
    }


def test_rounding_errors_do_not_make_a_new_trial():
    one = config(hyperparameters={"lam": 0.1 + 0.2 + 0.3, "M": 40})
    other = config(hyperparameters={"M": 40.0, "lam": 0.6})
    assert trial_hash(one) == trial_hash(other)
    assert canonical_json({"a": 0.1 + 0.2, "b": float("inf")}) == '{"a":0.3,"b":"inf"}'


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"hyperparameters": {"lam": 0.5}},
        {"recipe": Recipe(learning_rate=0.05)},
        {"recipe": Recipe(attack={"epsilon": "0.0313725490196"})},
        {"train_images": 100},
        {"plugin": "ab"},
        {"method": "sovr+awp"},
        {"margins": True},
    ],
)
def test_whatever_can_move_a_number_moves_the_name(change):
    assert trial_hash(config(**change)) != trial_hash(config())


def test_hashing_many_seeds_at_once_is_hashing_each():
    many = trial_hashes(config(), [3, 4])
    assert many == [trial_hash(config(seed=3)), trial_hash(config(seed=4))]


def test_order_of_wrappers_and_spelled_out_defaults_do_not_matter(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "{title: t, dataset: digits, model: small_cnn, seeds: [0], methods: {"
        "a: {method: sovr+awp+seat}, "
        "b: {method: sovr+seat+awp, hyperparameters: {M: 40, lam: 0.4}, awp: {gamma: 0.01}}}}"
    )
    first, second = plan.expand(Study.load(path))
    assert first.trial == second.trial and first.method == "sovr+awp+seat"


def test_cells_of_a_search_have_no_name_until_it_has_chosen(tmp_path):
    study = Study.load("digits", methods=["at", "sovr"])
    cells = plan.expand(study)
    assert [cell.trial is None for cell in cells] == [False] * 3 + [True] * 3
    store = open_store(tmp_path)
    assert plan.chosen_values(study, store) == {}
    place = f"searches/{plan.search_id(study, 'sovr')}/record.json"
    store.write_json(place, {"kind": "search", "status": "running", "chosen": {"M": 20, "lam": 0.2}})
    assert plan.chosen_values(study, store) == {}
    store.write_json(place, {"kind": "search", "status": "done", "chosen": {"M": 20, "lam": 0.2}})
    cells = plan.expand(study, plan.chosen_values(study, store))
    assert all(cell.trial for cell in cells) and cells[-1].hyperparameters["M"] == 20
    assert plan.states(cells, store) == ["missing"] * 6


def test_a_broken_search_says_its_way_out_which_keeps_every_candidate(tmp_path):
    """Deleting the record is enough: the same candidates are proposed again and found trained."""
    study, store = tiny(tmp_path, methods={"sovr": {}}, seeds=[0]), open_store(tmp_path / "store")
    common = dict.fromkeys(("data_dir", "cpus", "plugins", "commit", "numerics", "command"), "")

    def next_training() -> Job:
        """Trains every candidate that is asked for, as a worker would, up to the first training of the tables."""
        work = Work(study, store, common={**common, "store": store.uri})
        while (job := work.next_job()) is not None and job.kind == "candidate":
            asked.append(job.payload["trial"])
            accuracy = int(job.payload["trial"][:4], 16) / 0xFFFF
            curve = [{"validation_pgd_accuracy": accuracy, "validation_clean_accuracy": 0.9}] * 3
            facts = {"curve": curve, "metrics": {}, "checkpoints": {}}
            store.write_trial_record({"trial": job.payload["trial"], "status": "done", **facts})
            work.finished(job)
        work.close()
        return job

    asked: list[str] = []
    first = next_training()
    assert first.kind == "train" and len(asked) == 6
    path = f"searches/{plan.search_id(study, 'sovr')}/record.json"
    store.write(path, store.read(path)[:200])
    with pytest.raises(BrokenRecord, match=f"{path}.*delete this file and run the study again"):
        plan.chosen_values(study, store)
    store.delete(path)
    assert next_training().payload["trial"] == first.payload["trial"] and len(asked) == 6


def test_another_recipe_is_another_search():
    study, longer = Study.load("digits"), Study.load("digits", overrides=["train.epochs=99"])
    assert plan.search_id(study, "sovr") != plan.search_id(longer, "sovr")
    fewer = Study.load("digits", overrides=["search.sovr.candidates=3"])
    assert plan.search_id(study, "sovr") != plan.search_id(fewer, "sovr")


def test_another_space_is_another_search(monkeypatch):
    study = Study.load("digits")
    before = plan.search_id(study, "sovr")
    assert plan.search_id(Study.load("digits"), "sovr") == before
    finer = {**sovr.SPACES["paper"], "lam": FloatDistribution(0.2, 1.0, step=0.05)}
    monkeypatch.setitem(sovr.SPACES, "paper", finer)
    other = plan.search_id(study, "sovr")
    monkeypatch.setitem(sovr.SPACES, "paper", {**finer, "lam": FloatDistribution(0.2, 0.9, step=0.05)})
    assert len({before, other, plan.search_id(study, "sovr")}) == 3
    monkeypatch.undo()
    assert plan.search_id(study, "sovr") == before
    monkeypatch.setitem(sovr.PAPER_VALUES, "default", {"M": 50, "lam": 0.4})
    assert plan.search_id(study, "sovr") != before


def test_headline_follows_the_protocol():
    study = Study.load("cifar10_ddpm")
    assert plan.evaluated_checkpoints(study, study.config("at+ddpm")) == ["best_validation"]
    assert plan.diagnosed_checkpoints(study, study.config("at+ddpm")) == []
    study = Study.load("cifar10_wrn")
    assert plan.diagnosed_checkpoints(study, study.config("at")) == ["best_test", "last"]
    study = Study.load("cifar10_m_effect")
    assert plan.evaluated_checkpoints(study, study.config("at")) == ["best_test", "last"]


@pytest.mark.parametrize(("labels", "seeds"), [(1, 10_000), (100, 100), (5000, 2), (10_000, 1)])
def test_ten_thousand_trials_are_planned_and_listed_in_seconds_and_500_mb(tmp_path, labels, seeds):
    """CPU time, not wall time: other tests may run beside this one, and even so a busy machine doubles it.

    The three seconds of an idle machine are checked by benchmarks/sweep_overhead.py.
    """
    entries = "".join(
        f"  s{i}: {{method: sovr, hyperparameters: {{M: {i % 100}, lam: {0.1 + i / 10_000:.4f}}}}}\n"
        for i in range(labels)
    )
    path = tmp_path / "many.yaml"
    path.write_text(f"title: t\ndataset: digits\nmodel: small_cnn\nseeds: {list(range(seeds))}\nmethods:\n{entries}")
    store = open_store(tmp_path / "store")
    study = Study.load(path)
    cells = plan.expand(study)
    assert len({cell.trial for cell in cells}) == 10_000
    store.write_manifest(plan.manifest(study, cells))
    curve = [{"epoch": epoch, "test_pgd_accuracy": 0.5123, "train_loss": 1.2345678} for epoch in range(200)]
    record = encode({"kind": "trial", "status": "done", "curve": curve})
    for cell in cells[::10]:
        store.local(f"trials/{cell.trial[:16]}").mkdir(parents=True)
        store.local(f"trials/{cell.trial[:16]}/record.json").write_bytes(record)
    for command in (["run", "--study", str(path), "--dry-run"], ["status"]):
        seconds, megabytes, output = _measure([*command, "--store", str(tmp_path / "store"), "--json"])
        found = json.loads(output)
        counts = (found if isinstance(found, dict) else found[0])["counts"]
        assert sum(counts.values()) == 10_000 and counts["done"] == 1000
        assert seconds < 6.0, f"{command[0]} took {seconds:.1f} s of CPU"
        assert megabytes < 500, f"{command[0]} took {megabytes:.0f} MB"


def test_a_label_among_thousands_is_the_trial_that_it_is_alone(tmp_path):
    """Labels share what they have in common; none may get what belongs to another."""
    entries = {
        "a": {"method": "sovr", "hyperparameters": {"M": 20}},
        "b": {"method": "sovr", "hyperparameters": {"M": 30}, "train": {"epochs": 3}},
        "c": {"method": "sovr", "hyperparameters": {"M": 30}},
        "d": {"method": "sovr+awp", "hyperparameters": {"M": 30}},
        "e": {"method": "sovr+awp", "hyperparameters": {"M": 30}, "awp": {"gamma": 0.02}},
        "sovr": None,
    }

    def load(methods) -> Study:
        path = tmp_path / "s.yaml"
        path.write_text(json.dumps({"title": "t", "dataset": "digits", "model": "small_cnn", "methods": methods}))
        return Study.load(path)

    together = {(cell.label, cell.seed): cell.trial for cell in plan.expand(load(entries))}
    alone = {
        (cell.label, cell.seed): trial_hash(TrialConfig.model_validate(cell.config.model_dump()))
        for label, entry in entries.items()
        for cell in plan.expand(load({label: entry}))
    }
    assert together == alone and len(set(together.values())) == 18


# The kernel's own peak for a child (ru_maxrss) starts at the size of the process that forked it: ask the child itself.
MEASURED = """
import atexit, json, resource, sys
from pathlib import Path
from sweep.cli import main

def measure():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([usage.ru_utime + usage.ru_stime, int(peak.split()[1]) / 1024]), file=sys.stderr)

atexit.register(measure)
main(sys.argv[1:])
"""


def _measure(arguments: list[str]) -> tuple[float, float, str]:
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True)
    seconds, megabytes = json.loads(done.stderr.splitlines()[-1])
    return seconds, megabytes, done.stdout

"""Gauges of a sweep in Ray's metrics, the dashboard file that shows them, and Ray's own dashboard on this machine."""

import json
import re
import socket
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from sweep.cluster.session import connected
from sweep.engine.checks import DASHBOARD_PACKAGES
from sweep.engine.gauges import OF_A_TRIAL, TAGS, TRIALS, Gauges, gauge_values, trial_counts
from sweep.evaluation.asked import Evaluation
from sweep.store.opening import open_store
from sweep.work.pieces import Attack, Training
from sweep.work.queue import Queue
from tests.patience import patience
from tests.records import trial_config
from tests.sweep.tiny_study import tiny
from trainers.attacks import parse

DASHBOARD = Path(__file__).parents[3] / "docs/grafana_dashboard.json"
TRIAL = "ab" * 32
CONFIG = Training("ät", trial_config(), TRIAL).tune_config("tiny")


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tiny(tmp_path, search=None), open_store(tmp_path / "store"))
    yield queue
    queue.close()


def attack(name):
    return Attack("at", trial_config(), TRIAL, Evaluation(TRIAL, "best_test", parse(name), 20)).tune_config("tiny")


def report(gauges, config, result):
    trial = SimpleNamespace(trial_id="a", config=config)
    gauges.on_trial_result(0, [], trial, result)
    gauges.on_step_end(0, [])


def test_an_epoch_sets_its_number_its_accuracies_and_its_seconds():
    row = {"epoch": 4, "seconds": 2.5, "validation_pgd_accuracy": 0.25, "validation_clean_accuracy": 0.75}
    assert gauge_values(CONFIG, row) == {
        "robustsweep_epoch": 5,
        "robustsweep_epoch_seconds": 2.5,
        "robustsweep_robust_accuracy": 0.25,
        "robustsweep_clean_accuracy": 0.75,
    }
    assert gauge_values(CONFIG, {"epoch": 0, "test_pgd_accuracy": 0.5})["robustsweep_robust_accuracy"] == 0.5


def test_an_attack_sets_its_accuracy_when_it_has_ended():
    pgd, clean = attack("pgd-5"), attack("clean")
    assert gauge_values(pgd, {"images": 10, "free": 2}) == {}
    assert gauge_values(pgd, {"state": "done", "accuracy": 0.125}) == {"robustsweep_robust_accuracy": 0.125}
    assert gauge_values(clean, {"state": "done", "accuracy": 0.875}) == {"robustsweep_clean_accuracy": 0.875}


def test_trials_are_counted_by_state(queue):
    first, second = queue.next(), queue.next()
    queue.begin(first)
    assert trial_counts(queue) == {"waiting": 3, "running": 1, "done": 0, "failed": 0}
    queue.finished(first, {"state": "collapsed"})
    queue.gave_up(second, "a fault", [])
    assert trial_counts(queue) == {"waiting": 2, "running": 0, "done": 1, "failed": 1}


def test_gauges_without_anybody_who_collects_them_break_nothing(queue):
    report(Gauges(queue), CONFIG, {"epoch": 0, "test_pgd_accuracy": 0.5})
    report(Gauges(queue), attack("pgd-5"), {"state": "done", "accuracy": 0.5})


def test_the_dashboard_file_shows_every_gauge_and_no_other():
    content = DASHBOARD.read_text(encoding="utf-8")
    queries = [target["expr"] for panel in json.loads(content)["panels"] for target in panel["targets"]]
    named = {name for query in queries for name in re.findall(r"\bray_(\w+)", query)}
    assert named == {*OF_A_TRIAL, TRIALS} == set(re.findall(r"\bray_(\w+)", content))
    labels = {label for query in queries for label in re.findall(r"(\w+)=~?\"", query)}
    assert labels <= set(TAGS)


@pytest.mark.timeout(300, func_only=True)
def test_the_dashboard_of_a_local_run_is_on_loopback_and_gets_the_gauges(queue, monkeypatch):
    for package in DASHBOARD_PACKAGES:
        pytest.importorskip(package, reason="needs ray[default] (the cluster extra)")
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "1000")
    with connected(None, dashboard=True) as said:
        import ray

        url = urlsplit(next(word for word in said.split() if word.startswith("http://")))
        token = said.rpartition(" ")[2].rstrip(")")
        assert url.hostname == "127.0.0.1"
        with pytest.raises(OSError), socket.create_connection((own_address(), url.port), timeout=5):
            pass
        version = urllib.request.Request(f"{url.geturl()}/api/version", headers={"Authorization": f"Bearer {token}"})
        assert json.load(urllib.request.urlopen(version, timeout=30))["ray_version"] == ray.__version__
        gauges = Gauges(queue)
        report(gauges, CONFIG, {"epoch": 2, "test_pgd_accuracy": 0.5})
        line = exported(ray.nodes()[0]["MetricsExportPort"], "ray_robustsweep_epoch{", " 3.0")
    assert 'stage="train"' in line and 'title="?t seed 0"' in line


def own_address():
    """Return this machine's address on its network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("needs a machine with a network")
        return probe.getsockname()[0]


def exported(port, start, end):
    """Return the line of a node's metrics that begins and ends like this, once there is one."""
    deadline = time.monotonic() + patience(120)
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        for line in lines:
            if line.startswith(start) and line.endswith(end):
                return line
        time.sleep(0.5)
    pytest.fail(f"no {start} among {len(lines)} lines")

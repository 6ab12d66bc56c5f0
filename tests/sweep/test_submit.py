"""Studies on other people's machines: files that their schedulers accept, and a real submission with a token."""

import functools
import json
import operator
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import pytest
import yaml
from tiny_study import TINY

from sweep import cli
from sweep.studies import shipped
from sweep.submission import jobs
from tests.patience import patience

SCHEMA = json.loads((Path(__file__).parent / "rayjob_schema.json").read_text())


@pytest.fixture
def submit(capsys):
    """Its exit code and what it says."""

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            cli.main(["submit", *words])
        captured = capsys.readouterr()
        return caught.value.code, captured.out + captured.err

    return call


@pytest.fixture
def write(submit):
    def call(way, path, *more):
        code, text = submit(f"--{way}", str(path), "--store", "/shared/store", *more)
        assert code == 0 and text == f"written: {path}\n"
        return path.read_text()

    return call


@pytest.mark.parametrize("study", shipped())
def test_every_shipped_study_gives_a_manifest_that_kuberay_accepts(write, study, tmp_path):
    text = write("kuberay", tmp_path / "job.yaml", "--study", study, "--claim", "data", "--nodes", "4")
    manifest = yaml.safe_load(text)
    jsonschema.validate(manifest, SCHEMA)
    cluster = manifest["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert f"--study {study} " in manifest["spec"]["entrypoint"]
    gpus = cluster["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert ("nvidia.com/gpu" in gpus) == (study != "digits")


def places(value, path=()):
    """The way to every mapping whose keys Kubernetes knows; parameters of `ray start` and resources are free names."""
    if isinstance(value, dict) and not (path and path[-1] in ("rayStartParams", "limits", "requests")):
        yield path
        for key, below in value.items():
            yield from places(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from places(below, (*path, index))


def test_the_schema_catches_every_misspelt_key(write, tmp_path):
    text = write("kuberay", tmp_path / "job.yaml", "--study", "cifar10_rn18", "--claim", "data")
    found = list(places(yaml.safe_load(text)))
    assert len(found) >= 17
    for path in found:
        for key in functools.reduce(operator.getitem, path, yaml.safe_load(text)):
            # Written out: in the YAML, mounts and volumes of head and workers are one anchored value.
            manifest = json.loads(json.dumps(yaml.safe_load(text)))
            place = functools.reduce(operator.getitem, path, manifest)
            place[f"{key}s"] = place.pop(key)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(manifest, SCHEMA)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "backoffLimit"), "3"),
        (("spec", "submissionMode"), "K8sJob"),
        (("spec", "shutdownAfterJobFinishes"), "true"),
        (("spec", "rayClusterSpec", "rayVersion"), 2.5),
        (("spec", "rayClusterSpec", "authOptions", "mode"), "tokens"),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"), "2"),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "rayStartParams"), None),
    ],
)
def test_the_schema_catches_values_of_the_wrong_kind(write, tmp_path, path, value):
    manifest = yaml.safe_load(write("kuberay", tmp_path / "job.yaml"))
    functools.reduce(operator.getitem, path[:-1], manifest)[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, SCHEMA)


def test_an_amount_of_memory_that_kubernetes_does_not_know_is_refused(write, submit, tmp_path):
    for amount in ("64Gi", "64G", "1.5Ti", "65536Mi"):
        manifest = yaml.safe_load(write("kuberay", tmp_path / "job.yaml", "--memory", amount))
        jsonschema.validate(manifest, SCHEMA)
    for amount in ("64GB", "64 Gi", "much", "64gi"):
        code, text = submit("--kuberay", "job.yaml", "--store", "/s", "--memory", amount)
        assert code == 2 and "--memory" in text


def test_values_with_special_characters_survive_yaml_and_shell(write, tmp_path):
    hostile = """a "b" 'c': $(touch /tmp/never) # no comment"""
    more = ("--set", f"title={json.dumps(hostile)}", "--env", f"WORDS={hostile}")
    manifest = yaml.safe_load(write("kuberay", tmp_path / "job.yaml", *more))
    jsonschema.validate(manifest, SCHEMA)
    assert yaml.safe_load(manifest["spec"]["runtimeEnvYAML"])["env_vars"]["WORDS"] == hostile
    text = write("slurm", tmp_path / "job.sbatch", *more)
    line = next(line for line in text.splitlines() if line.startswith("export WORDS="))
    assert shlex.split(line)[1] == f"WORDS={hostile}"
    shell = subprocess.run(["bash", "-n", tmp_path / "job.sbatch"], capture_output=True, text=True, check=False)
    assert shell.returncode == 0, shell.stderr


def test_the_sbatch_file_requeues_and_keeps_to_itself(write, tmp_path):
    more = ("--study", "cifar10_rn18", "--nodes", "2", "--gpus-per-node", "4", "--time", "12:00:00", "--venv", ".venv")
    text = write("slurm", tmp_path / "job.sbatch", *more)
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.MULTILINE))
    assert directives["nodes"] == "2" and directives["gpus-per-node"] == "4" and directives["time"] == "12:00:00"
    assert directives["signal"] == "B:USR1@120" and "requeue" in directives and "exclusive" in directives
    assert "ray symmetric-run" in text and "RAY_AUTH_MODE=token" in text and "umask 077" in text
    assert "--dashboard-host=127.0.0.1" in text and "SLURM_JOB_ID % 500" in text and "RAY_USAGE_STATS_ENABLED=0" in text
    assert subprocess.run(["bash", "-n", tmp_path / "job.sbatch"], check=False).returncode == 0


def test_the_sbatch_file_asks_for_all_that_it_pays_for(write, tmp_path):
    text = write("slurm", tmp_path / "job.sbatch", "--study", "cifar10_rn18")
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.MULTILINE))
    assert directives["mem"] == "0" and "cpus-per-task" not in directives and directives["gpus-per-node"] == "1"
    assert 'cpus="$SLURM_CPUS_ON_NODE"' in text and 'gpus="${SLURM_GPUS_ON_NODE:-1}"' in text
    assert 'srun --ntasks-per-node=1 --cpus-per-task="$cpus"' in text and '--num-gpus="$gpus"' in text
    assert "WAIT_TIMEOUT:-300}" in text and "PreemptMode=CANCEL" in text
    asked = write(
        "slurm", tmp_path / "job.sbatch", "--cpus-per-node", "16", "--memory", "64G", "--wait-for-nodes", "900"
    )
    directives = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", asked, re.MULTILINE))
    assert directives["mem"] == "64G" and directives["cpus-per-task"] == "16" and "gpus" not in directives
    assert "\ncpus=16\n" in asked and "WAIT_TIMEOUT:-900}" in asked and "--wait-for-nodes 900" in asked


STAND_INS = {  # of Slurm's commands: what they were asked goes to a file
    "scontrol": 'case "$1" in show) echo n1;; write) cp "$0" "$4";; *) echo "$@" >> said;; esac',
    "sbatch": 'echo "sbatch $*" >> said; echo 43',
    "scancel": 'echo "scancel $*" >> said',
    "srun": "trap 'kill $!; exit 130' TERM; sleep {seconds} & echo srun >> said; wait $!; exit {code}",
}


@pytest.mark.parametrize(
    ("code", "ran", "asked", "cancelled"),
    [(0, 999, False, True), (2, 999, False, True), (1, 0, False, True), (1, 999, False, False), (0, 999, True, False)],
    ids=["done", "a mistake", "fails at once", "fails later", "time limit"],
)
def test_a_job_submits_its_successor_and_takes_it_back_when_nobody_is_to_go_on(
    write, tmp_path, code, ran, asked, cancelled
):
    write("slurm", tmp_path / "job.sbatch", "--resubmit", "--folder", str(tmp_path))
    for name, body in STAND_INS.items():
        text = body.replace("{seconds}", "30" if asked else "0").replace("{code}", str(code))
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "42", "SECONDS": "0"}
    environment |= {"SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_NUM_NODES": "1"}
    script = (tmp_path / "job.sbatch").read_text().replace("set -euo pipefail", f"set -euo pipefail\nSECONDS={ran}")
    job = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    if asked:
        assert "job 43 goes on where this one ends" in job.stdout.readline()
        end = time.monotonic() + patience(20)
        while "srun" not in (tmp_path / "said").read_text() and time.monotonic() < end:
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
    job.wait(patience(20))
    job.stdout.close()
    said = (tmp_path / "said").read_text()
    assert job.returncode == (130 if asked else code)
    assert "sbatch --parsable --dependency=afternotok:42 --kill-on-invalid-dep=yes" in said
    assert ("scancel 43" in said) == cancelled


def test_a_kuberay_cluster_scales_as_asked_and_goes_where_it_is_allowed(write, tmp_path):
    more = ("--study", "cifar10_rn18", "--nodes", "8", "--gpus-per-node", "4")
    fixed = yaml.safe_load(write("kuberay", tmp_path / "job.yaml", *more))["spec"]["rayClusterSpec"]
    assert "enableInTreeAutoscaling" not in fixed and fixed["workerGroupSpecs"][0]["minReplicas"] == 8
    more += ("--min-nodes", "0", "--node-selector", "cloud.google.com/gke-accelerator=nvidia-a100-80gb")
    more += ("--toleration", "nvidia.com/gpu=present:NoSchedule", "--toleration", "spot")
    manifest = yaml.safe_load(write("kuberay", tmp_path / "job.yaml", *more))
    jsonschema.validate(manifest, SCHEMA)
    cluster = manifest["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert cluster["enableInTreeAutoscaling"] is True and cluster["autoscalerOptions"] == {"idleTimeoutSeconds": 120}
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 8)
    pod = group["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    limits = pod["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "4"}


def test_tables_go_beside_the_results_unless_another_folder_is_named(write, tmp_path):
    assert "--out /shared/store/reports" in write("slurm", tmp_path / "a.sbatch")
    assert "--out /tables" in write("slurm", tmp_path / "b.sbatch", "--out", "/tables")
    entrypoint = yaml.safe_load(write("kuberay", tmp_path / "c.yaml"))["spec"]["entrypoint"]
    assert "--out /shared/store/reports" in entrypoint


def test_options_of_sbatch_modules_and_an_array_are_in_the_file(write, tmp_path):
    more = (
        "--sbatch",
        "--account=x --qos y '--comment=two words'",
        "--module",
        "cuda/12.4",
        "--module",
        "gcc",
        "--array",
        "3",
    )
    text = write("slurm", tmp_path / "job.sbatch", *more)
    for line in (
        "#SBATCH --account=x",
        "#SBATCH --qos y",
        "#SBATCH --array=0-2",
        "module load cuda/12.4",
        "module load gcc",
    ):
        assert line in text.splitlines()
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert text.index(directives[-1]) < text.index("set -euo pipefail") < text.index("module load")
    assert subprocess.run(["bash", "-n", tmp_path / "job.sbatch"], check=False).returncode == 0
    plain = write("slurm", tmp_path / "plain.sbatch")
    assert "--array" not in plain and "module load" not in plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--store", "/s"], "say where to"),
        (["--kuberay", "f", "--store", "/s", "--nodes", "2", "--min-nodes", "3"], "from 0 to --nodes 2"),
        (["--kuberay", "f", "--store", "/s", "--toleration", "a b"], "--toleration a b"),
        (["--kuberay", "f", "--store", "/s", "--node-selector", "gpu"], "KEY=VALUE"),
        (["--slurm", "f", "--kuberay", "g", "--store", "/s"], "say where to"),
        (["--slurm", "f"], "--store is needed"),
        (["--slurm", "f", "--store", "here"], "absolute path"),
        (["--slurm", "f", "--store", "/s", "--study", "digitz"], "digits"),
        (["--slurm", "f", "--store", "/s", "--env", "X"], "NAME=VALUE"),
        (["--slurm", "f", "--store", "/s", "--env", "A=1", "--env", "A=2"], "--env A"),
        (["--slurm", "f", "--store", "/s", "--budget", "5x"], "--budget 5x"),
        (["--slurm", "f", "--store", "/s", "--wait-for-nodes", "inf"], "--wait-for-nodes inf"),
        (["--slurm", "f", "--store", "/s", "--nodes", "0"], "at least 1"),
        (["--slurm", "f", "--store", "/s", "--out", "here"], "absolute path"),
        (["--slurm", "f", "--store", "/s", "--array", "2", "--nodes", "3"], "one node"),
        (["--slurm", "f", "--store", "/s", "--sbatch", "account=x"], "options of sbatch"),
        (["--slurm", "f", "--store", "/s", "--module", "a; rm"], "name of a module"),
        (["--address", "http://127.0.0.1:1", "--store", "/s", "--token", "/nowhere"], "no token at /nowhere"),
    ],
)
def test_mistakes_are_messages(submit, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    code, text = submit(*arguments)
    assert code == 2 and text.startswith("error: ") and words in text


def test_a_token_file_that_is_named_goes_before_the_environments_token(tmp_path, monkeypatch):
    named, usual = tmp_path / "named", tmp_path / "usual"
    for file in (named, usual):
        file.touch(mode=0o600)
    for name, value in (("RAY_AUTH_MODE", ""), ("RAY_AUTH_TOKEN", "other"), ("RAY_AUTH_TOKEN_PATH", str(usual))):
        monkeypatch.setenv(name, value)
    jobs.use_token(None)
    assert (os.environ["RAY_AUTH_TOKEN"], os.environ["RAY_AUTH_TOKEN_PATH"]) == ("other", str(usual))
    jobs.use_token(str(named))
    assert "RAY_AUTH_TOKEN" not in os.environ and os.environ["RAY_AUTH_TOKEN_PATH"] == str(named)


def test_a_token_that_others_can_read_is_refused(submit, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    code, text = submit("--address", "http://127.0.0.1:1", "--store", "/s", "--token", str(token))
    assert code == 2 and "chmod 600" in text


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address):
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=patience(5)).close()
    except urllib.error.HTTPError:
        return True  # it wants a token
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head with a token, as `ray start` makes it: its dashboard's address and the environment to reach it."""
    folder = tmp_path_factory.mktemp("cluster")
    token = folder / "token"
    token.touch(0o600)
    token.write_text("f0e1d2c3b4a5968778695a4b3c2d1e0f")
    environment = {
        # A Ray of this process, of a test before, leaves its token there, which would win over the file.
        **{name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    dashboard = free_port()
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--num-cpus=2"]
    command += [f"--port={free_port()}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    # The agent that takes jobs has a fixed port by default: a second cluster on a machine would never take one.
    command += [f"--dashboard-agent-listen-port={free_port()}", "--object-store-memory=200000000"]
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    end = time.monotonic() + patience(90)
    while "Ray runtime started" not in (folder / "head.log").read_text():
        assert time.monotonic() < end and head.poll() is None, (folder / "head.log").read_text()
        time.sleep(0.2)
    address = f"http://127.0.0.1:{dashboard}"
    while not answers(address):  # on a busy machine well after Ray says that it has started
        assert time.monotonic() < end and head.poll() is None, (folder / "head.log").read_text()
        time.sleep(0.2)
    yield address, environment, folder
    os.killpg(head.pid, signal.SIGKILL)
    head.wait(patience(20))


def submitted(cluster, *more, **changes):
    address, environment, folder = cluster
    command = [sys.executable, "-m", "sweep.submit", "--address", address, "--python", sys.executable, *more]
    return subprocess.run(
        command,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2]), **changes},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience(240),
        check=False,
    )


@pytest.mark.timeout(300)
def test_a_study_submitted_with_the_token_runs_to_its_records_and_gives_its_exit_code(cluster):
    folder = cluster[2]
    (folder / "broken.py").write_text(
        "from dataclasses import dataclass\nfrom trainers.method import Method\n\n\n"
        "@dataclass(frozen=True)\nclass Broken(Method):\n"
        "    def loss(self, model, images, labels, attack):\n        raise RuntimeError('broken on purpose')\n"
    )
    content = {key: value for key, value in TINY.items() if key != "search"}
    small = {"methods": {"st": {}, "broken": {}}, "seeds": [0], "resources": {"retries": 0}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**content, **small}))
    (folder / "data").mkdir()
    more = ("--store", str(folder / "store"), "--data-dir", str(folder / "data"), "--plugin", "broken.py")
    done = submitted(cluster, "--study", "tiny.yaml", *more)
    assert done.returncode == 1, done.stdout + done.stderr  # one method fails, and the code says so
    assert "broken on purpose" in done.stdout and "1 training," in done.stdout
    states = sorted(json.loads(path.read_text())["status"] for path in folder.glob("store/trials/*/record.json"))
    assert states == ["done", "failed"]
    told = next(line for line in done.stdout.splitlines() if line.startswith("to go on: "))  # as it was typed here
    assert told.startswith(f"to go on: python -m sweep.submit --address {cluster[0]} ") and "--plugin broken.py" in told
    assert f"tables: {folder}/store/reports" in done.stdout and (folder / "store/reports/tables.md").is_file()


@pytest.mark.timeout(120)
def test_a_wrong_or_missing_token_is_refused(cluster, tmp_path):
    wrong = tmp_path / "token"
    wrong.touch(0o600)
    wrong.write_text("0" * 32)
    for more in (("--token", str(wrong)), ("--no-token",)):
        refused = submitted(cluster, "--store", str(tmp_path / "store"), *more)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert "Traceback" not in refused.stderr and "token" in refused.stderr
    assert not (tmp_path / "store").exists()

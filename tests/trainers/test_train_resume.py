"""A training that was cut short and continued equals the uninterrupted one, bit for bit."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trials import every_kind_of_trial, small_trial

from tests.patience import patience
from trainers.config import Schedule, Selection
from trainers.data import load
from trainers.loop import train as training_module
from trainers.loop.checkpoint import RESUME_HEADER, UnusableState, load_resume, save_resume
from trainers.loop.train import Training, train
from trainers.wrappers.seat import Seat

FLIPS = int(os.environ.get("ROBUSTSWEEP_FLIPS", "40"))


class Cut(Exception):
    pass


def without_seconds(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in curve]


def assert_same_end(left: Path, right: Path, first: dict[str, Any], second: dict[str, Any]) -> None:
    assert without_seconds(first["curve"]) == without_seconds(second["curve"])
    assert first["checkpoints"] == second["checkpoints"] and first["steps"] == second["steps"]
    for name in first["checkpoints"]:
        assert (left / f"{name}.safetensors").read_bytes() == (right / f"{name}.safetensors").read_bytes()
    state, other = load_resume(left / "resume.pt"), load_resume(right / "resume.pt")
    assert state is not None and other is not None
    assert_equal_states(
        {k: v for k, v in state.items() if k not in ("seconds", "curve")},
        {k: v for k, v in other.items() if k not in ("seconds", "curve")},
    )


def assert_equal_states(left: Any, right: Any) -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal_states(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for mine, its in zip(left, right, strict=True):
            assert_equal_states(mine, its)
    else:
        assert left == right


@pytest.mark.parametrize("kind", ["at", "mma", "sovr+seat", "trades+awp", "at+ddpm"])
def test_a_training_cut_between_and_within_epochs_ends_as_if_never_cut(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = every_kind_of_trial(tmp_path)[kind]
    whole = train(config, folder=tmp_path / "whole", data_dir=tmp_path)

    def cut_after(row: dict[str, Any]) -> None:
        if row["epoch"] == 0:
            raise Cut

    with pytest.raises(Cut):
        train(config, folder=tmp_path / "cut", data_dir=tmp_path, on_epoch=cut_after)

    step, calls = training_module.training_step, 0

    def cut_within(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Cut
        return step(*arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(training_module, "training_step", cut_within)
        train(config, folder=tmp_path / "cut", data_dir=tmp_path)
    torch.manual_seed(12345)  # a new process has another global state
    rest = train(config, folder=tmp_path / "cut", data_dir=tmp_path)
    assert_same_end(tmp_path / "whole", tmp_path / "cut", whole, rest)


def test_a_killed_process_is_continued_exactly(tmp_path: Path) -> None:
    config = small_trial(recipe={"epochs": 30})
    whole = train(config, folder=tmp_path / "whole")
    code = (
        "import sys, torch; torch.set_num_threads(int(sys.argv[3]))\n"
        "from trainers.config import TrialConfig; from trainers.loop.train import train\n"
        "train(TrialConfig.model_validate_json(sys.argv[1]), folder=sys.argv[2])"
    )
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", code, config.model_dump_json(), str(folder), str(torch.get_num_threads())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        deadline = time.monotonic() + patience(60)
        while not (folder / "resume.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    state = load_resume(folder / "resume.pt")
    assert state is not None and 0 < state["epoch"] < 30
    rest = train(config, folder=folder)
    assert_same_end(tmp_path / "whole", folder, whole, rest)


def test_epochs_after_the_last_save_are_trained_again_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between two saves: the state is older than the weights beside it."""
    config = small_trial(recipe={"epochs": 6})
    whole = train(config, folder=tmp_path / "whole")
    monkeypatch.setattr(training_module, "SAVE_SECONDS", 3600.0)
    folder, cut = tmp_path / "cut", tmp_path / "left"

    def kill_in_fourth(row: dict[str, Any]) -> None:
        if row["epoch"] == 3:
            shutil.copytree(folder, cut)  # what a kill at this moment would leave

    train(config, folder=folder, on_epoch=kill_in_fourth)
    state = load_resume(cut / "resume.pt")
    assert state is not None and state["epoch"] == 1
    resumed: list[int] = []
    rest = train(config, folder=cut, on_epoch=lambda row: resumed.append(row["epoch"]))
    assert resumed == [1, 2, 3, 4, 5]
    assert_same_end(tmp_path / "whole", cut, whole, rest)
    assert {path.name for path in cut.iterdir()} == {path.name for path in (tmp_path / "whole").iterdir()}


def test_a_training_that_is_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_module, "SAVE_SECONDS", 3600.0)

    def stop(row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            raise Cut

    with pytest.raises(Cut):
        train(small_trial(recipe={"epochs": 6}), folder=tmp_path, on_epoch=stop)
    state = load_resume(tmp_path / "resume.pt")
    assert state is not None and state["epoch"] == 3


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    config = small_trial()
    first = train(config, folder=tmp_path)
    again = train(config, folder=tmp_path, on_epoch=lambda row: pytest.fail("trained again"))
    assert first == again


AGAIN = "training restarts from its first epoch"


def fresh_start(capsys: pytest.CaptureFixture[str], folder: Path, reason: str, **options: Any) -> dict[str, Any]:
    """The outcome of a training that must not go on from what the folder holds, and says so in one line."""
    begun: list[int] = []
    capsys.readouterr()
    outcome = train(small_trial(), folder=folder, on_resume=lambda rows: begun.append(len(rows)), **options)
    said = capsys.readouterr().err.splitlines()
    assert begun == [0] and len(said) == 1 and reason in said[0] and said[0].endswith(AGAIN), said
    return outcome


@pytest.mark.parametrize("damage", ["flipped bits", "cut short", "longer", "no checksum"])
def test_a_damaged_state_costs_a_fresh_start_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    whole = train(small_trial(), folder=tmp_path / "whole")
    folder = tmp_path / "damaged"
    train(small_trial(), folder=folder)
    content = bytearray((folder / "resume.pt").read_bytes())
    if damage == "flipped bits":
        content[len(content) // 2] ^= 4
    elif damage == "cut short":
        del content[1000:]
    elif damage == "longer":
        content += b"0"
    else:
        del content[: content.index(b"\n") + 1]
    (folder / "resume.pt").write_bytes(content)
    again = fresh_start(capsys, folder, "resume.pt ")
    assert_same_end(tmp_path / "whole", folder, whole, again)


def test_no_flipped_bit_of_a_state_is_overlooked(tmp_path: Path) -> None:
    train(small_trial(recipe={"epochs": 1}), folder=tmp_path)
    path = tmp_path / "resume.pt"
    content = path.read_bytes()
    assert load_resume(path) is not None
    generator = random.Random(0)
    bits = [*range(0, 8 * 120, 8), *(generator.randrange(8 * len(content)) for _ in range(FLIPS))]
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(UnusableState):
            load_resume(path)


@pytest.mark.parametrize(
    "content", [b"hello\n", b"plain text", b"", b"\x80", b"\x80\x02M)", b"\x80\x02UR\x86\x88\x8aahi"]
)
@pytest.mark.parametrize("signed", [False, True])
def test_garbage_in_place_of_a_state_is_reported_without_advice_to_trust_it(
    tmp_path: Path, content: bytes, signed: bool
) -> None:
    if signed:
        content = RESUME_HEADER + hashlib.sha256(content).hexdigest().encode() + b"\n" + content
    (tmp_path / "resume.pt").write_bytes(content)
    with pytest.raises(UnusableState) as caught:
        load_resume(tmp_path / "resume.pt")
    assert "weights_only" not in str(caught.value)


def test_a_folder_in_place_of_a_state_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "resume.pt").mkdir()
    with pytest.raises(UnusableState, match="resume.pt cannot be read: Is a directory"):
        load_resume(tmp_path / "resume.pt")


@pytest.mark.parametrize("state", [[1, 2], {"a": 1}, {}])
def test_a_state_that_is_no_state_costs_a_fresh_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: Any
) -> None:
    save_resume(tmp_path / "resume.pt", state)
    assert fresh_start(capsys, tmp_path, "resume.pt ")["status"] == "done"


def test_a_state_without_one_of_its_keys_is_not_used(tmp_path: Path) -> None:
    config = small_trial("sovr+seat", seat=Seat(), recipe={"epochs": 1})
    train(config, folder=tmp_path)
    state = load_resume(tmp_path / "resume.pt")
    assert state is not None and len(state) == 13
    for key in state.keys() - {"data"}:  # earlier versions did not say
        save_resume(tmp_path / "resume.pt", {name: value for name, value in state.items() if name != key})
        with pytest.raises(UnusableState, match=rf"another version \(KeyError: '{key}'\)"):
            Training(config, tmp_path, None, torch.device("cpu"), None).resume()


def test_half_a_state_leaves_no_trace_in_the_fresh_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = train(small_trial(), folder=tmp_path / "whole")
    folder = tmp_path / "half"
    train(small_trial(), folder=folder)
    state = load_resume(folder / "resume.pt")
    assert state is not None
    state["optimizer"]["param_groups"] = []  # the model is loaded by then
    save_resume(folder / "resume.pt", state)
    assert_same_end(tmp_path / "whole", folder, whole, fresh_start(capsys, folder, "another version"))


@pytest.mark.parametrize("damage", ["lost", "flipped bit"])
def test_lost_or_damaged_weights_cost_a_fresh_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    train(small_trial(), folder=tmp_path)
    path = tmp_path / "best_test.safetensors"
    before = path.read_bytes()
    if damage == "lost":
        path.unlink()
    else:
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    fresh_start(capsys, tmp_path, "best_test.safetensors is missing or damaged")
    assert path.read_bytes() == before


def test_a_state_that_could_run_code_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    save_resume(tmp_path / "resume.pt", {"config": Bomb()})
    with pytest.raises(UnusableState, match="is not a saved state"):
        load_resume(tmp_path / "resume.pt")
    assert not (tmp_path / "exploded").exists()


def test_the_state_of_another_trial_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small_trial(seed=1), folder=tmp_path)
    whole = train(small_trial(), folder=tmp_path / "whole")
    outcome = fresh_start(capsys, tmp_path, "the state of another trial")
    assert_same_end(tmp_path / "whole", tmp_path, whole, outcome)


def test_the_state_of_a_training_on_other_data_is_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = load("digits")
    train(small_trial(), folder=tmp_path, data=replace_fields(digits, train_images=255 - digits.train_images))
    whole = train(small_trial(), folder=tmp_path / "whole")
    outcome = fresh_start(capsys, tmp_path, "the state of a training on other data")
    assert_same_end(tmp_path / "whole", tmp_path, whole, outcome)


@pytest.mark.parametrize("change", range(1, 13))
def test_a_kill_at_any_change_of_the_folder_leaves_weights_as_their_checksums_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    selection = Selection(validation=16, protocol="paper", steps=1, ties="last")
    config, changes = small_trial(selection=selection, recipe={"epochs": 2, "batch_size": 64}), 0

    def until_the_kill(original: Any) -> Any:
        def act(path: Path, *arguments: Any, **named: Any) -> Any:
            nonlocal changes
            changes += original is replace or path.suffix != ".tmp"
            if changes >= change:
                raise Cut
            return original(path, *arguments, **named)

        return act

    step, replace = training_module.training_step, Path.replace

    def other_step(model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
        """On a GPU the repeated epoch differs."""
        found = step(model, *arguments, **named)
        with torch.no_grad():
            next(model.parameters()).add_(0.01)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", until_the_kill(Path.replace))
        patch.setattr(Path, "unlink", until_the_kill(Path.unlink))
        with pytest.raises(Cut):
            train(config, folder=tmp_path)
    before = load_resume(tmp_path / "resume.pt")
    monkeypatch.setattr(training_module, "training_step", other_step)
    begun: list[int] = []
    outcome = train(config, folder=tmp_path, on_resume=lambda rows: begun.append(len(rows)))
    assert begun == [before["epoch"] if before else 0]
    assert outcome["checkpoints"].keys() == {"best_test", "best_validation", "last"}
    names = {f"{name}.safetensors": facts["sha256"] for name, facts in outcome["checkpoints"].items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("*.safetensors")}
    assert found == names


def test_weights_after_an_asked_epoch_are_kept_as_they_were(tmp_path: Path) -> None:
    """Epochs are counted from 1: epoch-2 of a training equals the last weights of one that ends there."""
    recipe = {"schedule": Schedule(kind="piecewise", at=(), factors=())}
    longer = train(small_trial(recipe=recipe, selection=Selection(steps=1, keep=(2, 3))), folder=tmp_path / "longer")
    short = train(small_trial(recipe={**recipe, "epochs": 2}, selection=Selection(steps=1)), folder=tmp_path / "short")
    kept = longer["checkpoints"]
    assert kept["epoch-2"]["epoch"] == 1 and kept["epoch-2"]["sha256"] == short["checkpoints"]["last"]["sha256"]
    assert kept["epoch-3"]["sha256"] == kept["last"]["sha256"] != kept["epoch-2"]["sha256"]
    content = (tmp_path / "longer" / "epoch-2.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == kept["epoch-2"]["sha256"]


def test_no_planted_link_is_followed_when_a_state_is_saved(tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / f".resume.pt.{os.getpid()}.tmp").symlink_to("secret")
    save_resume(tmp_path / "resume.pt", {"epoch": 1})
    assert (tmp_path / "secret").read_text() == "mine"
    assert load_resume(tmp_path / "resume.pt") == {"epoch": 1} and not (tmp_path / "resume.pt").is_symlink()

"""A training that was cut short and continued equals the uninterrupted one, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trials import every_kind_of_trial, small_trial

from tests.patience import patience
from trainers import train as training_module
from trainers.checkpoint import load_resume
from trainers.train import train


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
        "from trainers.config import TrialConfig; from trainers.train import train\n"
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


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    config = small_trial()
    first = train(config, folder=tmp_path)
    again = train(config, folder=tmp_path, on_epoch=lambda row: pytest.fail("trained again"))
    assert first == again


def test_a_damaged_state_costs_a_fresh_start_and_is_reported(tmp_path: Path) -> None:
    config = small_trial()
    whole = train(config, folder=tmp_path / "whole")
    train(config, folder=tmp_path / "damaged")
    state = tmp_path / "damaged" / "resume.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="resume.pt cannot be read"):
        again = train(config, folder=tmp_path / "damaged")
    assert_same_end(tmp_path / "whole", tmp_path / "damaged", whole, again)


@pytest.mark.parametrize(
    "content", [b"hello\n", b"plain text", b"", b"\x80", b"\x80\x02M)", b"\x80\x02UR\x86\x88\x8aahi"]
)
def test_garbage_in_place_of_a_state_is_reported_without_advice_to_trust_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "resume.pt").write_bytes(content)
    with pytest.warns(UserWarning, match="resume.pt cannot be read") as caught:
        assert load_resume(tmp_path / "resume.pt") is None
    assert "weights_only" not in str(caught[0].message)


def test_a_state_that_is_no_state_is_reported(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "resume.pt")
    with pytest.warns(UserWarning, match="resume.pt cannot be read"):
        assert load_resume(tmp_path / "resume.pt") is None


def test_lost_weights_cost_a_fresh_start(tmp_path: Path) -> None:
    config = small_trial()
    train(config, folder=tmp_path)
    before = (tmp_path / "best_test.safetensors").read_bytes()
    (tmp_path / "best_test.safetensors").unlink()
    with pytest.warns(UserWarning, match="has lost best_test"):
        train(config, folder=tmp_path)
    assert (tmp_path / "best_test.safetensors").read_bytes() == before


def test_the_state_of_another_version_costs_a_fresh_start(tmp_path: Path) -> None:
    train(small_trial(), folder=tmp_path)
    state = load_resume(tmp_path / "resume.pt")
    assert state is not None
    torch.save({key: value for key, value in state.items() if key != "wrappers"}, tmp_path / "resume.pt")
    with pytest.warns(UserWarning, match="written by another version"):
        assert train(small_trial(), folder=tmp_path)["status"] == "done"


def test_a_state_that_could_run_code_is_never_loaded(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    torch.save({"config": Bomb()}, tmp_path / "resume.pt")
    with pytest.warns(UserWarning, match="cannot be read"):
        assert load_resume(tmp_path / "resume.pt") is None
    assert not (tmp_path / "exploded").exists()


def test_the_folder_of_another_trial_is_refused(tmp_path: Path) -> None:
    train(small_trial(recipe={"epochs": 1}), folder=tmp_path)
    with pytest.raises(ValueError, match="another trial"):
        train(small_trial(recipe={"epochs": 1}, seed=1), folder=tmp_path)

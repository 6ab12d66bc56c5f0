"""A process does many pieces: nothing of one is there when the next begins, whatever the first one did."""

import os
import random
import sys
import textwrap

import numpy
import pytest
import torch

from sweep.store import layout
from sweep.store.opening import open_store
from sweep.work.pieces import Setting, Training
from sweep.work.trainable import trainable
from sweep.work.worker import fresh_process, last_lines
from tests.sweep.tiny_study import tiny
from trainers.loop import heartbeat

# It changes all that a process has for all: seeds, threads, dtype, gradients, environment, output.
MESSY = """
    import os, random, sys
    from dataclasses import dataclass
    import numpy, torch
    import torch.nn.functional as F
    from trainers.method import Method

    @dataclass(frozen=True)
    class Messy(Method):
        def loss(self, model, images, labels, attack):
            value = F.cross_entropy(model(images), labels)
            if not value.requires_grad:
                raise RuntimeError("no gradient")
            os.environ["LEFT_BEHIND"] = "1"
            os.environ.pop("WANTED", None)
            random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
            torch.set_num_threads(3)
            print("from the loss")
            if {fails}:
                torch.set_default_dtype(torch.float64)
                torch.set_grad_enabled(False)
                raise RuntimeError("it ends in the middle")
            return value
"""
# Numbers that depend on every seed of a process, for a method that draws by itself.
DRAWS = """
    import random
    from dataclasses import dataclass
    import numpy, torch
    import torch.nn.functional as F
    from trainers.method import Method

    @dataclass(frozen=True)
    class Draws(Method):
        def loss(self, model, images, labels, attack):
            scale = random.random() + numpy.random.rand() + torch.rand(()).item()
            return F.cross_entropy(model(images), labels) * scale
"""


def global_state():
    return {
        "environment": dict(os.environ),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "draws": (torch.rand(2).tolist(), numpy.random.rand(2).tolist(), random.random()),
        "listener": heartbeat._listener,
        "output": (sys.stdout, sys.stderr),
        "folder": os.getcwd(),
    }


def state_inside(cpus=1.0):
    with fresh_process(cpus):
        return global_state()


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A store, and a function that trains one column of a study there."""
    monkeypatch.setenv("WANTED", "here")
    for name, text in (("messy", MESSY.format(fails=False)), ("fails", MESSY.format(fails=True)), ("draws", DRAWS)):
        class_name = "class Messy" if name == "messy" else "class Fails"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).replace("class Messy", class_name))
    plugins = [tmp_path / f"{name}.py" for name in ("messy", "fails", "draws")]
    methods = {name: {} for name in ("messy", "fails", "draws", "trades")}
    study = tiny(tmp_path, plugins=plugins, methods=methods, seeds=[0], search=None)
    from sweep.trials.cells import expand

    cells = {cell.label: cell for cell in expand(study)}

    def train(label, folder="store"):
        store = open_store(tmp_path / folder)
        cell = cells[label]
        config = Training(label, cell.config, cell.trial).tune_config("tiny")
        try:
            trainable(config, Setting(store.uri, str(tmp_path)))
        except RuntimeError as error:
            assert label == "fails", error
        return store.trial_record(cell.trial)

    return train


def numbers(record):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in record.curve]


@pytest.mark.parametrize("label", ["messy", "fails"])
def test_a_process_is_after_a_piece_as_it_was_before(bench, label):
    untouched = state_inside()
    bench(label)
    assert "LEFT_BEHIND" not in os.environ and os.environ["WANTED"] == "here"
    assert state_inside() == untouched


@pytest.mark.parametrize("before", ["messy", "fails", "draws"])
def test_a_training_has_the_same_numbers_in_a_process_that_did_another_before(bench, before):
    for label in ("draws", "trades"):
        expected = bench(label, "untouched")
        bench(before, f"used by {before}")
        after = bench(label, f"used for {label}")
        assert numbers(after) == numbers(expected) and after.checkpoints == expected.checkpoints


def test_a_piece_has_as_many_threads_as_cores():
    before = torch.get_num_threads()
    try:
        assert [state_inside(cpus)["threads"] for cpus in (0.25, 1.0, 2.0, 1.0)] == [1, 1, 2, 1]
    finally:
        torch.set_num_threads(before)


def test_what_a_piece_prints_goes_to_its_own_log_alone(bench, tmp_path, capfd):
    record = bench("messy")
    trial = record.trial
    assert "from the loss" in (tmp_path / "store" / layout.trial_file(trial, layout.LOG)).read_text()
    bench("trades")
    print("from the process")
    said = capfd.readouterr()
    assert "from the loss" not in said.out + said.err and "from the process" in said.out
    logs = [path.read_text() for path in (tmp_path / "store/trials").glob("*/log.txt")]
    assert sum("from the loss" in text for text in logs) == 1


def test_the_end_of_a_log_is_told_and_a_missing_one_is_empty(tmp_path):
    store = open_store(tmp_path)
    assert last_lines(store, "ab" * 32) == []
    store.write(layout.trial_file("ab" * 32, layout.LOG), "".join(f"line {n}\n" for n in range(99)).encode())
    lines = last_lines(store, "ab" * 32)
    assert lines[-1] == "line 98" and "line 0" not in lines

"""A small study of one's own, as text, for tests that spoil it."""

import textwrap
from pathlib import Path

import pytest

from sweep.errors import UserError
from sweep.studies.model import Study

GOOD = """
title: Small
dataset: digits
model: small_cnn
seeds: [0, 1]
train: {epochs: 2, attack: {epsilon: 8/255}}
methods:
  at: {}
  sovr: {hyperparameters: {M: 40, lam: 0.4}, train: {learning_rate: 0.05, attack: {steps: 3}}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def refusal(folder: Path, text: str, **options) -> str:
    with pytest.raises(UserError) as caught:
        Study.load(write(folder, text), **options)
    return str(caught.value)

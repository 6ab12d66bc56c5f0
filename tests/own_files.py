"""A network and data sets as a user writes them, in a folder of the user's: one file each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

NETWORK = '''
"""Two convolutions."""
from torch import nn


def build(classes, shape):
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * ((height + 1) // 2) * ((width + 1) // 2), classes),
    )
'''
DATA = '''
"""Bars at one of three heights, from a file beside this one."""
from pathlib import Path

import numpy as np


def load():
    images = np.load(Path(__file__).parent / "bars.npy")
    labels = np.arange(len(images)) % 3
    return images[:60], labels[:60], images[60:], labels[60:], ["low", "middle", "high"]
'''
SHELF = '''
"""Bars at one of three heights, from a file in the data folder."""
import numpy as np
import torch

from trainers.dataset import DatasetFacts, DataSource


def load(folder, download):
    images = torch.from_numpy(np.load(folder / "bars.npy")).unsqueeze(1)
    labels = torch.arange(len(images)) % 3
    return images[:60], labels[:60], images[60:], labels[60:]


shelf = DataSource(DatasetFacts(3, (1, 6, 6), 60, 30), display="Shelf", load=load, files="bars.npy")
'''
CLASSES = ("cat", "dog", "owl")


def bars(count: int = 90) -> np.ndarray:
    """Noise with a bright bar at the height of the label, which is the position modulo three."""
    images = np.random.default_rng(0).integers(0, 100, (count, 6, 6), np.uint8)
    for position in range(count):
        images[position, 2 * (position % 3) : 2 * (position % 3) + 2] += 150
    return images


def write_folder(root: Path, count: int = 90, test: str = "test") -> Path:
    """The bars as PNGs, one subfolder per class."""
    for position, image in enumerate(bars(count)):
        part = root / ("train" if position < count * 2 // 3 else test) / CLASSES[position % 3]
        part.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(part / f"{position:03}.png")
    return root


def write_user_files(home: Path) -> Path:
    """my_net.py, my_data.py with its bars.npy, the folder pets and bars.npz, all in one folder of a user."""
    home.mkdir(parents=True, exist_ok=True)
    images, labels = bars(), np.arange(90) % 3
    (home / "my_net.py").write_text(NETWORK)
    (home / "my_data.py").write_text(DATA)
    np.save(home / "bars.npy", images)
    write_folder(home / "pets")
    np.savez(home / "bars.npz", x_train=images[:60], y_train=labels[:60], x_test=images[60:], y_test=labels[60:, None])
    return home


def write_shelf(home: Path) -> Path:
    """The plug-in shelf.py, and two data folders of other images under its name: `data` and `other`."""
    for name, images in (("data", bars()), ("other", 255 - bars())):
        (home / name).mkdir(parents=True)
        np.save(home / name / "bars.npy", images)
    (home / "shelf.py").write_text(SHELF)
    return home / "shelf.py"


STUDY: dict[str, Any] = {
    "title": "Mine",
    "dataset": "folder:pets",
    "model": "my_net.py:build",
    "seeds": [0],
    "train": {
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 0.05,
        "schedule": {"kind": "constant"},
        "attack": {"epsilon": "0.1", "step_size": "0.05", "steps": 1},
    },
    "selection": {"protocol": "heldout", "validation": 12, "epsilon": "0.1", "step_size": "0.05", "steps": 1},
    "methods": {"at": {}},
    "evaluation": {"suite": "logit_scaling", "epsilon": "0.1"},
}


def write_study(home: Path, **changes: Any) -> Path:
    path = home / "mine.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}))
    return path

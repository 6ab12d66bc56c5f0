"""A study whose trials take as long as asked, and the command that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import yaml

from tests.sweep.tiny_study import TINY

ROOT = Path(__file__).parents[2]
METHOD = """
    import time
    from dataclasses import dataclass
    import torch.nn.functional as F
    from trainers.method import Method

    @dataclass(frozen=True)
    class Slow(Method):
        def loss(self, model, images, labels, attack):
            time.sleep(0.25)
            return F.cross_entropy(model(images), labels)
"""
CLEAN = {"attacks": ["clean"], "suite": None, "epsilon": "0.1", "images": 20}


def start(folder: Path, *more: str, **changes: Any) -> subprocess.Popen[str]:
    (folder / "slow.py").write_text(textwrap.dedent(METHOD))
    content = {key: value for key, value in TINY.items() if key != "search"}
    content |= {"methods": {"slow": {}}, "seeds": [0], "evaluation": CLEAN, **changes}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(content))
    words = ["--study", str(folder / "tiny.yaml"), "--plugin", str(folder / "slow.py"), "--logger", "none", "--yes"]
    return subprocess.Popen(
        [sys.executable, "-m", "sweep.run", *words, "--store", str(folder / "store"), *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

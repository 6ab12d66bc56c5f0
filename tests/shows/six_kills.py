"""`python -m tests.shows.six_kills`: one trial whose process is killed six times, with `retries: 2`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

from sweep.store.opening import open_store
from tests.patience import patience
from tests.shows import study
from tests.sweep.tiny_study import TINY

KILLS = 6


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="robustsweep-kills-") as name:
        folder, began = Path(name), time.monotonic()
        recipe = {**TINY["train"], "epochs": 12}
        driver = study.start(folder, train=recipe, resources={"retries": 2})
        killed: set[int] = set()
        end = time.monotonic() + patience(400)
        while len(killed) < KILLS and driver.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            for file in folder.glob("store/trials/*/progress.json"):
                with contextlib.suppress(ValueError, FileNotFoundError):
                    note = json.loads(file.read_text())
                    if note["pid"] not in killed:
                        os.kill(note["pid"], signal.SIGKILL)
                        killed.add(note["pid"])
                        print(
                            f"{time.monotonic() - began:6.1f} s  kill {len(killed)} at epoch {note['epoch']}",
                            flush=True,
                        )
        output, _ = driver.communicate(timeout=patience(300))
        print(output)
        states = open_store(folder / "store").trial_states()
        print(f"{len(killed)} kills, exit code {driver.returncode}, {states}")
        assert len(killed) == KILLS and driver.returncode == 0 and set(states.values()) == {"done"}


if __name__ == "__main__":
    main()

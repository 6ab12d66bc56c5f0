"""The shipped studies, and lookup by name or path. Imports stay light because help texts list the studies."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sweep.errors import UserError
from trainers.plugins.spelling import nearest

FOLDER = Path(__file__).parent
ENDINGS = (".yaml", ".yml")


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def titles() -> dict[str, str]:
    """Return the titles of all shipped studies by name, read from the title line without parsing the YAML."""
    found = {}
    for name in shipped():
        match = re.search(r"^title:\s*(.+?)\s*$", (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1].strip("\"'") if match else ""
    return found


def find(name_or_path: str | Path) -> Path:
    """Return the path of a study file.

    Accepts a path, the name of a shipped study, or the stem of a file in the working folder (`my_mnist` finds
    `./my_mnist.yaml`).
    """
    text = str(name_or_path)
    is_word = re.fullmatch(r"[\w-]+", text) is not None
    path = Path(os.path.expanduser(text))  # Path.expanduser raises for an unknown user
    try:
        if path.is_file():
            return path
        if (FOLDER / f"{text}.yaml").is_file():
            return FOLDER / f"{text}.yaml"
        for ending in ENDINGS if is_word else ():
            if Path(f"{text}{ending}").is_file():
                return Path(f"{text}{ending}")
        if path.is_dir():
            raise UserError(f"study {text} is a folder; give a YAML file, or one of: {', '.join(shipped())}")
        if is_word:
            raise UserError(f"no study is named {text!r}{nearest(text, shipped())} known: {', '.join(shipped())}")
    except OSError as fault:
        raise UserError(f"study {text[:100]}: {fault.strerror}") from None
    raise UserError(f"study file {text} does not exist; shipped studies: {', '.join(shipped())}")

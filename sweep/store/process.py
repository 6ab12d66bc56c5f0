"""Process identities that let the same machine check later whether the process is still alive."""

from __future__ import annotations

import hashlib
import os
import socket
from functools import cache
from pathlib import Path


@cache
def host() -> str:
    """Return an identifier of this machine, boot and process namespace, within which process numbers are valid."""
    try:
        place = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8] + os.readlink("/proc/self/ns/pid")
    except OSError:
        place = ""
    return f"{socket.gethostname()} {place}".strip()


def started(pid: int) -> str:
    """Return the start time of a process in kernel ticks, which tells it from others with the same number.

    Return an empty string if the start time cannot be read.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_alive(pid: int, began: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return not began or started(pid) == began


def mark() -> str:
    """Return a mark of this process for use in file names."""
    return f"{_short_host()}-{os.getpid()}-{started(os.getpid())}"


def is_of_a_dead_one(text: str) -> bool:
    """Return whether this is the mark of a process of this machine that has ended."""
    place, _, rest = text.partition("-")
    pid, _, began = rest.partition("-")
    return place == _short_host() and pid.isdecimal() and not is_alive(int(pid), began)


@cache
def _short_host() -> str:
    return hashlib.sha256(host().encode()).hexdigest()[:8]

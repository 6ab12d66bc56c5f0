"""Lease maintenance: list held leases and delete abandoned ones."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sweep.store import layout, leases
from sweep.store.base import Entry, Store
from sweep.store.leases import LEASE_SECONDS, Holder, claim, holder_here, is_over, load


class LeaseFile(NamedTuple):
    """One file of a lease, with its content."""

    entry: Entry
    name: str
    holder: Holder

    @property
    def seems_over(self) -> bool:
        """Return whether the lease looks expired, assuming that the clocks of all machines agree."""
        expires = self.holder.expires if self.is_filled else self.entry.modified + leases.UNFILLED_SECONDS
        return not expires or time.time() > expires or self.holder.is_dead

    @property
    def is_filled(self) -> bool:
        return bool(self.holder.host)


def held(store: Store) -> dict[str, Holder]:
    """Return the apparent holders of leases, by lease name."""
    return {file.name: file.holder for file in _files(store) if not file.seems_over}


def busy(store: Store) -> dict[str, Holder]:
    """Return the leases that cannot be taken now. Dead ones of other machines drop out after their lease time."""
    return {file.name: file.holder for file in _files(store) if not is_over(store, file.entry.path, file.holder)}


def give_back(store: Store, owners: Collection[str]) -> None:
    """Delete the leases of workers that ended without releasing them."""
    if owners:
        _delete(store, [file for file in _files(store) if file.holder.owner in owners])


def abandoned(store: Store, old: float) -> list[Entry]:
    """Return abandoned lease files: released, held by dead processes, or last renewed before `old`."""
    return [file.entry for file in _abandoned(store, old)]


def delete_abandoned(store: Store, paths: Iterable[str], old: float) -> None:
    """Delete the given lease files that are still abandoned."""
    wanted = set(paths)
    _delete(store, [file for file in _abandoned(store, old) if file.entry.path in wanted])


def lease_name(path: str) -> str:
    """Return the name of the lease that a file belongs to, or an empty string for any other path."""
    return path.removeprefix(f"{layout.LEASES}/").rsplit(".", 2)[0] if layout.is_lease(path) else ""


def _delete(store: Store, files: list[LeaseFile]) -> None:
    """Delete lease files whose holders are gone.

    Take each lease first: if its first file were deleted during a takeover, a third process could acquire the lease.
    """
    gone = {file.holder.id for file in files}
    for name in dict.fromkeys(file.name for file in files):
        paths = [file.entry.path for file in files if file.name == name]
        try:
            mine = claim(store, name, holder_here(LEASE_SECONDS), gone)
        except OSError:  # on a full disk no other process can take it either
            mine = paths
        for path in [] if mine is None else dict.fromkeys([*mine, *paths]):
            store.delete(path)


def _abandoned(store: Store, old: float) -> list[LeaseFile]:
    files = _files(store)
    names = {file.name for file in files if not file.seems_over}
    return [
        file
        for file in files
        if file.name not in names
        and (file.holder.is_dead or not file.holder.expires or not file.is_filled or file.entry.modified < old)
    ]


def _files(store: Store) -> list[LeaseFile]:
    entries = [(entry, lease_name(entry.path)) for entry in sorted(store.entries(layout.LEASES))]
    holders = [(entry, name, load(store, entry.path)) for entry, name in entries if name]
    return [LeaseFile(entry, name, holder) for entry, name, holder in holders if holder]

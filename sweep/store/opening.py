"""Which store an address means."""

from __future__ import annotations

from pathlib import Path

from sweep import commands
from sweep.errors import UserError
from sweep.store.base import Store
from sweep.store.folder import FolderStore
from sweep.store.s3 import S3Store


def open_store(uri: str | Path) -> Store:
    """A folder, or s3://bucket/prefix?endpoint_override=…&region=…"""
    text = str(uri)
    if text.startswith("s3://"):
        return S3Store(text)
    if "://" in text and not text.startswith("file://"):
        raise UserError(f"store {text!r}: only folders and s3:// addresses are supported")
    return FolderStore(Path(text.removeprefix("file://")))


def existing_store(uri: str | Path) -> Store:
    """One that must be there: to look into a misspelt place would quietly find nothing."""
    store = open_store(uri)
    exists = store.root.is_dir() if isinstance(store, FolderStore) else any(True for _ in store.entries())
    if not exists:
        how = commands.spelled("sweep.run", *commands.store_words(store.uri))
        what = "the folder does not exist" if isinstance(store, FolderStore) else "nothing is stored under it"
        raise UserError(f"there is no store at {store.uri} ({what}): correct the name, or make one with {how}")
    return store

"""Opening a store by its address."""

from __future__ import annotations

from pathlib import Path

from sweep import commands
from sweep.errors import UserError
from sweep.store.base import Store
from sweep.store.folder import FolderStore
from sweep.store.s3 import S3Store


def open_store(uri: str | Path) -> Store:
    """Open the store at a folder or at s3://bucket/prefix?endpoint_override=…&region=…"""
    text = str(uri)
    if text.startswith("s3://"):
        return S3Store(text)
    if "://" in text and not text.startswith("file://"):
        raise UserError(f"store {text!r}: only folders and s3:// addresses are supported")
    return FolderStore(Path(text.removeprefix("file://")))


def existing_store(uri: str | Path) -> Store:
    """Open an existing store. Raise UserError if it is missing, since a misspelt address would look empty."""
    store = open_store(uri)
    exists = store.root.is_dir() if isinstance(store, FolderStore) else any(True for _ in store.entries())
    if not exists:
        how = commands.spelled("sweep.run", *commands.store_words(store.uri))
        what = "the folder does not exist" if isinstance(store, FolderStore) else "nothing is stored under it"
        raise UserError(f"there is no store at {store.uri} ({what}): correct the name, or make one with {how}")
    return store

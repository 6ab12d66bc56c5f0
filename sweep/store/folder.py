"""A store in a folder that all processes share."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from sweep.errors import UserError
from sweep.store import layout, process
from sweep.store.base import Entry, Store


class FolderStore(Store):
    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.expanduser(root)).absolute()
        self.uri = str(self.root)
        there = next((place for place in (self.root, *self.root.parents) if os.path.exists(place)), None)
        if there is not None and not there.is_dir():
            below = "" if there == self.root else f"{self.root} cannot be made: "
            raise UserError(f"store {below}{there} is a file; --store needs a folder or an s3:// address")

    def read(self, path: str) -> bytes:
        with open(self._place(path), "rb", buffering=0) as file:
            return file.read()

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with self._replacing(path) as temporary:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())

    def create(self, path: str, data: bytes) -> bool:
        target = self._own(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError as fault:
            target.unlink(missing_ok=True)  # this process created it; a partial file would block other writers
            fault.filename = str(target)
            raise
        return True

    def _move(self, path: str, place: str) -> None:
        """Rename a file, which works even if the disk is full or the file unreadable."""
        source, target = self._own(path), self._own(place)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._place(path))

    def entries(self, prefix: str = "") -> Iterator[Entry]:
        for path, item in self._files(prefix):
            try:
                facts = item.stat()
            except FileNotFoundError:
                continue
            yield Entry(path, facts.st_size, facts.st_mtime)

    def paths(self, prefix: str = "") -> list[str]:
        return sorted(path for path, _ in self._files(prefix))

    def _files(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield path and directory entry of every file below a folder. Sizes are not read, which would be slower."""
        start = self._at(prefix) if prefix else self.root
        pending = [(str(start), f"{prefix.rstrip('/')}/" if prefix else "")]
        while pending:
            folder, base = pending.pop()
            try:
                with os.scandir(folder) as found:
                    for item in found:
                        if item.is_dir(follow_symlinks=False):
                            pending.append((item.path, f"{base}{item.name}/"))
                        elif item.is_file(follow_symlinks=False) and not _is_temporary(item.name):
                            yield base + item.name, item
            except (FileNotFoundError, NotADirectoryError):
                continue

    def _trial_files(self) -> Iterator[tuple[str, bytes]]:
        """Open each record directly: listing every trial folder first would take as long as reading its record."""
        try:
            with os.scandir(self._at(layout.TRIALS)) as found:
                names = sorted(item.name for item in found if item.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            path = f"{layout.TRIALS}/{name}/{layout.RECORD}"
            try:
                data = self.read(path)
            except (FileNotFoundError, IsADirectoryError):  # a folder at this path is no record
                continue
            yield path, data

    def temporary_files(self) -> list[Path]:
        """Return temporary files: those being written now and those that killed writers left behind."""
        own = [self.root / name for name in layout.FOLDERS if not self.link_above(f"{name}/")]
        walks = (walk for start in own for walk in os.walk(start))  # os.walk does not follow links
        return [Path(folder, name) for folder, _, names in walks for name in names if _is_temporary(name)]

    def link_above(self, path: str) -> str | None:
        """Return the first folder in a path that is a link, or None. The root itself may be a link."""
        folder = ""
        for name in path.split("/")[:-1]:
            folder = f"{folder}/{name}" if folder else name
            if os.path.islink(self._place(folder)):
                return folder
        return None

    def linked_folders(self) -> dict[str, str]:
        """Return the folders that are links, with their targets. The store changes nothing through a link."""
        links: dict[str, str] = {}
        pending = list(layout.FOLDERS)
        while pending:
            folder = pending.pop()
            path = self._place(folder)
            if os.path.islink(path):
                if os.path.isdir(path):
                    links[folder] = os.readlink(path)
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as items:
                pending += [f"{folder}/{item.name}" for item in items if item.is_dir()]
        return dict(sorted(links.items()))

    def dead_temporary_files(self) -> list[Path]:
        """Return temporary files whose writers ran on this machine and have ended."""
        return [path for path in self.temporary_files() if process.is_of_a_dead_one(path.name.split(".")[-3])]

    def delete(self, path: str) -> None:
        self._own(path).unlink(missing_ok=True)

    def local(self, path: str) -> Path:
        return self._at(path)

    def push_file(self, source: Path, path: str) -> None:
        if source.absolute() == self._at(path):
            return
        with self._replacing(path) as temporary:
            shutil.copyfile(source, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())

    def fetch_file(self, path: str, target: Path) -> None:
        shutil.copyfile(self._at(path), target)

    @contextlib.contextmanager
    def _replacing(self, path: str) -> Iterator[Path]:
        target = self._own(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{process.mark()}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            yield temporary
            os.replace(temporary, target)
        except BaseException as fault:
            temporary.unlink(missing_ok=True)
            if isinstance(fault, OSError) and str(fault.filename) in ("None", str(temporary)):
                fault.filename = str(target)  # some errors name no file, or the temporary one
            raise

    def _own(self, path: str) -> Path:
        """Return the path on disk of a file to be changed. Raise UserError if one of its folders is a link."""
        link = self.link_above(path)
        if link is not None:
            raise UserError(link_refusal(self.uri, link, os.readlink(self._place(link))))
        return self._at(path)

    def _at(self, path: str) -> Path:
        return Path(self._place(path))

    def _place(self, path: str) -> str:
        """Return the path on disk as a string: building a `Path` takes longer than opening the file."""
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leaves the store")
        return f"{self.uri}/{path}"


def link_refusal(uri: str, link: str, target: str) -> str:
    return (
        f"store {uri}: its folder {link} is a link to {target}, through which nothing is written, moved or deleted; "
        "remove the link or put the folder itself in its place"
    )


def make_folder(out: Path) -> None:
    """Create an output folder. Raise UserError if it is not writable."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as fault:
        raise UserError(f"cannot write to {out}: {fault.strerror}; name another folder by --out") from None


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")

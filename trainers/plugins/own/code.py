"""A user's code: one file, the local modules that it imports, and the files that it opens while it is loaded or built.

The process of the user's command records all of these. Other processes run the recorded text of the modules, whatever
is on their machine, and compare files with their recorded hash. Most files have neither local imports nor opened files;
then nothing is added to their text or their hash.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from trainers.plugins import user_file
from trainers.plugins.own import cache
from trainers.plugins.own.opened import OURS, is_users, reads_heard_by

BESIDE = "robustsweep_beside_"  # name of the package in which a file's relative imports resolve
MOST_MODULE_BYTES = 16_000_000
MOST_SENT_BYTES = 16_000_000  # of one opened file; larger files must exist on every node


@dataclass(frozen=True)
class Module:
    """A local module; a folder without __init__.py has no source."""

    path: str
    source: str | None
    package: bool


@dataclass(frozen=True)
class File:
    """An opened file. `content` is base64, or None if the file is too large to be sent."""

    sha256: str
    content: str | None = None


class Code:
    """The code of one user's file: recorded here, or received from the process that recorded it (`fixed`)."""

    def __init__(self, file: str, source: str, received: Mapping[str, Any] | None = None, *, files: bool = True):
        self.file, self.source, self.tracks_files = os.path.abspath(file), source, files
        self.fixed = received is not None
        content = received or {}
        self.modules = {name: Module(**facts) for name, facts in content.get("modules", {}).items()}
        self.files = {path: File(**facts) for path, facts in content.get("files", {}).items()}
        self.folder: str | None = content.get("cwd")  # working folder from which relative paths were opened
        self.built: set[tuple[Any, ...]] = set()
        self.package = f"{BESIDE}{Path(file).stem.replace('.', '_')}"
        self._root = ""  # root of the copies of files, on a node without them
        self._opened: set[str] = set()
        self._loaded: dict[str, ModuleType] = {}
        if self.fixed:
            self._root = _copies(self.files, self.folder) if self.files else ""
        else:
            importlib.invalidate_caches()  # a module may have just been written
            try:
                self._record_imports(source, self.package)
            except ImportError as fault:  # a module that cannot be recorded
                raise ValueError(str(fault)) from None
        beside = ModuleType(self.package)
        beside.__path__ = [os.path.dirname(self.here(self.file))]
        self._loaded[self.package] = beside
        _owners[self.here(self.file)] = self

    def here(self, path: str) -> str:
        """Return where a recorded path is on this machine."""
        return f"{self._root}{path}"

    def run(self, name: str, where: str) -> ModuleType:
        """Run the file and return it as a module."""
        with self.active():
            return user_file.run(self.source, self.here(self.file), name, where, self.package)

    def tracked(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Return a network's `build` that also records or compares the files that it opens."""

        def tracked(classes: int, shape: Any, *more: Any, **named: Any) -> Any:
            with self.active():
                model = build(classes, shape, *more, **named)
            self.built.add((classes, tuple(shape)))
            return model

        return tracked

    def sha256(self, main: str | None = None) -> str:
        """Return the hash of the file alone (`main`, if known), or one hash of everything that belongs to it."""
        main = main or hashlib.sha256(self.source.encode()).hexdigest()
        modules = {
            name.removeprefix(f"{self.package}."): hashlib.sha256(module.source.encode()).hexdigest()
            for name, module in self.modules.items()
            if module.source is not None
        }
        files = [(self._label(path), file.sha256) for path, file in sorted(self.files.items())]
        if not modules and not files:
            return main
        return hashlib.sha256(json.dumps([main, sorted(modules.items()), files]).encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """Return what another process needs besides the file's text; empty for a file that stands alone."""
        sent: dict[str, Any] = {}
        if self.modules:
            sent["modules"] = {name: asdict(module) for name, module in sorted(self.modules.items())}
        if self.files:
            sent["files"] = {path: asdict(file) for path, file in sorted(self.files.items())}
        if self.folder is not None:
            sent["cwd"] = self.folder
        return sent

    def sources_here(self) -> list[str]:
        """Return the paths of modules that run from their own files; received modules run from their text."""
        return [] if self.fixed else [module.path for module in self.modules.values() if module.source is not None]

    def changed(self) -> str | None:
        """Return the path of a recorded file whose content has changed, or None."""
        if self.fixed:
            return None
        for module in self.modules.values():
            if module.source is not None and _text_at(module.path) != module.source:
                return module.path
        return next((path for path, file in self.files.items() if _sha256_at(path) != file.sha256), None)

    def copy_to(self, folder: Path) -> None:
        """Copy the modules, and the files below the code's own folder, to where a copy of the file finds them."""
        home = os.path.dirname(self.file)
        for name, module in self.modules.items():
            if module.source is not None:
                words = name.removeprefix(f"{self.package}.").split(".")
                target = folder.joinpath(*words, "__init__.py") if module.package else folder.joinpath(*words)
                target = target if module.package else target.with_name(f"{target.name}.py")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(module.source, encoding="utf-8")
        for path in self.files:
            if path.startswith(f"{home}{os.sep}"):
                target = folder / os.path.relpath(path, home)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let imports find the code's own modules, and record or compare the files that the code opens."""
        _install()
        hidden = {name: module for name, module in list(sys.modules.items()) if _is_local(name, module)}
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(self._loaded)
        _active.append((self, threading.get_ident()))
        self._opened = set()
        try:
            with reads_heard_by(self._hear), self._working_folder():
                yield
        except FileNotFoundError as error:
            if self.fixed and error.filename and os.path.abspath(os.fsdecode(error.filename)) in self.files:
                raise FileNotFoundError(
                    f"{error.filename} is missing on this node; open it relative to the code "
                    "(Path(__file__).parent / NAME), so that it is sent along, or put it on every node"
                ) from error
            raise
        finally:
            _active.pop()
            self._loaded.update((name, module) for name, module in list(sys.modules.items()) if _is_local(name, module))
            restored = (name for name in hidden if name not in self._loaded or _shared(name))
            sys.modules.update((name, hidden[name]) for name in restored)
        if self.tracks_files:
            self._compare() if self.fixed else self._record_files()

    @contextmanager
    def _working_folder(self) -> Iterator[None]:
        """Work in the folder from which the code's relative paths were opened when it was recorded."""
        if not self.fixed or self.folder is None:
            yield
            return
        before, folder = os.getcwd(), self.here(self.folder)
        if os.path.isdir(folder):
            os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)

    def _hear(self, path: str) -> None:
        if not self.tracks_files or _active[-1][1] != threading.get_ident() or not self._opens(sys._getframe(2)):
            return
        if not os.path.isabs(path) and not self.fixed:
            self.folder = os.getcwd()
        self._opened.add(os.path.abspath(path))

    def _opens(self, frame: FrameType | None) -> bool:
        """Return True if the user's code opens the file, not an installed package that reads its own while imported."""
        while frame is not None:
            if _owners.get(frame.f_code.co_filename) is self:
                return True
            file = frame.f_code.co_filename
            if frame.f_code.co_name == "<module>" and not file.startswith("<") and not is_users(file):
                return False
            frame = frame.f_back
        return False

    def _read_files(self) -> Iterator[tuple[str, str]]:
        """Yield path and hash of every opened file. A module's own file is skipped: its text is recorded."""
        modules = {self.here(module.path) for module in self.modules.values()} | {self.here(self.file)}
        for path in sorted({_source_of(path) for path in self._opened} - modules):
            if is_users(path) and os.path.isfile(path) and (sha256 := _sha256_at(path)) is not None:
                yield path, sha256

    def _record_files(self) -> None:
        for path, sha256 in self._read_files():
            if path in self.files and self.files[path].sha256 != sha256:
                raise ValueError(f"{path} has changed since this process first opened it; restart the command")
            if path not in self.files:
                self.files[path] = _read(path)

    def _compare(self) -> None:
        hashes, names = {file.sha256 for file in self.files.values()}, {os.path.basename(path) for path in self.files}
        home = os.path.dirname(self.here(self.file)) + os.sep
        for path, sha256 in self._read_files():
            if sha256 not in hashes and (os.path.basename(path) in names or path.startswith(home)):
                raise ValueError(
                    f"{self.file} opens {path}, whose content here (sha256 {sha256[:16]}…) differs from that where the "
                    "study was read: it has changed since, or differs on this node; give every node the same file and "
                    "restart the command"
                )

    def _label(self, path: str) -> str:
        home = os.path.dirname(self.file) + os.sep
        return path.removeprefix(home) if path.startswith(home) else os.path.basename(path)

    def find(self, name: str, path: Any) -> ModuleSpec | None:
        """Return the module that an import of the code finds. Recorded modules come first; local ones are recorded."""
        if name in self.modules:
            return self._spec(name)
        spec = _usual_spec(name, path, os.path.dirname(self.here(self.file)))
        if spec is None or not _is_local_spec(name, spec):
            return spec
        if self.fixed:
            raise ImportError(
                f"{self.file} imports {name!r} ({spec.origin}), but did not do so where the study was read; import it "
                "at the top of the file, so that it is sent along and becomes part of the trial's name",
                name=name,
            )
        self._record(name, spec)
        return self._spec(name)

    def _spec(self, name: str) -> ModuleSpec:
        module = self.modules[name]
        path = self.here(module.path)
        if module.source is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [path]
            return spec
        _owners[path] = self
        spec = ModuleSpec(name, _Loader(module.source, path), origin=path, is_package=module.package)
        spec.has_location = True
        if module.package:
            spec.submodule_search_locations = [os.path.dirname(path)]
        return spec

    def _record(self, name: str, spec: ModuleSpec) -> None:
        where = f"{self.file}: its import {name!r}"
        folders = list(spec.submodule_search_locations or ())
        if spec.origin is None or not spec.has_location:
            self.modules[name] = Module(os.path.abspath(folders[0]), None, True)
            return
        if not spec.origin.endswith(".py") or not os.path.isfile(spec.origin):
            raise ImportError(
                f"{where} is {spec.origin}, which cannot be sent as text; install it as a package on every node",
                name=name,
            )
        content = user_file.read(Path(spec.origin), where)
        source = importlib.util.decode_source(content)
        self.modules[name] = Module(os.path.abspath(spec.origin), source, bool(folders))
        if sum(len(module.source or "") for module in self.modules.values()) > MOST_MODULE_BYTES:
            raise ImportError(f"{where}: more than {MOST_MODULE_BYTES // 1_000_000} MB of local modules; install them")
        self._record_imports(source, name if folders else name.rpartition(".")[0])

    def _record_imports(self, source: str, package: str) -> None:
        """Record every local import statement, those inside functions included, whether or not it is reached."""
        for dotted in _imported(source, package):
            words, path = dotted.split("."), None
            for number in range(len(words)):
                name = ".".join(words[: number + 1])
                if name == self.package:
                    path = [os.path.dirname(self.file)]
                    continue
                if name not in self.modules:
                    spec = _usual_spec(name, path, os.path.dirname(self.file))
                    if spec is None or not _is_local_spec(name, spec):
                        break
                    self._record(name, spec)
                module = self.modules[name]
                if not module.package:
                    break
                path = [module.path if module.source is None else os.path.dirname(module.path)]


class _Loader(importlib.abc.Loader):
    """A loader that runs the recorded text of a module."""

    def __init__(self, source: str, path: str) -> None:
        self.source, self.path = source, path

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, self.path, "exec"), module.__dict__)

    def get_source(self, name: str) -> str:
        return self.source


class _Finder:
    """A finder that lets the importing code resolve its own modules; all other imports are unaffected."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in OURS:
            return None
        if _active and _active[-1][1] == threading.get_ident():
            return _active[-1][0].find(name, path)
        code = _importing(sys._getframe(1))
        if code is None or not (code.fixed or name in code.modules):
            return None
        return code.find(name, path)


_FINDER = _Finder()
_active: list[tuple[Code, int]] = []  # with the thread that runs it
_owners: dict[str, Code] = {}  # by the path of a module


def _install() -> None:
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _importing(frame: FrameType | None) -> Code | None:
    """Return the code whose import statement, or call of importlib, is running."""
    while frame is not None:
        file = frame.f_code.co_filename
        if "importlib" not in file:
            return _owners.get(file)
        frame = frame.f_back
    return None


def _usual_spec(name: str, path: Any, folder: str) -> ModuleSpec | None:
    if path is None and name.partition(".")[0] not in sys.stdlib_module_names:
        spec = PathFinder.find_spec(name, [folder, *sys.path])  # as if the file were run as a script
        if spec is not None:
            return spec
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path) if find is not None and finder is not _FINDER else None
        if spec is not None:
            return spec
    return None


def _is_local_spec(name: str, spec: ModuleSpec) -> bool:
    if name.partition(".")[0] in OURS:
        return False
    if spec.origin is None or not spec.has_location:
        return any(is_users(folder) for folder in spec.submodule_search_locations or ())
    return is_users(spec.origin)


def _is_local(name: str, module: Any) -> bool:
    if name.startswith(BESIDE):
        return True
    if name in ("__main__", "__mp_main__") or name.partition(".")[0] in OURS:
        return False
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not file.startswith(_PYTHON) and is_users(file)


def _shared(name: str) -> bool:
    """Return True if code outside may import a module by that name, such as a notebook or a test."""
    return not name.startswith("robustsweep_")


_PYTHON = (sys.prefix + os.sep, sys.base_prefix + os.sep)


def _imported(source: str, package: str) -> Iterator[str]:
    """Yield the dotted names of everything that a source imports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # reported when the file is run
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                base = f"{above}.{base}" if base else above
            yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)


def _copies(files: Mapping[str, File], folder: str | None) -> str:
    """Return the root of a tree with the files at their recorded paths. Sent files take precedence over local ones.

    Files that are too large to be sent are linked. If all files are, no tree is made and '' is returned.
    """
    for path, file in files.items():
        if file.content is None and _sha256_at(path) != file.sha256:
            raise ValueError(
                f"{path} is missing here or differs from the file where the study was read (sha256 "
                f"{file.sha256[:16]}…). Files above {MOST_SENT_BYTES // 1_000_000} MB are not sent: put the same file "
                "there on every node"
            )
    if all(file.content is None for file in files.values()):
        return ""
    digest = hashlib.sha256(json.dumps(sorted((path, file.sha256) for path, file in files.items())).encode())
    root = cache.default_root() / "files" / digest.hexdigest()
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=root.parent))
        try:
            for path, file in files.items():
                _copy(path, file, temporary)
            if folder is not None:
                Path(f"{temporary}{folder}").mkdir(parents=True, exist_ok=True)
            try:
                temporary.rename(root)
            except OSError:
                if not root.is_dir():  # otherwise another process was faster
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return str(root)


def _copy(path: str, file: File, root: Path) -> None:
    target = Path(f"{root}{path}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.content is not None:
        target.write_bytes(base64.b64decode(file.content))
    else:
        target.symlink_to(path)


def _read(path: str) -> File:
    if os.path.getsize(path) > MOST_SENT_BYTES:
        return File(str(_sha256_at(path)))
    content = Path(path).read_bytes()
    return File(hashlib.sha256(content).hexdigest(), base64.b64encode(content).decode())


_hashes: dict[tuple[Any, ...], str] = {}


def _sha256_at(path: str) -> str | None:
    try:
        facts = os.stat(path)
        key = (path, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if key not in _hashes:
            with open(path, "rb") as stream:
                _hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        return _hashes[key]
    except OSError:
        return None


def _text_at(path: str) -> str | None:
    try:
        return importlib.util.decode_source(Path(path).read_bytes())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _source_of(path: str) -> str:
    """Return the .py file that a .pyc was compiled from; other paths are returned unchanged."""
    if not path.endswith(".pyc"):
        return path
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:
        return path

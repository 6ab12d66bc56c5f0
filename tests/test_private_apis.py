"""Private names of other packages stand in compat modules alone, and CONTRIBUTING lists what these hold."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPAT = {
    *("trainers/compat/torch_internals.py", "trainers/compat/torchvision_internals.py"),
    *("trainers/compat/autoattack_internals.py", "sweep/search/compat.py", "sweep/cluster/compat.py"),
}
OURS = ("search_spaces", "trainers", "sweep", "reports", "robustsweep", "benchmarks")
# Public methods of namedtuples, and what Ray's callbacks for trackers keep of their runs, which ours derive from.
ALLOWED = {"_asdict", "_fields", "_replace", "_cleanup_logging_actors", "_trial_logging_futures", "_trial_runs"}
TREES = {
    file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
    for top in OURS
    for file in sorted((ROOT / top).rglob("*.py"))
}


def defined(node: ast.AST) -> set[str]:
    """Return the names that a statement or expression gives to something."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.attr if isinstance(node, ast.Attribute) else node.id}
    return set()


def imported(node: ast.AST) -> set[str]:
    """Return the dotted names of other packages that a statement imports."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{alias.name}" for alias in node.names}
    else:
        names = set()
    return {name for name in names if name.split(".")[0] not in OURS}


def private(tree: ast.AST) -> set[str]:
    """Return the private names that a file imports from other packages or reaches for in any object."""
    names = {part for node in ast.walk(tree) for name in imported(node) for part in name.split(".")}
    for node in ast.walk(tree):
        of_python = isinstance(node, ast.Attribute) and ast.unparse(node.value) in sys.stdlib_module_names
        if isinstance(node, ast.Attribute) and not of_python:
            names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_private_names_of_other_packages_stand_in_compat_modules_alone():
    ours = {name for tree in TREES.values() for node in ast.walk(tree) for name in defined(node)}
    foreign = {file: private(tree) - ours - ALLOWED for file, tree in TREES.items()}
    assert {file: names for file, names in foreign.items() if names and file not in COMPAT} == {}
    assert {"_BatchNorm", "_forward_hooks", "_cdata", "_dynamo"} <= foreign["trainers/compat/torch_internals.py"]


def test_parts_of_pyautoattack_are_imported_by_its_compat_module_alone():
    names = {file: {name for node in ast.walk(tree) for name in imported(node)} for file, tree in TREES.items()}
    parts = {file: {one for one in found if one.startswith("pyautoattack.")} for file, found in names.items()}
    users = {file for file, found in parts.items() if found - {"pyautoattack.AutoAttack"}}
    assert users == {"trainers/compat/autoattack_internals.py"}


def offered(tree: ast.Module) -> set[str]:
    """Return the public names that a file defines at its top level."""
    targets = [
        target
        for node in tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)])
    ]
    return {name for target in targets for name in defined(target) if not name.startswith("_")}


@pytest.mark.parametrize("file", sorted(COMPAT))
def test_contributing_lists_what_a_compat_module_offers(file):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("## Private APIs") : text.index("## Rules")]
    listed = set(re.findall(r"`([^`]+)`", table))
    assert {file, *offered(TREES[file])} <= listed

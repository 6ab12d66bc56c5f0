"""A method's hyperparameters as its file declares them, read without torch: plans of thousands of trials stay instant.

Only the fields of the class are executed, not the file. Where a class checks its fields itself, and for plug-ins,
the method is imported.
"""

from __future__ import annotations

import ast
import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from trainers import composition, methods
from trainers.method import Method, hyperparameter, is_too_large


def resolved_hyperparameters(name: str, hyperparameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """As `composition.resolved_hyperparameters`, and the same faults."""
    base = composition.parse(name)[0]
    method = declared(base) if base in methods.names() else None
    large = [key for key, value in (hyperparameters or {}).items() if is_too_large(value)]
    if large:
        raise ValueError(f"method {name!r}: {', '.join(large)} too large; more than 308 digits are no number here")
    try:
        return composition.resolved_hyperparameters(name, hyperparameters, declared=method)
    except ValueError:
        raise
    except Exception as error:
        # A class that checks its fields itself may raise anything.
        kind, message = type(error).__name__, str(error)
        raise ValueError(f"method {name!r} cannot be built: {kind}{message and ': '}{message}") from error


def inner_attack(name: str) -> dict[str, str]:
    """Where the method's own code starts the inner attack, and in which BatchNorm mode it runs."""
    base = composition.parse(name)[0]
    method = declared(base) if base in methods.names() else composition.method_class(base)
    return {"start": method.start, "mode": method.mode}


@cache
def declared(base: str) -> type[Method]:
    """A class with the fields of a shipped method and nothing else of it."""
    tree = ast.parse((Path(methods.__file__).parent / f"{base}.py").read_text(encoding="utf-8"))
    places = {name.asname or name.name: node for node in tree.body for name in _imported_methods(node)}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or len(node.bases) != 1 or not isinstance(node.bases[0], ast.Name):
            continue
        parent = node.bases[0].id
        if parent != "Method" and parent not in places:
            continue
        if any(isinstance(item, ast.FunctionDef) and item.name == "__post_init__" for item in node.body):
            break
        above = Method if parent == "Method" else declared(_file_of(places[parent]))
        fields: list[ast.stmt] = [item for item in node.body if isinstance(item, ast.AnnAssign | ast.Assign)]
        kept = ast.ClassDef(node.name, node.bases, [], fields or [ast.Pass()], [])
        module = ast.fix_missing_locations(ast.Module([kept], []))
        space: dict[str, Any] = {parent: above, "hyperparameter": hyperparameter, "__name__": __name__}
        try:
            exec(compile(module, f"{base}.py", "exec", dont_inherit=True), space)
        except NameError:  # a default or an annotation that needs more of the file
            break
        found: type[Method] = dataclasses.dataclass(frozen=True)(space[node.name])
        return found
    return composition.method_class(base)


def _imported_methods(node: ast.stmt) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) and _is_method_file(node) else []


def _is_method_file(node: ast.ImportFrom) -> bool:
    return (node.module or "").startswith(f"{methods.__name__}.")


def _file_of(node: ast.stmt) -> str:
    assert isinstance(node, ast.ImportFrom) and node.module
    return node.module.rpartition(".")[2]

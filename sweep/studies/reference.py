"""Reference of all study keys: type, default, meaning and example, derived from the pydantic models."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import search_spaces
from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.sections import auto_or_bytes, auto_or_number
from trainers import composition
from trainers.attacks.scoring import suites
from trainers.config import Recipe, Selection
from trainers.plugins import registry
from trainers.plugins.spelling import nearest
from trainers.values import Hyperparameter, check_amount

LABEL = "LABEL"
REQUIRED = "required"
# Keys that override part of another section. Their valid keys are documented once, with that section.
PARTS = {"train": Recipe, "selection": Selection}
NAMES = {
    "dataset": registry.DATASETS.names,
    "model": registry.NETWORKS.names,
    f"methods.{LABEL}.method": lambda: [*composition.method_names(), *(f"+{one}" for one in registry.WRAPPERS.names())],
    f"search.{LABEL}.space": lambda: [f"(of {', '.join(search_spaces.names())})"],
}
HEAD = """# Every key of a study

Made from the shape that studies are checked with: `python -m sweep.explain --markdown > STUDY.md`. One key in the
terminal: `python -m sweep.explain train.attack`. A study to start from:
`python -m sweep.new my_mnist.yaml --dataset mnist --methods at,trades`. For editors that check YAML:
`python -m sweep.explain --json-schema > study.schema.json`, and `# yaml-language-server: $schema=study.schema.json` as
the first line of a study.

A key is written with its place: `train.attack.steps` is `steps` in `attack` in `train`, and
`--set train.attack.steps=20` sets it from the command line. `LABEL` stands for a name of yours. Radii are numbers or
fractions such as `8/255`.
"""


@dataclass(frozen=True)
class Key:
    path: str
    kind: str
    default: str
    meaning: str
    example: str
    below: bool  # True if the key is a mapping with keys of its own

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def keys(model: type[BaseModel] = Study, path: str = "") -> Iterator[Key]:
    """Yield all keys in the order of the model's fields, each mapping before its contents."""
    for name, field in model.model_fields.items():
        place = f"{path}{name}"
        inner, by_label = _model_inside(field.annotation)
        yield Key(place, _kind(field), _default(field), field.description or "", _example(name, field), bool(inner))
        if inner is not None:
            yield from keys(inner, f"{place}.{LABEL}." if by_label else f"{place}.")


def lines(path: str | None) -> list[str]:
    """Return the lines that `explain` prints for a key and the keys below it, or for all keys if `path` is None."""
    every = list(keys())
    if path is None:
        return [_line(key) for key in every]
    wanted = _with_labels(path.strip().strip("."))
    if (hyperparameters := _hyperparameters(wanted)) is not None:
        return hyperparameters
    key = next((one for one in every if one.path == wanted), None)
    if key is None:
        raise UserError(_unknown(path, wanted, every))
    found = [f"{key.path}: {key.meaning}"]
    if not key.below:
        found += [f"  type     {key.kind}", f"  default  {key.default}"]
    for number, line in enumerate(_written(key)):
        found.append(f"  {'' if number else 'example':<8} {line}")
    if key.path in NAMES:
        found.append(f"  known    {', '.join(NAMES[key.path]())}")
    if key.path == "evaluation.suite":
        found += [f"  {name:<8} {', '.join(attacks)}" for name, attacks in suites.SUITES.items()]
    below = [one for one in every if one.path.startswith(f"{key.path}.")]
    if below:
        found += ["", "keys below it:", *(f"  {_line(one)}" for one in below)]
    elif key.name in PARTS:
        found.append(f"  keys     those of {key.name}: python -m sweep.explain {key.name}")
    return found


def markdown() -> str:
    """Return the full text of STUDY.md."""
    parts = [HEAD]
    sections: dict[str, list[Key]] = {"": []}
    for key in keys():
        if key.below and "." not in key.path:
            sections[key.path] = [key]
        else:
            sections[key.path.split(".")[0] if key.path.split(".")[0] in sections else ""].append(key)
    for section, found in sections.items():
        title = f"## {section}\n\n{found[0].meaning[:1].upper()}{found[0].meaning[1:]}." if section else "## The study"
        rows = [_row(key) for key in (found[1:] if section else found)]
        parts.append(
            "\n".join([title, "", "| Key | Type | Default | Meaning | Example |", "|---|---|---|---|---|", *rows])
        )
    parts.append(_methods_text())
    parts.append(
        "\n".join(["## Suites", "", *(f"- `{name}`: {', '.join(one)}" for name, one in suites.SUITES.items())])
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _line(key: Key) -> str:
    return f"{key.path} ({key.kind}{'' if key.below else f', default {key.default}'}): {key.meaning}"


def _row(key: Key) -> str:
    example = f"`{key.example}`" if key.example else ""
    cells = [f"`{key.path}`", key.kind, key.default if key.default in ("", REQUIRED) else f"`{key.default}`"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, key.meaning, example]) + " |"


def _methods_text() -> str:
    rows = ["## Hyperparameters", "", "Under `methods.LABEL.hyperparameters`.", ""]
    rows += ["| Method | Hyperparameter | Default | Legal |", "|---|---|---|---|"]
    for method in composition.method_names():
        for name, default, legal in _of_method(method):
            rows.append(f"| `{method}` | `{name}` | `{default}` | {legal} |")
    return "\n".join(rows)


def _of_method(method: str) -> list[tuple[str, str, str]]:
    found = []
    for field in fields(composition.method_of(method)):
        rule, legal = field.metadata, []
        if rule.get("choices"):
            legal.append(", ".join(map(str, rule["choices"])))
        if rule.get("low") is not None:
            legal.append(f"at least {rule['low']:g}")
        if rule.get("high") is not None:
            legal.append(f"at most {rule['high']:g}{' or inf' if rule.get('infinite') else ''}")
        found.append((field.name, _yaml(field.default), ", ".join(legal) or str(field.type)))
    return found


def _hyperparameters(path: str) -> list[str] | None:
    """Return the lines on a method's hyperparameters, or None if `path` is not the name of a method."""
    method = path
    if method not in composition.method_names():
        return None
    known = _of_method(method)
    found = [f"{method}: a method; in a study under methods.LABEL.hyperparameters:"]
    found += [f"  {name} (default {default}): {legal}" for name, default, legal in known]
    return found if known else [f"{method}: a method without hyperparameters"]


def _with_labels(path: str) -> str:
    """Return the path with the user's label replaced by `LABEL`; `methods.sovr.train.epochs` becomes `train.epochs`."""
    parts = path.split(".")
    if len(parts) > 1 and parts[0] in ("methods", "search"):
        parts[1] = LABEL
    if len(parts) > 3 and parts[2] in PARTS:
        return ".".join(parts[2:])
    return ".".join(parts)


def _unknown(path: str, wanted: str, every: list[Key]) -> str:
    meant = [key.path for key in every if wanted == key.name or path == key.path.replace(f".{LABEL}", "")]
    if meant:
        place = "in a study" if "." in path else "at the top of a study"
        return f"no key {path!r} {place}; did you mean {' or '.join(meant)}?"
    above, _, last = wanted.rpartition(".")
    beside = [key.name for key in every if key.path.rpartition(".")[0] == above]
    if not beside:
        beside, above = [key.path for key in every], ""
        return f"no key {path!r} in a study{nearest(wanted, beside)} python -m sweep.explain lists all"
    return (
        f"no key {path!r} in a study{nearest(last, beside)} known{f' in {above}' if above else ''}: {', '.join(beside)}"
    )


def _written(key: Key) -> list[str]:
    """Return the lines of the key's example as written in a file, with the enclosing keys."""
    if not key.example:
        return []
    parts = key.path.replace(LABEL, "sovr").split(".")
    *above, last = [f"{'  ' * depth}{name}:" for depth, name in enumerate(parts)]
    return [*above, f"{last} {key.example}"]


def _example(name: str, field: FieldInfo) -> str:
    value = field.examples[0] if field.examples else _default_value(field)
    return "" if value is None or isinstance(value, BaseModel) else _yaml(value)


def _default_value(field: FieldInfo) -> Any:
    return None if field.default is PydanticUndefined else field.default


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value = _default_value(field)
    if value is None:
        checks = {rule.func for rule in field.metadata if isinstance(rule, BeforeValidator)}
        return "auto" if checks & {auto_or_number, auto_or_bytes} else "absent"
    return "" if isinstance(value, BaseModel) else _yaml(value)


def _yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=1000, allow_unicode=True).removesuffix("...\n").strip()


def _kind(field: FieldInfo) -> str:
    checks = {rule.func for rule in field.metadata if isinstance(rule, BeforeValidator)}
    if check_amount in checks:
        return "number or fraction"
    if auto_or_bytes in checks:
        return "auto, or an amount of memory"
    limits = [text for rule in field.metadata if (text := _limit(rule))]
    return ("auto, or " if auto_or_number in checks else "") + ", ".join([_type(field.annotation), *limits])


def _type(annotation: Any) -> str:
    """Describe a type annotation in the terms of YAML."""
    if annotation == Hyperparameter:
        return "number, text or true/false"
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = [text for rule in inside[1:] for text in _limits(rule)]
        return ", ".join([_type(inside[0]), *limits])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(one) for one in inside if one is not type(None)))
    if origin is Literal:
        return ", ".join(_yaml(one) for one in inside)
    if origin is tuple:
        return f"list of {_type(inside[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return {int: "whole number", float: "number", bool: "true/false", str: "text"}.get(annotation, str(annotation))


def _limits(rule: Any) -> list[str]:
    found = [rule, *getattr(rule, "metadata", [])]
    return [text for one in found if (text := _limit(one))]


def _limit(rule: Any) -> str:
    match rule:
        case annotated_types.Ge(ge=low):
            return f"at least {low}"
        case annotated_types.Gt(gt=low):
            return f"above {low}"
        case annotated_types.Le(le=high):
            return f"at most {high}"
        case annotated_types.Lt(lt=high) if high != 2**32:
            return f"below {high}"
    return ""


def _model_inside(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the pydantic model inside an annotation, if any, and whether the annotation maps labels to it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for one in get_args(annotation):
        inner, by_label = _model_inside(one)
        if inner is not None:
            return inner, by_label or get_origin(annotation) is dict
    return None, False

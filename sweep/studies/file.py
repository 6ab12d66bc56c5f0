"""Study files: safe YAML parsing, command-line overrides, and a single message with all faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sweep.errors import UserError
from trainers.plugins.spelling import nearest

MAX_BYTES = 4_000_000
MAX_DEPTH = 30
MAX_ALIASED = 20_000  # values that aliases may expand to; real studies stay far below, YAML bombs go far above

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StudyLoader(_Loader):
    """SafeLoader that requires unique text keys and reads 2e-4 as a number (YAML 1.1 reads it as text)."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._scalars: dict[tuple[str, str], Any] = {}

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct a node, building equal scalars only once: ten thousand labels repeat few words and numbers."""
        if not isinstance(node, yaml.ScalarNode):
            return self._construct(node, deep)
        key = (node.tag, node.value)
        if key not in self._scalars:
            self._scalars[key] = self._construct(node, deep)
        return self._scalars[key]

    def _construct(self, node: Any, deep: bool) -> Any:
        if node.tag not in _TAGS:
            raise _refusal(node, f"the tag {_short(node.tag)} has no place in a study; write the value without it")
        try:
            return super().construct_object(node, deep)
        except _TAG_FAULTS as fault:
            # Raised by PyYAML's constructors: a date such as 2024-99-99, !!bool maybe, a number of 5000 digits.
            if isinstance(fault, UserError):
                raise
            why = f" ({fault})" if isinstance(fault, ValueError) else ""
            shown = f" {node.value[:40]!r}" if isinstance(node, yaml.ScalarNode) else ""
            raise _refusal(
                node,
                f"the value{shown} does not fit the tag {_short(node.tag)}{why}; quote it, or write it without a tag",
            ) from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise _refusal(node, f"the tag {_short(node.tag)} needs a mapping; write the value without it")
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key != "<<" and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        for key in mapping:
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} must be text; quote it", node.start_mark
                )
        return mapping


_StudyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)

_YAML = "tag:yaml.org,2002:"
# Tags allowed in a study. Bytes (!!binary) would pass for text, no key takes a set or pairs, and no tag may build an
# object.
_TAGS = {
    f"{_YAML}{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "seq", "map", "merge", "value")
}
_TAG_FAULTS = (KeyError, AttributeError, TypeError, IndexError, ValueError, OverflowError)


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_YAML)}"[:60] if tag.startswith(_YAML) else tag[:60]


def _refusal(node: Any, rule: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, rule, node.start_mark)


@dataclass(frozen=True)
class Fault:
    path: str
    rule: str
    value: Any = None
    shows_value: bool = True

    def __str__(self) -> str:
        if not self.shows_value:
            return f"{self.path}: {self.rule}"
        text = repr(self.value)
        return f"{self.path} = {text if len(text) <= 60 else text[:57] + '...'}: {self.rule}"


def refuse(where: str, faults: Sequence[Fault]) -> UserError:
    lines = [f"  {fault}" for fault in faults]
    return UserError("\n".join([f"{where} has {len(faults)} fault{'s' if len(faults) > 1 else ''}:", *lines]))


def read(path: Path) -> dict[str, Any]:
    """Read a study file as a mapping; raise a UserError if the file as a whole is invalid."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path}: larger than {MAX_BYTES // 1_000_000} MB; a study is a page of text")
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise UserError(f"{path}: cannot be read ({fault.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8 text") from None
    content = parse(text, str(path))
    if content is None:
        raise UserError(f"{path}: the file is empty; a study needs at least title, dataset, model, methods")
    if not isinstance(content, dict):
        raise UserError(f"{path}: must be a mapping (title: …, dataset: …), not a {_kind(content)}")
    return content


def parse(text: str, where: str) -> Any:
    try:
        _check_size(text, where)
        return yaml.load(text, _StudyLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{where}{place}: {getattr(fault, 'problem', None) or fault}") from None
    except _TAG_FAULTS as fault:  # raised by PyYAML outside of any node
        if isinstance(fault, UserError):
            raise
        raise UserError(f"{where}: not a study's YAML ({fault})") from None


def _check_size(text: str, where: str) -> None:
    """Check the nesting depth and the size of all expanded aliases before anything is built, against YAML bombs."""
    sizes: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = aliased = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise UserError(f"{where}: *{event.anchor} stands for nothing that was completed before it")
            total += sizes[event.anchor]
            aliased += sizes[event.anchor]
            if aliased > MAX_ALIASED:
                raise UserError(f"{where}: its aliases stand for more than {MAX_ALIASED} values; write the study out")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            if len(open_nodes) > MAX_DEPTH:
                raise UserError(f"{where}: nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            if anchor:
                sizes[anchor] = total - before + 1


def override(content: dict[str, Any], settings: Iterable[str]) -> None:
    """Apply settings such as `train.epochs=2` to `content` in place; values are parsed as YAML."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        names = [part.strip() for part in key.split(".")]
        if not equals or not all(names):
            raise UserError(f"--set {setting}: must look like train.epochs=2")
        value = parse(text, f"--set {setting}")
        place = content
        for depth, name in enumerate(names[:-1]):
            below = place.get(name)
            if below is None:
                below = {}
            if not isinstance(below, dict):
                raise UserError(f"--set {setting}: {'.'.join(names[: depth + 1])} is a {_kind(below)}, not a mapping")
            place[name] = dict(below)  # an anchored mapping may be shared with another method
            place = place[name]
        place[names[-1]] = value


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `over`; nested mappings are merged key by key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def faults_of(error: ValidationError, model: type[BaseModel], prefix: str = "") -> list[Fault]:
    """Convert pydantic's errors to faults with key path, rule and nearest name; at most one fault per path."""
    found: dict[str, Fault] = {}
    for item in error.errors(include_url=False):
        location = [part for part in item["loc"] if part != "[key]"]
        rule, shows_value = item["msg"].removeprefix("Value error, ").replace("Input should", "must"), True
        if "hyperparameters" in location[:-2]:  # pydantic reports one error per member of the union
            location = location[: location.index("hyperparameters") + 2]
            rule = "must be a number, a text or true/false"
        if item["type"] == "extra_forbidden":
            known = _keys_at(model, location[:-1])
            rule, shows_value = f"unknown key{nearest(str(location[-1]), known)} known: {', '.join(known)}", False
        elif item["type"] == "missing":
            rule, shows_value = "missing", False
        elif item["type"] == "literal_error":
            choices = re.findall(r"'([^']*)'", item["ctx"]["expected"])
            rule = f"must be one of: {', '.join(choices)}{nearest(str(item['input']), choices)}".rstrip(";")
        elif item["type"] in ("model_type", "dict_type", "model_attributes_type"):
            rule = "must be a mapping"
        elif item["type"].startswith("value_error") and isinstance(item["input"], dict):
            shows_value = False
        path = ".".join([*([prefix] if prefix else []), *map(str, location)]) or "the study"
        found.setdefault(path, Fault(path, rule, item["input"], shows_value))
    return list(found.values())


def _keys_at(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """Return the valid keys of the mapping at a location inside a model."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = _inner_model(current.model_fields[part].annotation)
        # Otherwise the part is a label, a free key of a mapping: `current` is already the model of its values.
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _inner_model(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (inner := _inner_model(argument)) is not None:
            return inner
    return None


def _kind(value: Any) -> str:
    return {"list": "list", "dict": "mapping", "str": "text", "NoneType": "empty value"}.get(
        type(value).__name__, "value"
    )

"""JSON schema of a study file, for editors that validate YAML while typing."""

from __future__ import annotations

import json
from typing import Any

from sweep.studies.model import Study
from sweep.studies.reference import PARTS


def json_schema() -> str:
    """Return the schema (draft 2020-12), including the keys of `train` and `selection` that a column may override."""
    schema = Study.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["required"].remove("name")  # defaults to the file's name
    definitions = schema["$defs"]
    for holder in ("MethodEntry", "Search"):
        for name, part in PARTS.items():
            told = definitions[holder]["properties"][name]
            definitions[holder]["properties"][name] = {**_told(told), "$ref": f"#/$defs/{part.__name__}"}
    definitions["Search"]["properties"]["seed"] = {"type": "integer", "description": "short for seeds with one"}
    for name in ("gpus", "cpus", "memory"):
        told = definitions["Resources"]["properties"][name]
        definitions["Resources"]["properties"][name] = {**_told(told), "type": ["number", "string"]}
    for name in ("methods", "search"):  # an empty `at:` is a column with all defaults
        entry = schema["properties"][name]
        entry["additionalProperties"] = {"anyOf": [entry["additionalProperties"], {"type": "null"}]}
    for section in ("train", "selection", "search", "evaluation", "resources"):
        entry = schema["properties"][section]
        reference = {key: entry.pop(key) for key in ("$ref", "type", "additionalProperties") if key in entry}
        entry["anyOf"] = [reference, {"type": "null"}]
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _told(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("description", "default", "examples") if name in entry}

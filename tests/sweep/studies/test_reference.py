"""The reference of all keys: complete, true to the shape, and the same as STUDY.md."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner

from sweep import studies
from sweep.application import app
from sweep.cli import main  # noqa: F401 - all commands are loaded
from sweep.errors import UserError
from sweep.studies import file as study_file
from sweep.studies.model import Study
from sweep.studies.reference import keys, lines, markdown
from sweep.studies.schema import json_schema

ROOT = Path(__file__).parents[3]
EVERY = list(keys())


def fields_below(model, path=""):
    from sweep.studies.reference import _model_inside

    for name, field in model.model_fields.items():
        yield f"{path}{name}", field
        inner, by_label = _model_inside(field.annotation)
        if inner is not None:
            yield from fields_below(inner, f"{path}{name}.LABEL." if by_label else f"{path}{name}.")


def test_study_md_is_what_the_shape_says():
    assert (ROOT / "STUDY.md").read_text(encoding="utf-8") == markdown(), (
        "python -m sweep.explain --markdown > STUDY.md"
    )


def test_every_key_has_a_type_a_meaning_and_an_example():
    assert len(EVERY) > 70 and len({key.path for key in EVERY}) == len(EVERY)
    assert [key.path for key in EVERY if not key.meaning or not key.kind] == []
    assert [key.path for key in EVERY if not key.example and not key.below] == []
    text = markdown()
    assert [key.path for key in EVERY if f"`{key.path}`" not in text and f"## {key.path}\n" not in text] == []


def test_every_key_of_the_shipped_studies_is_in_the_reference():
    known = {key.path for key in EVERY}
    parts = {key.path for key in EVERY if key.path.split(".")[-1] in ("hyperparameters", "space", "train", "selection")}

    def below(content, path):
        for name, value in content.items():
            place = f"{path}.{name}" if path else name
            yield place
            if isinstance(value, dict) and not (place in parts and "LABEL" in place):
                labelled = place in ("methods", "search")
                for inner in value.values() if labelled else [value]:
                    yield from below(inner or {}, f"{place}.LABEL" if labelled else place)

    for name in studies.shipped():
        content = study_file.read(studies.FOLDER / f"{name}.yaml")
        assert set(below(content, "")) - known - {"margins", "search.LABEL.seed"} == set(), name


@pytest.mark.parametrize(
    "path, field", list(fields_below(Study)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_example_is_legal(path, field):
    example = next((key.example for key in EVERY if key.path == path), "")
    if example:
        from typing import Annotated

        declared = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        TypeAdapter(declared).validate_python(yaml.safe_load(example))


def test_a_key_is_explained_with_what_is_below_it():
    told = "\n".join(lines("train.attack"))
    assert "train.attack.steps (whole number, at least 0, default 10)" in told and "train.epochs" not in told
    assert lines("methods.sovr.train.attack.steps") == lines("train.attack.steps")
    assert any(line.strip().startswith("trades") or "beta" in line for line in lines("trades"))
    assert any("mnist" in line for line in lines("dataset"))


@pytest.mark.parametrize(
    "asked, told",
    [
        ("train.atack", "did you mean 'attack'"),
        ("epochs", "did you mean train.epochs"),
        ("train.attack.step", "steps"),
        ("search.objective", "did you mean search.LABEL.objective?"),
    ],
)
def test_an_unknown_key_is_one_message_with_the_nearest(asked, told):
    with pytest.raises(UserError, match="no key") as caught:
        lines(asked)
    assert told in str(caught.value)


def test_the_json_schema_takes_every_shipped_study_and_refuses_faults():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(json_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in studies.shipped():
        content = json.loads(json.dumps(study_file.read(studies.FOLDER / f"{name}.yaml")))
        content.pop("margins", None)
        assert list(validator.iter_errors(content)) == [], name
    good = {
        "title": "t",
        "dataset": "digits",
        "model": "small_cnn",
        "methods": {"at": None},
        "resources": {"gpus": "auto"},
    }
    assert validator.is_valid(good)
    for fault in (
        {"train": {"epoch": 2}},
        {"train": {"epochs": 0}},
        {"methods": {"at": {"train": {"atack": {}}}}},
        {"evaluation": {"epsilon": "wide"}},
        {"selection": {"protocol": "mine"}},
    ):
        assert not validator.is_valid({**good, **fault}), fault


def test_the_command_tells_keys_schema_and_mistakes():
    runner = CliRunner()
    assert "train.epochs" in runner.invoke(app, ["explain", "train"]).output
    assert json.loads(runner.invoke(app, ["explain", "--json-schema"]).output)["title"] == "Study"
    wrong = runner.invoke(app, ["explain", "trian"])
    assert wrong.exit_code == 2 and "did you mean 'train'" in wrong.output

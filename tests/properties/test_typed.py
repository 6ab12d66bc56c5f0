"""Study files, `--set`, `--seeds` and `--methods`: a study, or one message."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions, parse_seeds
from sweep.trials.cells import expand, manifest
from tests.properties.mutations import AWKWARD, SCALARS, damaged, mutated, places
from tests.sweep.tiny_study import TINY

KEYS = sorted({".".join(map(str, place)) for place in places(TINY)})
TEXT = yaml.safe_dump(TINY)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typed") / "tiny.yaml"


def load(file: Path, **options: Any) -> None:
    """What loads can also be planned, and described to those who read its results."""
    with contextlib.suppress(UserError):
        study = StudyOptions(str(file), **options).load()
        if len(study.seeds) < 1000:
            manifest(study, expand(study, {})).encoded()


@given(content=mutated(TINY))
@example(content={**TINY, "evaluation": {**TINY["evaluation"], "suite": []}})
def test_a_study_with_odd_values_is_refused_or_planned(file: Path, content: Any) -> None:
    try:
        file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    except (yaml.YAMLError, UnicodeError):
        return
    load(file)


@given(content=damaged(TEXT.encode()))
def test_a_damaged_study_file_is_refused_or_planned(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    load(file)


TAGS = ["!!bool", "!!int", "!!float", "!!set", "!!timestamp", "!!binary", "!!omap", "!!pairs", "!!python/tuple", "!x"]


@given(key=st.sampled_from(sorted(TINY)), tag=st.sampled_from(TAGS), value=st.text(max_size=12) | SCALARS)
@example(key="seeds", tag="!!int", value="")
@example(key="seeds", tag="!!set", value=[1])
@example(key="dataset", tag="!!binary", value="")
def test_a_yaml_tag_is_refused_or_planned(file: Path, key: str, tag: str, value: Any) -> None:
    content = copy.deepcopy(TINY)
    content[key] = "PLACE"
    written = value if isinstance(value, str) else json.dumps(value)
    file.write_text(yaml.safe_dump(content).replace("PLACE", f"{tag} {written}"), encoding="utf-8")
    load(file)


@given(
    settings=st.lists(
        st.builds(
            "{}{}{}".format,
            st.sampled_from(KEYS) | st.text(max_size=12),
            st.sampled_from(["=", "=", "=", "", "==", ".x="]),
            st.text(max_size=12) | st.sampled_from(AWKWARD) | SCALARS.map(str),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_setting_is_refused_or_planned(file: Path, settings: list[str]) -> None:
    file.write_text(TEXT)
    load(file, settings=settings)


@given(text=st.text(max_size=20) | st.text(alphabet="0123456789,- ", max_size=24))
@example(text="0-99999999")
@example(text="٣")
def test_seeds_are_refused_or_numbers(text: str) -> None:
    with contextlib.suppress(UserError):
        assert all(isinstance(seed, int) and seed >= 0 for seed in parse_seeds(text))


@given(text=st.text(max_size=20) | st.lists(st.sampled_from(["at", "sovr", "+awp", ""])).map(",".join))
def test_methods_are_refused_or_planned(file: Path, text: str) -> None:
    file.write_text(TEXT)
    load(file, methods=text)


@given(name=st.text(max_size=40) | st.sampled_from(AWKWARD))
@example(name="~0")
def test_a_study_of_any_name_is_refused_or_loaded(name: str) -> None:
    with contextlib.suppress(UserError):
        Study.load(name)

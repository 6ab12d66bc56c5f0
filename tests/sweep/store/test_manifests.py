"""A study's manifest keeps the columns that other runs of it have made."""

import json

import pytest

from sweep.store.encoding import BrokenRecord, NewerRecord, encode
from sweep.store.manifests import agree, united, write_manifest
from sweep.store.opening import open_store
from sweep.store.records.manifest import Manifest, PlannedCell
from tests import records

STUDY = {"dataset": "digits", "train": {"epochs": 2}, "methods": {}}


def planned(labels: str, seeds: tuple[int, ...], **changes) -> Manifest:
    cells = tuple(PlannedCell(label=label, method="at", seed=seed) for label in labels for seed in seeds)
    configs = {label: records.trial_config() for label in labels}
    facts = {"study": {**STUDY, "methods": {label: {} for label in labels}}, "config_by_label": configs}
    return records.manifest(cells=cells, seeds=seeds, **{**facts, **changes})


def of(manifest: Manifest) -> list[tuple[str, int]]:
    return [(cell.label, cell.seed) for cell in manifest.cells]


def test_other_methods_and_other_seeds_stay():
    both = united(planned("ab", (0, 1)), planned("bc", (2,)))
    assert of(both) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 2)]
    assert both.seeds == (0, 1, 2) and set(both.config_by_label) == set(both.study["methods"]) == set("abc")


def test_a_column_that_changed_and_a_study_that_changed_keep_nothing():
    other = {label: records.trial_config(test_images=7) for label in "b"}
    assert of(united(planned("b", (0, 1)), planned("b", (2,), config_by_label=other))) == [("b", 2)]
    longer = planned("b", (2,), study={**STUDY, "train": {"epochs": 3}})
    assert not agree(planned("a", (0,)), longer) and united(planned("a", (0,)), longer) == longer
    assert united(None, longer) == longer


def test_a_broken_manifest_is_written_anew_and_a_later_versions_is_not(tmp_path):
    store, manifest = open_store(tmp_path), planned("a", (0,))
    store.write(manifest.path, b"{")
    write_manifest(store, manifest)
    write_manifest(store, planned("b", (0,)))
    assert of(store.manifests()["small"]) == [("a", 0), ("b", 0)]
    later = encode({"kind": "study", "format": 2})
    store.write(manifest.path, later)
    with pytest.raises(NewerRecord):
        write_manifest(store, manifest)
    assert store.read(manifest.path) == later and not store.paths("leases")


def test_columns_that_share_recipe_and_selection_are_read_as_they_were_written():
    short = records.trial_config(recipe={"epochs": 3})
    manifest = planned(
        "abcd", (0,), config_by_label={label: short if label == "b" else records.trial_config() for label in "abcd"}
    )
    assert Manifest.decoded(manifest.path, manifest.encoded()) == manifest


@pytest.mark.parametrize("faulty", ["a", "b", "d"])
def test_a_faulty_recipe_is_refused_where_it_stands(faulty):
    manifest = planned("abcd", (0,))
    content = json.loads(manifest.encoded())
    content["config_by_label"][faulty]["recipe"]["epochs"] = 0
    del content["sha256"]
    with pytest.raises(BrokenRecord, match=f"config_by_label.{faulty}.recipe.epochs"):
        Manifest.decoded(manifest.path, encode(content))

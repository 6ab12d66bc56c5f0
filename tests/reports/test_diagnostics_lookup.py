"""Diagnostics of one trial under several settings: a study is shown those that it asked for."""

import pytest
from synthetic import write_store

from reports.store.load import load


@pytest.fixture
def data(tmp_path):
    store = write_store(tmp_path, search=False)
    found = load(store)
    study = next(iter(found.manifests))
    trial = found.cells.loc[found.cells["status"] == "done", "trial"].iloc[0]
    store.delete(f"diagnostics/{trial}/last.json")
    return store, study, trial


def write(store, trial, epsilon, images):
    record = {"kind": "diagnostics", "epsilon": epsilon, "images": images, "arrays": None}
    summary = {"images_train": float(images or 1000), "made_with": f"{epsilon} {images}"}
    name = f"last-{epsilon.replace('/', '_')}-{images or 'all'}"
    store.write_json(f"diagnostics/{trial}/{name}.json", {**record, "summary": summary})


def asked(store, study, epsilon, images):
    """The settings of a stored study's manifest, changed."""
    manifest = store.read_json(f"studies/{study}.json")
    settings = manifest.setdefault("study", {}).setdefault("evaluation", {})
    settings |= {"epsilon": epsilon, "images": images}
    store.write_json(f"studies/{study}.json", manifest)


def test_the_study_gets_the_settings_that_it_asks_for(data):
    store, study, trial = data
    for epsilon, images in (("8/255", None), ("8/255", 20), ("4/255", 20)):
        write(store, trial, epsilon, images)
    for epsilon, images in (("8/255", 20), ("4/255", 20), ("8/255", None)):
        asked(store, study, epsilon, images)
        assert load(store).diagnostics(trial, "last", study).summary["made_with"] == f"{epsilon} {images}"
        assert load(store).diagnostics(trial, "last").summary["made_with"] == f"{epsilon} {images}"


def test_without_them_it_gets_those_on_most_images(data):
    store, study, trial = data
    asked(store, study, "2/255", 7)
    for images in (10, 300, 20):
        write(store, trial, "8/255", images)
    assert load(store).diagnostics(trial, "last", study).summary["made_with"] == "8/255 300"


def test_a_broken_one_does_not_hide_the_others(data):
    store, study, trial = data
    write(store, trial, "8/255", 20)
    write(store, trial, "8/255", 10)
    store.write(f"diagnostics/{trial}/last-8_255-20.json", b"{")
    found = load(store)
    assert found.diagnostics(trial, "last", study).summary["made_with"] == "8/255 10"
    assert [problem.path for problem in found.problems] == [f"diagnostics/{trial}/last-8_255-20.json"]

"""Diagnostics of one trial under several settings: a study is shown those that it asked for."""

import pytest
from hand_made import add_diagnostics
from synthetic import write_store

from reports.store.load import load


@pytest.fixture
def data(tmp_path):
    store = write_store(tmp_path, search=False)
    found = load(store)
    study = next(iter(found.manifests))
    trial = found.cells.loc[found.cells["status"] == "done", "trial"].iloc[0]
    for path in store.paths(f"diagnostics/{trial}"):
        store.delete(path)
    return store, study, trial


def write(store, trial, epsilon, images):
    summary = {"images_train": float(images or 1000), "radius": float(epsilon[0])}
    return add_diagnostics(store, trial, summary, {}, epsilon=epsilon, images=images)


def asked(store, study, epsilon, images):
    """The settings of a stored study's manifest, changed."""
    settings = {"evaluation": {"epsilon": epsilon, "images": images}}
    store.write_record(store.manifest(study).model_copy(update={"study": settings}))


def shown(data, trial, *study):
    summary = data.diagnostics(trial, "last", *study).summary
    return summary["radius"], summary["images_train"]


def test_the_study_gets_the_settings_that_it_asks_for(data):
    store, study, trial = data
    for epsilon, images in (("8/255", None), ("8/255", 20), ("4/255", 20)):
        write(store, trial, epsilon, images)
    for epsilon, images in (("8/255", 20), ("4/255", 20), ("8/255", None)):
        asked(store, study, epsilon, images)
        expected = float(epsilon[0]), float(images or 1000)
        assert shown(load(store), trial, study) == shown(load(store), trial) == expected


def test_without_them_it_gets_those_on_most_images(data):
    store, study, trial = data
    asked(store, study, "2/255", 7)
    for images in (10, 300, 20):
        write(store, trial, "8/255", images)
    assert shown(load(store), trial, study) == (8.0, 300.0)


def test_a_broken_one_does_not_hide_the_others(data):
    store, study, trial = data
    broken = write(store, trial, "8/255", 20).path
    write(store, trial, "8/255", 10)
    store.write(broken, b"{")
    found = load(store)
    assert shown(found, trial, study) == (8.0, 10.0)
    assert [problem.path for problem in found.problems] == [broken]


def test_the_weights_of_an_epoch_are_found_by_its_number(data):
    store, study, trial = data
    write(store, trial, "8/255", None)
    for number, radius in ((100, "3/255"), (20, "2/255")):
        summary = {"images_train": 1000.0, "radius": float(radius[0])}
        add_diagnostics(store, trial, summary, {}, checkpoint=f"epoch-{number}", epsilon=radius)
    found = load(store)
    shown = {name: found.diagnostics(trial, name, study) for name in ("epoch-100", "epoch-20", "last", "epoch-1")}
    assert {name: one and one.summary["radius"] for name, one in shown.items()} == {
        "epoch-100": 3.0,
        "epoch-20": 2.0,
        "last": 8.0,
        "epoch-1": None,
    }

"""What would wait for ever or fail after hours is refused in seconds, with the way out."""

import shutil
from collections import namedtuple

import pytest
import torch

from sweep.cluster import preflight, resources
from sweep.cluster.gpus import examine_gpus
from sweep.cluster.preflight import NodeFacts, create_fault, disk_faults, node_faults, probe, resource_faults
from sweep.cluster.resources import TrialResources
from sweep.cluster.session import connected
from sweep.engine.options import RunOptions
from sweep.engine.run import run_study
from sweep.errors import UserError
from sweep.evaluation.checkpoints import data_set
from sweep.store.folder import FolderStore
from sweep.store.layout import PROGRESS, short, trial_file
from sweep.store.manifests import write_manifest
from sweep.store.opening import open_store
from sweep.store.records.trial import Progress
from sweep.studies.model import Study
from sweep.trials import disk
from sweep.trials.cells import expand, manifest, stored_trials
from sweep.work.node_check import examine
from sweep.work.pieces import Setting
from tests.own_files import SHELF, write_shelf
from tests.sweep import stored
from tests.sweep.tiny_study import tiny
from trainers.assembly import data_sha256
from trainers.dataset import DataMissing
from trainers.plugins import registry
from trainers.wrappers.ddpm import Ddpm

TWO_NODES = [{"CPU": 8.0, "GPU": 1.0, "memory": 32e9}, {"CPU": 8.0, "GPU": 2.0, "memory": 32e9}]


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (TrialResources(1, 1), True),
        (TrialResources(2, 8), True),
        (TrialResources(0.25, 1), True),
        (TrialResources(3, 1), False),  # three in the cluster, but no node has more than two
        (TrialResources(0, 9), False),
        (TrialResources(0, 1, 64 * 10**9), False),
    ],
)
def test_one_trial_must_fit_on_one_node(wanted, fits):
    faults = resource_faults(wanted, TWO_NODES)
    assert (faults == []) == fits
    assert fits or ("no node" in faults[0] and "--set resources" in faults[0])


def test_fractions_of_a_gpu_multiply_the_places():
    assert TrialResources(0.25, 1).fits(TWO_NODES[1]) == 8
    assert TrialResources(0.3, 0).fits({"GPU": 0.9}) == 3


@pytest.mark.parametrize(("share", "places"), [(0.15, 48), (0.3, 24), (0.1, 80), (0.5, 16), (0.6, 8), (1.0, 8)])
def test_a_share_is_of_one_gpu(share, places):
    assert TrialResources(share, 0).fits({"GPU": 8.0}) == places


@pytest.mark.parametrize(("gpus", "words"), [(8, "one trial uses one device"), (1e-5, "at least 0.0001")])
def test_what_no_trial_can_use_is_refused_before_anything_starts(tmp_path, gpus, words):
    with pytest.raises(UserError, match=f"resources.gpus = .*{words}"):
        tiny(tmp_path, resources={"gpus": gpus})


def test_a_cluster_that_scales_may_lack_the_node_that_a_study_asks_for(tmp_path, monkeypatch):
    cifar = Study.load("cifar10_rn18")
    monkeypatch.setattr(resources, "nodes", lambda: [{"Resources": {"CPU": 4.0}}])
    assert resources.choose(cifar).gpus == 0.0 and resources.choose(cifar, scales=True).gpus == 1.0
    assert resources.choose(tiny(tmp_path), scales=True).gpus == 0.0  # digits are for a CPU


class Careless(FolderStore):
    """As an S3 service that ignores If-None-Match."""

    def create(self, path, data):
        self.write(path, data)
        return True


def test_a_store_that_lets_two_writers_create_one_file_is_found(tmp_path):
    assert create_fault(open_store(tmp_path), "preflight/mark") is None
    fault = create_fault(Careless(tmp_path), "preflight/other")
    assert "let 9 writers create one file" in fault and "If-None-Match" in fault


def test_a_gpu_that_torch_cannot_use_is_told_with_the_build_the_driver_and_the_way_out():
    fault = examine_gpus(1.0).fault if not torch.cuda.is_available() else pytest.skip("needs a machine without GPUs")
    assert f"torch {torch.__version__}" in fault and "NVIDIA driver" in fault and "resources.gpus=0" in fault


def test_other_versions_on_a_node_are_named_with_both_sides():
    here = NodeFacts("head", {"torch": "2.13.0", "python": "3.11"})
    same = NodeFacts("a", {"torch": "2.13.0", "python": "3.11"})
    other = NodeFacts("b", {"torch": "2.12.1", "python": "3.11"})
    assert node_faults([here, same]) == []
    (fault,) = node_faults([here, same, other])
    assert "node b" in fault and "torch 2.12.1 (here 2.13.0)" in fault


def test_a_store_that_another_node_sees_differently_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    facts = probe(str(tmp_path / "elsewhere"), "preflight/mark", "digits", str(tmp_path), ())
    assert "not the same folder" in facts.store
    assert "node" in node_faults([NodeFacts("head", facts.versions), facts])[0]


def test_missing_data_is_refused_with_the_place(tmp_path):
    open_store(tmp_path).write("preflight/mark", b"")
    facts = probe(str(tmp_path), "preflight/mark", "cifar10", str(tmp_path / "data"), ())
    assert facts.store is None and str(tmp_path / "data") in facts.data


def test_too_little_disk_is_refused_with_both_amounts(tmp_path, monkeypatch):
    study, store = tiny(tmp_path), open_store(tmp_path / "store")
    assert disk_faults(study, store, 2) == []
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 10**6))
    (fault,) = disk_faults(study, store, 2)
    assert "1.0 MB free" in fault and "python -m sweep.gc" in fault


def test_planned_sizes_cover_the_real_networks():
    config = Study.load("cifar10_seat").config("at+seat")
    assert disk.trial_bytes(config) > 2 * 46_160_474 * 4  # the parameters of two checkpoints
    assert disk.resume_bytes(config) == 3 * disk.trial_bytes(config)  # weights, momentum and average, old and new


def test_an_unwritable_store_is_refused(tmp_path, monkeypatch):
    store = open_store(tmp_path)

    def refuse(path, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "write", refuse)
    monkeypatch.setattr(preflight, "nodes", lambda: [])
    with pytest.raises(UserError, match="not writable"):
        preflight.check(tiny(tmp_path), store, TrialResources(0, 1), tmp_path)


@pytest.mark.timeout(120)
def test_an_impossible_gpu_request_is_refused_and_leaves_nothing_behind(tmp_path):
    study = tiny(tmp_path, resources={"gpus": 1, "cpus": 640})
    with pytest.raises(UserError, match="1 GPU \\+ 640 CPU.* no node"):
        run_study(study, open_store(tmp_path / "store"), RunOptions(data_dir=tmp_path, out=None))
    assert not open_store(tmp_path / "store").paths("preflight")


@pytest.fixture
def shelf(tmp_path):
    """Two folders with other images under one data set's name."""
    write_shelf(tmp_path)
    yield registry.load_plugin(tmp_path / "shelf.py")
    registry.forget("shelf")


def probed(tmp_path, folder, **more):
    store = open_store(tmp_path / "store")
    store.write("preflight/mark", b"")
    return probe(store.uri, "preflight/mark", "shelf", str(tmp_path / folder), **more)


def test_a_node_with_other_data_is_refused_with_both_hashes(tmp_path, shelf):
    here, same, other = (probed(tmp_path, folder) for folder in ("data", "data", "other"))
    assert node_faults([here, same]) == []
    (fault,) = node_faults([here, same, other])
    known, found = (facts.sha256["shelf"][:16] for facts in (here, other))
    assert f"has other data under the name 'shelf' (sha256 {found}…, the driver's has {known}…); give every" in fault


def test_a_worker_with_other_data_gets_no_work_until_it_has_the_driver_s(tmp_path, shelf):
    synthetic = Ddpm(file="made.npz")
    for folder, content in (("data", b"one"), ("other", b"two")):
        (tmp_path / folder / "made.npz").write_bytes(content)
    store = open_store(tmp_path / "store")
    driver = data_sha256(data_set("shelf", str(tmp_path / "data")), [synthetic], tmp_path / "data")

    def fault(folder, **more):
        setting = Setting(store.uri, str(tmp_path / folder), dataset="shelf", data=driver, **more)
        return examine(setting, 0.0, store).fault

    assert fault("data", wrappers=(synthetic,)) is None
    assert "under the name 'shelf' (sha256 " in fault("other")
    shutil.copy(tmp_path / "data" / "bars.npy", tmp_path / "other")
    assert fault("other") is None
    assert "under the name 'made.npz' (sha256 " in fault("other", wrappers=(synthetic,))


def test_other_data_than_those_of_finished_trials_end_the_sweep_before_it_trains(tmp_path, shelf):
    study = tiny(tmp_path, dataset="shelf", train_images=None, test_images=None)
    store, (cell, *others) = open_store(tmp_path / "store"), expand(study)
    known, here = (data_set("shelf", str(tmp_path / name)).sha256 for name in ("data", "other"))
    wanted = (study, store, TrialResources(0, 1))
    with connected(None):
        assert preflight.check(*wanted, tmp_path / "data").data == {"shelf": known}
        stored.write_trial(store, cell)  # as older versions wrote it
        assert preflight.check(*wanted, tmp_path / "other").data == {"shelf": here}
        stored.write_trial(store, cell, data={"shelf": known})
        stored.write_trial(store, others[0], data={"shelf": known})
        assert preflight.check(*wanted, tmp_path / "data").data == {"shelf": known}
        # A run of other methods and seeds adds to the same tables.
        write_manifest(store, manifest(study, [cell, *others]))
        one = tiny(tmp_path, dataset="shelf", train_images=None, test_images=None, methods={"st": {}}, search=None)
        for asked in (study, one):
            with pytest.raises(UserError) as refused:
                preflight.check(asked, *wanted[1:], tmp_path / "other")
            (line,) = str(refused.value).splitlines()[1:]
            assert f"'shelf' in {tmp_path / 'other'} is not the one that trial {short(cell.trial)} was trained" in line
            assert f"expects sha256 {known[:16]}…, this one has {here[:16]}…" in line
            assert "--data-dir, or begin anew in another --store" in line
    assert not store.paths("preflight")


def test_a_training_that_was_cut_off_is_not_begun_anew_on_other_data(tmp_path, shelf):
    study = tiny(tmp_path, dataset="shelf", train_images=None, test_images=None, search=None)
    store, (cell, *_) = open_store(tmp_path / "store"), expand(study)
    known = data_set("shelf", str(tmp_path / "data")).sha256
    facts = {"trial": cell.trial, "label": cell.label, "seed": 0, "epoch": 1, "epochs": 2, "started": 0, "updated": 0}
    note = Progress(**facts, host="here", pid=1, data={"shelf": known})
    store.write(trial_file(cell.trial, PROGRESS), note.model_dump_json().encode())
    with connected(None):
        assert preflight.check(study, store, TrialResources(0, 1), tmp_path / "data").data == {"shelf": known}
        with pytest.raises(UserError, match=f"is not the one that trial {short(cell.trial)} was trained on"):
            preflight.check(study, store, TrialResources(0, 1), tmp_path / "other")


def test_trials_that_no_table_will_show_beside_these_do_not_say_which_data_they_need(tmp_path, shelf):
    kept = {"dataset": "shelf", "train_images": None, "test_images": None, "search": None}
    study, store = tiny(tmp_path, **kept), open_store(tmp_path / "store")
    cells = expand(study)
    for cell in cells:
        stored.write_trial(store, cell, data={"shelf": "f" * 64})
    write_manifest(store, manifest(study, cells))
    assert set(stored_trials(study, store)) == {cell.trial for cell in cells}
    longer = Study.load(str(tmp_path / "tiny.yaml"), overrides=["train.epochs=9"])
    assert set(stored_trials(longer, store)).isdisjoint(cell.trial for cell in cells)


def test_data_whose_code_raises_is_told_as_what_it_is(tmp_path, shelf):
    registry.forget("shelf")
    registry.load_source("shelf", SHELF.replace("np.load(", "int("))
    assert "data set 'shelf' does not load: TypeError: " in probed(tmp_path, "data").data


def test_synthetic_images_that_are_missing_are_told_before_anything_is_trained(tmp_path):
    store = open_store(tmp_path)
    store.write("preflight/mark", b"driver")
    facts = probe(str(tmp_path), "preflight/mark", "digits", str(tmp_path / "data"), [Ddpm(file="made.npz")])
    assert facts.store is None and facts.data is not None and "made.npz" in facts.data
    with pytest.raises(DataMissing, match="synthetic training images not found: looked for .*made.npz; provide an"):
        Ddpm(file="made.npz").data_sha256(tmp_path)

"""transfer: counterexamples on other models, each tried once; tables show what nobody broke."""

import json
import shutil

import numpy as np
import pytest

from benchmarks import _in_process
from reports.analysis.results import Results
from reports.tables.document import write
from reports.tables.study import study_tables
from sweep import cli
from sweep.evaluation import transferring
from sweep.evaluation.checkpoints import trial_parts
from sweep.store.merging import Merge
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord
from sweep.store.records.transfer import TransferRecord
from sweep.store.verdicts import pack, unpack
from sweep.store.verification import Verification
from tests.sweep.tiny_study import tiny
from trainers.attacks.scoring.counterexample_file import decoded
from trainers.attacks.scoring.counterexamples import images_of
from trainers.attacks.scoring.scorer import pixels

IMAGES = 24


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two columns of two seeds, attacked by PGD and by a part of AutoAttack under AutoAttack's name."""
    folder = tmp_path_factory.mktemp("trained")
    attacks = {"attacks": ["clean", "pgd-5", "apgd-ce"], "epsilon": "0.1", "images": IMAGES}
    store = open_store(folder / "store")
    _in_process.run(tiny(folder, methods={"at": {}, "st": {}}, search=None, evaluation=attacks), store)
    return store


@pytest.fixture
def store(trained, tmp_path):
    shutil.copytree(trained.root, tmp_path / "store")
    return open_store(tmp_path / "store")


def transfer(store, capsys, *options):
    with pytest.raises(SystemExit) as ended:
        cli.main(["transfer", "--store", store.uri, *options])
    assert ended.value.code == 0
    return capsys.readouterr().out


def transfers(store):
    return list(store.records(TransferRecord, store.record_paths(TransferRecord)))


def evaluations(store):
    return list(store.records(EvaluationRecord, store.record_paths(EvaluationRecord)))


def test_every_counterexample_is_tried_on_every_other_model(store, capsys):
    said = transfer(store, capsys)
    found = transfers(store)
    assert len(found) == 4 and "counterexamples of  ST" in said
    kept = {(one.trial, one.path.rpartition("/")[2][:-5]): one for one in evaluations(store) if one.counterexamples}
    some = 0
    for record in found:
        assert {(one.trial, one.attack) for one in record.transfers} == {key for key in kept if key[0] != record.trial}
        model, images, labels = trial_parts(store.uri, record.trial, record.checkpoint, None, "cpu")
        right = (model(pixels(images[:IMAGES], "cpu")).argmax(dim=1) == labels[:IMAGES]).numpy()
        for one in record.transfers:
            source = kept[one.trial, one.attack]
            rows = decoded(store.read(source.counterexamples_path), IMAGES, 64)
            where = rows.indices.astype(np.int64)
            shown = images_of(rows, np.arange(len(rows)), pixels(images[where], "cpu"))
            wrong = (model(shown).argmax(dim=1) != labels[where]).numpy()
            expected = np.zeros(IMAGES, bool)
            expected[where] = wrong & right[where]
            assert np.array_equal(one.fooled_images, expected) and one.right == right.sum()
            some += expected.sum()
    assert some >= 3


def test_what_was_tried_is_not_tried_again_and_what_is_new_is(store, capsys, monkeypatch):
    first = transfer(store, capsys, "--study", "tiny")
    before = {path: store.read(path) for path in store.paths()}
    opened = []
    original = transferring.open_model
    monkeypatch.setattr(
        transferring, "open_model", lambda *arguments: opened.append(arguments[1]) or original(*arguments)
    )
    assert transfer(store, capsys, "--study", "tiny") == first
    assert not opened and {path: store.read(path) for path in store.paths()} == before
    changed = next(one for one in transfers(store))
    store.write_record(changed.model_copy(update={"transfers": changed.transfers[1:]}))
    assert transfer(store, capsys, "--study", "tiny") == first and opened == [changed.trial]
    assert [one.transfers for one in transfers(store)] == [
        TransferRecord.decoded(path, data).transfers
        for path, data in sorted(before.items())
        if path.startswith("transf")
    ]


def test_other_weights_are_tried_anew(store, capsys):
    transfer(store, capsys)
    stale = transfers(store)[0].model_copy(update={"weights": "0" * 64})
    store.write_record(stale)
    assert Results.read(store, ["tiny"]).data.transfers(stale.trial[:16], stale.checkpoint, "linf", "0.1") is None
    transfer(store, capsys)
    assert {one.weights for one in transfers(store)}.isdisjoint({"0" * 64})


def as_autoattack(store):
    """What apgd-ce found under the name of all of AutoAttack, and for one model too good a number."""
    for record in evaluations(store):
        if record.attack["name"] == "apgd-ce":
            attack = {**record.attack, "name": "autoattack"}
            store.write_record(record.model_copy(update={"attack": attack, "counterexamples": None}))


def test_tables_show_what_nobody_broke(store, capsys):
    as_autoattack(store)
    transfer(store, capsys)
    chosen = transfers(store)[0]
    record = next(one for one in evaluations(store) if one.attack["name"] == "autoattack" and one.trial == chosen.trial)
    # As if AutoAttack had been misled on every image that the others' counterexamples break.
    clean = unpack(record.clean, IMAGES)
    store.write_record(
        record.model_copy(update={"verdicts": record.clean, "accuracy": float(clean.mean()), "phases": {}})
    )
    results = Results.read(store, ["tiny"])
    tables = study_tables(results, "tiny")
    rows = {row.header: row for row in tables[0].blocks[0].rows}
    labels = list(results.labels["tiny"])
    (label,) = [
        one for one in labels if any(chosen.trial.startswith(each.trial) for each in results.seeds("tiny", one))
    ]
    cell = rows["Worst known"].cells[labels.index(label)]
    own = np.logical_and.reduce([one.survivors for one in evaluations(store) if one.trial == chosen.trial])
    known = own & ~np.logical_or.reduce([one.fooled_images for one in chosen.transfers])
    place = next(
        number
        for number, one in enumerate(sorted(results.seeds("tiny", label), key=lambda one: one.seed))
        if chosen.trial.startswith(one.trial)
    )
    assert cell.sample.values[place] == pytest.approx(100 * known.mean())
    fallen = int((clean & ~known).sum())
    # The column's other seed may have lost some images to transfers too.
    assert fallen >= 1 and cell.rounding.fallen >= fallen and cell.text.endswith(f"({cell.rounding.fallen} fell)")
    text = write(results, {"tiny": tables}, [])
    assert "who breaks whom" in text.lower() and "Worst known:" in text
    found = json.loads(transfer(store, capsys, "--json"))
    models = found["studies"]["tiny"]["models"]
    assert any(one["fallen"] == fallen for seeds in models.values() for one in seeds.values())


def test_without_transfers_tables_are_what_they_were(store):
    tables = study_tables(Results.read(store, ["tiny"]), "tiny")
    assert all(row.header != "Worst known" for row in tables[0].blocks[0].rows)
    assert all("transfers" not in table.name for table in tables)


def test_absent_weights_and_damaged_counterexamples_are_left_out_with_a_reason(store, capsys):
    record = next(one for one in evaluations(store) if one.counterexamples)
    store.write(record.counterexamples_path, b"damaged")
    other = next(one for one in evaluations(store) if one.trial != record.trial)
    (store.root / "trials" / other.trial[:16] / f"{other.checkpoint}.safetensors").unlink()
    said = transfer(store, capsys)
    assert f"left out: counterexamples {record.counterexamples_path}: not the file that was written" in said
    assert f"left out: {other.trial[:16]} {other.checkpoint}: weights" in said and len(transfers(store)) == 3


def test_merge_unites_them_and_verify_store_checks_them(store, capsys, tmp_path):
    transfer(store, capsys)
    other = open_store(shutil.copytree(store.root, tmp_path / "other"))
    record = transfers(store)[0]
    store.write_record(record.model_copy(update={"transfers": record.transfers[:1]}))
    other.write_record(record.model_copy(update={"transfers": record.transfers[1:]}))
    Merge(store, [other]).write()
    assert store.record(TransferRecord, record.path).transfers == record.transfers
    store.write(record.path, store.read(record.path).replace(b'"right":', b'"wrong":'))
    verification = Verification(store)
    assert [one.path for one in verification.findings] == [record.path]
    assert verification.commands(verification.findings) == [f"python -m sweep.transfer --store {store.uri}"]


def test_an_image_that_was_not_tried_cannot_have_fallen():
    from sweep.store.records.transfer import Transfer

    bits = pack(np.array([True, False]))
    with pytest.raises(ValueError, match="images fell that were not tried"):
        Transfer(
            trial="a",
            checkpoint="last",
            attack="x",
            sha256="0" * 64,
            images=2,
            right=2,
            tried=pack(np.zeros(2, bool)),
            fooled=bits,
        )


def verify(store, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--store", store.uri])
    return ended.value.code, capsys.readouterr().out


def test_verify_tries_them_again_and_finds_one_that_was_changed(store, capsys):
    transfer(store, capsys)
    record = next(one for one in transfers(store) if any(each.fooled_images.any() for each in one.transfers))
    kept = sum(int(one.fooled_images.sum()) for one in record.transfers)
    code, said = verify(store, capsys)
    assert code == 0 and f"Transfers (ε=0.1): {kept} of {kept} counterexamples of other models confirmed" in said
    place = next(number for number, one in enumerate(record.transfers) if one.fooled_images.any())
    fooled = record.transfers[place].fooled_images
    fooled[np.flatnonzero(fooled)[0]] = False
    changed = [*record.transfers]
    changed[place] = changed[place].model_copy(update={"fooled": pack(fooled)})
    store.write_record(record.model_copy(update={"transfers": tuple(changed)}))
    code, said = verify(store, capsys)
    assert code == 1 and "1 verdicts on counterexamples of" in said and "1 failed" in said

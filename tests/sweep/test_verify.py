"""verify: an honest store is confirmed by forward passes alone; whatever was changed in it is found."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load, save

from benchmarks import _in_process
from sweep import cli
from sweep.store import layout
from sweep.store.opening import open_store
from sweep.store.records.evaluation import EvaluationRecord, KeptFile
from sweep.store.verdicts import pack, unpack
from tests.sweep.tiny_study import tiny
from trainers.attacks.scoring.counterexample_file import SIGNS, Counterexamples, decoded

IMAGES = 30


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A store with a trained network, and its record under PGD."""
    folder = tmp_path_factory.mktemp("honest")
    attacks = {"attacks": ["clean", "pgd-5", "apgd-ce"], "epsilon": "0.1", "images": IMAGES}
    store = open_store(folder / "store")
    _in_process.run(tiny(folder, seeds=[0], methods={"at": {}}, search=None, evaluation=attacks), store)
    return store


@pytest.fixture
def store(honest, tmp_path):
    shutil.copytree(honest.root, tmp_path / "store")
    return open_store(tmp_path / "store")


def verify(store, capsys, *options):
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--store", store.uri, *options])
    return ended.value.code, capsys.readouterr().out


def evaluation(store, name="pgd-5"):
    paths = store.record_paths(EvaluationRecord)
    return next(one for one in store.records(EvaluationRecord, paths) if one.attack["name"] == name)


def counterexamples(store, record):
    return decoded(store.read(record.counterexamples_path), IMAGES, 64)


def put_back(store, record, kept: Counterexamples, **changes):
    """With every checksum made right again."""
    content = kept.encoded()
    sha256 = hashlib.sha256(content).hexdigest()
    store.write(record.counterexamples_path, content)
    file = KeptFile(sha256=sha256, bytes=len(content), count=len(kept))
    store.write_record(record.model_copy(update={"counterexamples": file, **changes}))


def test_an_honest_store_is_confirmed(store, capsys):
    code, said = verify(store, capsys)
    record = evaluation(store)
    kept = record.counterexamples.count
    assert code == 0 and kept >= 3
    percent = f"{100 * record.accuracy:.1f} %"
    assert "tiny: AT seed 0, best_validation" in said
    assert (
        f"PGD-5 {percent} (ε=0.1, {IMAGES} images): {kept} of {kept} counterexamples confirmed; "
        f"at most {percent} robust; the rest was not broken by PGD-5"
    ) in said
    clean = evaluation(store, "clean")
    assert f"Clean {100 * clean.accuracy:.1f} % ({IMAGES} images): confirmed" in said
    assert said.endswith("3 checks: 3 confirmed\n")


def test_programs_get_json(store, capsys):
    code, said = verify(store, capsys, "--json", "--study", "tiny")
    found = json.loads(said)
    assert code == 0 and [one["status"] for one in found["evaluations"]] == ["confirmed"] * 3
    assert {one["attack"]: one["bound"] == pytest.approx(one["accuracy"]) for one in found["evaluations"]} == {
        "clean": True,
        "pgd-5": True,
        "apgd-ce": True,
    }


def moved_out_of_the_ball(kept):
    scales = kept.scales.copy()
    scales[0] *= 1.01
    return Counterexamples(**{**vars(kept), "scales": scales})


def one_pixel(kept):
    """In the middle of the first image that is kept as signs; it stays in the ball."""
    signs = kept.signs.copy()
    signs[0, 3] ^= 0b00010000
    return Counterexamples(**{**vars(kept), "signs": signs})


def one_left_out(kept):
    rows = np.arange(len(kept)) > 0
    assert kept.levels[0] == SIGNS
    return Counterexamples(
        **{**vars(kept), "signs": kept.signs[1:]}
        | {name: getattr(kept, name)[rows] for name in ("indices", "levels", "scales", "margins")}
    )


@pytest.mark.parametrize(
    ("change", "said_of_it"),
    [
        (moved_out_of_the_ball, "1 counterexamples lie outside of the ball or of [0, 1]"),
        (one_pixel, "1 counterexamples fool the model by another margin than was recorded"),
        (one_left_out, "1 images fell without a counterexample"),
    ],
)
def test_one_changed_counterexample_is_found_though_all_checksums_are_right(store, capsys, change, said_of_it):
    record = evaluation(store)
    put_back(store, record, change(counterexamples(store, record)))
    code, said = verify(store, capsys)
    assert code == 1 and f"FAILED: {said_of_it}" in said and "2 confirmed, 1 failed" in said
    kept = record.counterexamples.count
    assert f"{kept - 1} of" in said and f"at most {100 * (record.accuracy + 1 / IMAGES):.1f} % robust" in said


def test_a_damaged_file_is_found(store, capsys):
    record = evaluation(store)
    store.write(record.counterexamples_path, b"something else")
    code, said = verify(store, capsys)
    assert code == 1 and "FAILED: counterexamples evaluations/" in said and "not the file that was written" in said


@pytest.mark.parametrize("towards", ["robust", "broken", "clean"])
def test_one_changed_verdict_is_found_though_the_checksum_is_right(store, capsys, towards):
    record = evaluation(store)
    verdicts, clean = record.survivors, unpack(record.clean, IMAGES)
    if towards == "clean":
        clean[np.flatnonzero(clean & verdicts)[0]] = False
        verdicts &= clean
    else:
        where = np.flatnonzero(clean & (verdicts if towards == "broken" else ~verdicts))[0]
        verdicts[where] = towards == "robust"
    changes = {"verdicts": pack(verdicts), "clean": pack(clean), "accuracy": float(verdicts.mean())}
    store.write_record(record.model_copy(update=changes))
    code, said = verify(store, capsys)
    expected = {
        "robust": "1 counterexamples are of images that did not fall, or were wrong when clean",
        "broken": "1 images fell without a counterexample",
        "clean": "its clean verdicts on 1 images are not those of the weights",
    }
    assert code == 1 and f"FAILED: {expected[towards]}" in said


@pytest.mark.parametrize("name", ["pgd-5", "apgd-ce"])
def test_an_image_that_is_wrong_when_clean_proves_no_robustness(store, capsys, name):
    """PGD may turn such an image right by chance, which is no contradiction; AutoAttack never attacks it."""
    record = evaluation(store, name)
    verdicts = record.survivors
    verdicts[np.flatnonzero(~unpack(record.clean, IMAGES))[0]] = True
    store.write_record(record.model_copy(update={"verdicts": pack(verdicts), "accuracy": float(verdicts.mean())}))
    code, said = verify(store, capsys)
    if name == "pgd-5":
        assert code == 0 and "1 images that are wrong when clean count as robust" in said
        assert f"at most {100 * (verdicts.sum() - 1) / IMAGES:.1f} % robust" in said
    else:
        assert code == 1 and "FAILED: its verdicts are not those after its last phase" in said


@pytest.mark.parametrize("checksum", ["left", "made right"])
def test_one_changed_weight_is_found(store, capsys, checksum):
    record = evaluation(store)
    path = layout.weights(record.trial, record.checkpoint)
    tensors = load(store.read(path))
    tensors["fc2.weight"][3, 5] += 0.01
    store.write(path, save(tensors))
    if checksum == "made right":
        trial = store.trial_record(record.trial)
        sha256 = hashlib.sha256(store.read(path)).hexdigest()
        kept = {
            **trial.checkpoints,
            record.checkpoint: trial.checkpoints[record.checkpoint].model_copy(update={"sha256": sha256}),
        }
        store.write_record(trial.model_copy(update={"checkpoints": kept}))
    code, said = verify(store, capsys)
    expected = "not the file that was written" if checksum == "left" else "by another margin than was recorded"
    assert code == 1 and expected in said


@pytest.mark.parametrize("absent", ["weights", "counterexamples", "kept none"])
def test_what_is_absent_is_said_and_is_no_failure(store, capsys, absent):
    record = evaluation(store)
    if absent == "weights":
        store.delete(layout.weights(record.trial, record.checkpoint))
    elif absent == "counterexamples":
        store.delete(record.counterexamples_path)
    else:
        store.write_record(record.model_copy(update={"counterexamples": None}))
    code, said = verify(store, capsys)
    expected = {
        "weights": "NOT VERIFIED: weights trials/",
        "counterexamples": "NOT VERIFIED: counterexamples evaluations/",
        "kept none": "NOT VERIFIED: it kept no counterexamples; of its numbers only the clean accuracy",
    }
    assert code == 0 and expected[absent] in said and "not verified" in said.splitlines()[-1]


def test_a_broken_record_fails(store, capsys):
    record = evaluation(store)
    store.write(record.path, store.read(record.path).replace(b'"images":30', b'"images":31'))
    code, said = verify(store, capsys)
    assert code == 1 and f"FAILED: broken record {record.path}: its checksum" in said


def test_other_data_are_no_proof(store, capsys):
    record = evaluation(store)
    trial = store.trial_record(record.trial)
    store.write_record(trial.model_copy(update={"data": {"digits": "0" * 64}}))
    code, said = verify(store, capsys)
    assert code == 1 and "FAILED: trained on data 'digits' of sha256 0000000000000000…" in said


def test_a_trial_under_another_configuration_is_found(store, capsys):
    trial = store.trial_record(evaluation(store).trial)
    store.write_record(trial.model_copy(update={"config": trial.config.model_copy(update={"seed": 7})}))
    code, said = verify(store, capsys)
    assert code == 1 and "the trial's name is not that of its configuration" in said


def test_code_of_a_store_is_not_run(store, capsys, tmp_path):
    """A network that only its author knows is not looked for, wherever its name points."""
    mark = tmp_path / "ran"
    (tmp_path / "net.py").write_text(f"open({str(mark)!r}, 'w').write('x')\ndef build(): ...\n")
    trial = store.trial_record(evaluation(store).trial)
    config = trial.config.model_copy(update={"model": f"{tmp_path}/net.py:build"})
    store.write_record(trial.model_copy(update={"config": config}))
    code, said = verify(store, capsys)
    assert code == 0 and "a model of its user's own" in said and not mark.exists()


def test_odd_words_of_a_record_are_no_traceback(store, capsys):
    """Whatever an author wrote where only a hash of it is checked."""
    record = evaluation(store, "apgd-ce")
    odd = {"components": [["apgd-ce"], 5, {}], "norm": "l7", "images": "all"}
    for key, value in odd.items():
        changed = record.model_copy(update={"attack": {**record.attack, key: value}})
        store.write_record(changed)
    code, said = verify(store, capsys)
    assert code == 1 and "its norm is 'l7'" in said and "images 'all' are not among" in said


def test_a_number_without_a_ball_is_not_shown_as_robustness(store, capsys):
    """Under an attack's name with radius zero the clean accuracy is all that there is."""
    record = evaluation(store, "clean")
    attack = {**record.attack, "name": "autoattack", "kind": "autoattack"}
    store.write_record(record.model_copy(update={"attack": attack}))
    _, said = verify(store, capsys)
    assert f"AutoAttack {100 * record.accuracy:.1f} % (ε=0, {IMAGES} images): confirmed\n" in said


@pytest.mark.parametrize("command", ["verify", "transfer"])
def test_an_unknown_device_is_one_message(store, capsys, command):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--store", store.uri, "--device", "gpu"])
    assert ended.value.code == 2 and "--device 'gpu' cannot be used" in capsys.readouterr().err


def test_an_unknown_study_is_one_message(store, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--store", store.uri, "--study", "tini"])
    assert ended.value.code == 2 and "study 'tini' is not in" in capsys.readouterr().err

"""A stored file becomes a row: the curve is cut before parsing, and verdicts are counted as text."""

import base64

import numpy as np
import pytest
from hand_made import add_study, new_store

from reports.store.load import load
from reports.store.rows import Problem, count_survivors, parse, parse_trial, trial_row
from sweep.store.encoding import encode

FLAT = [{"epoch": epoch, "train_loss": epoch / 7} for epoch in range(5)]


def test_of_a_flat_curve_only_the_last_row_is_parsed():
    data = encode({"kind": "trial", "config": {"seed": 3}, "curve": FLAT, "status": "done"})
    assert parse_trial(data) == {**parse(data), "curve": FLAT[-1:]}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"curve": []},
        {"curve": FLAT[:1]},
        {"curve": None},
        {"curve": [1, 2]},
        {"curve": [[{"epoch": 0}], [{"epoch": 1}]]},
        {"curve": [{"epoch": 0, "parts": {"a": 1}}, {"epoch": 1, "parts": {"b": 2}}]},
        {"curve": [{"epoch": 0, "parts": [{"a": 1}]}, {"epoch": 1, "parts": [{"b": 2}, {"c": 3}]}]},
        {"curve": [{"note": "a ] and a }] and a {"}, {"note": "{[]}"}, {"note": "},{"}]},
        {"config": {"curve": FLAT}},
        {"config": {"curve": FLAT}, "curve": []},
        {"config": {"curve": FLAT}, "curve": FLAT[:1]},
        {"config": {"curve": FLAT}, "curve": FLAT},
        {"curve": FLAT, "metrics": {"curve": FLAT}},
        {"config": {"name": '"curve":[{'}, "curve": FLAT},
    ],
)
def test_no_other_form_of_curve_loses_anything_but_earlier_rows(record):
    data = encode(record)
    cut, whole = parse_trial(data), parse(data)
    last = (whole.pop("curve", None) or [None])[-1]
    assert (cut.pop("curve", None) or [None])[-1] == last
    assert cut == whole


def test_an_edited_curve_is_noticed_though_it_is_not_parsed():
    record = {"kind": "trial", "trial": "ab" * 32, "status": "done", "curve": FLAT}
    path, data = f"trials/{'ab' * 8}/record.json", encode(record)
    assert trial_row(path, data)["last_epoch"] == FLAT[-1]
    edited = data.replace(b'"epoch":1,', b'"epoch":9,')
    assert edited != data and trial_row(path, edited) == Problem(path, "its checksum does not match its content")


@pytest.mark.parametrize("images", [1, 7, 8, 9, 16, 17, 24, 1000, 10_000])
def test_survivors_are_counted_for_any_number_of_images(images):
    bits = np.random.default_rng(images).random((3, images)) < [[0.5], [0.0], [1.0]]
    texts = [base64.b64encode(np.packbits(row).tobytes()).decode() for row in bits]
    assert count_survivors(texts, images) == bits.sum(axis=1).tolist()


@pytest.mark.parametrize("text", ["////", "/===", "/w", "/w=", "/w===", "", "/=/=", "/é==", "/ ==", "/-=="])
def test_text_that_is_not_the_base64_of_so_many_images_is_refused(text):
    assert count_survivors(["/w=="], 8) == [8]
    with pytest.raises(ValueError, match="verdicts"):
        count_survivors(["/w==", text], 8)


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    store = new_store(tmp_path)
    trials = add_study(store, "one", {"at": [0.48]})
    path = f"trials/{trials['at', 0][:16]}/record.json"
    (store.root / path).unlink()
    (store.root / path).mkdir()
    assert load(store).problems == [Problem(path, "Is a directory")]

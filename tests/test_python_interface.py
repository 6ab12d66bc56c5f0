"""The interface for Python programs: frames of a store, a live model under attack, a comparison, and its example."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import robustsweep
from reports.export import results_frame
from tests.reports.hand_made import QuickStore, add_study
from tests.trainers.tiny import tiny_problem

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> robustsweep.Frames:
    store = QuickStore(tmp_path_factory.mktemp("frames"))
    hyperparameters = {"sovr": {"M": 40, "lam": 0.4}, "trades": {"beta": 6.0}}
    accuracies = {"at": [0.40, 0.41, 0.42], "sovr": [0.50, 0.51, 0.52], "trades": [0.45, None, None]}
    add_study(store, "small", accuracies, hyperparameters=hyperparameters)
    return robustsweep.load(store.root)


def test_importing_it_loads_nothing_heavy():
    code = "import sys, robustsweep; dir(robustsweep); print({'torch', 'ray', 'pandas', 'optuna'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    with pytest.raises(AttributeError, match="it has: .*evaluate"):
        robustsweep.absent  # noqa: B018


def test_cells_have_hyperparameters_as_columns(found):
    assert " cells, " in repr(found)
    cells = found.cells.set_index(["label", "seed"])
    assert cells.loc[("sovr", 1), "hyperparameter_M"] == 40 and cells.loc[("trades", 0), "hyperparameter_beta"] == 6
    assert cells["hyperparameter_lam"].isna().sum() == 6 and cells.loc[("trades", 1), "status"] == "missing"


def test_evaluations_have_the_radius_as_text_and_number_and_can_be_written(found, tmp_path):
    frame = found.evaluations
    attacked = frame[frame["attack"] == "autoattack"]
    assert set(attacked["epsilon"]) == {"8/255"} and set(attacked["norm"]) == {"linf"}
    assert attacked["epsilon_value"].unique() == pytest.approx([8 / 255])
    assert set(attacked["hyperparameter_M"].dropna()) == {40}
    results_frame(found.data).to_parquet(tmp_path / "all.parquet")


def test_curves_and_verdicts_are_long_frames(found):
    curves = found.curves(label="at")
    assert len(curves) == 6 and list(curves["epoch"]) == [0, 1] * 3 and set(curves["seed"]) == {0, 1, 2}
    verdicts = found.verdicts("autoattack", label="sovr")
    assert len(verdicts) == 3000 and list(verdicts["image"][:3]) == [0, 1, 2]
    by_seed = verdicts.groupby("seed")["correct"].mean()
    assert by_seed.tolist() == pytest.approx([0.50, 0.51, 0.52])
    with pytest.raises(robustsweep.UserError, match="did you mean 'autoattack'"):
        found.verdicts("autoatack")


def test_two_methods_are_compared_with_their_uncertainty(found):
    compared = found.compare("small", "sovr", "at")
    assert compared.difference == pytest.approx(10.0) and compared.low < 10 < compared.high
    assert compared.p_value < 0.01 and compared.seeds == (3, 3) and compared.images_low is not None
    alone = found.compare("small", "trades", "at", "clean")
    assert alone.p_value is None and alone.undefined and alone.seeds == (1, 3)
    for words, message in ((("smal", "at", "sovr"), "no study"), (("small", "att", "sovr"), "has no label 'att'")):
        with pytest.raises(robustsweep.UserError, match=message):
            found.compare(*words)
    with pytest.raises(robustsweep.UserError, match="evaluated with: autoattack, clean, pgd-20"):
        found.compare("small", "at", "sovr", "square")


def test_a_live_model_is_attacked_and_left_as_it_was():
    model, images, labels = tiny_problem(30)
    model.train()
    found = robustsweep.evaluate(
        model, images, labels, attacks=["clean", "pgd-5", "pgd-5@l2:0.5", "apgd-ce"], epsilon=0.05
    )
    assert model.training and all(p.requires_grad and p.grad is None for p in model.parameters())
    frame = found.frame.set_index(["attack", "norm"])
    assert list(found.frame["epsilon"]) == ["0", "0.05", "0.5", "0.05"] and set(found.frame["images"]) == {30}
    assert found.accuracy("clean") > frame.loc[("pgd-5", "linf"), "accuracy"] >= found.worst
    stacked = np.stack(list(found.verdicts.values()))
    assert stacked.shape == (4, 30) and found.worst == stacked.all(axis=0).mean()
    again = robustsweep.evaluate(model, (255 * images).round().to(torch.uint8), labels, attacks=["clean"])
    assert abs(again.accuracy("clean") - found.accuracy("clean")) < 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attacks": ["pgd20"]}, "did you mean 'pgd-20'"),
        ({"attacks": "pgd-20"}, r"a list of names, such as \['pgd-20'\]"),
        ({"attacks": ["corruptions"]}, "files of a data set"),
        ({"images": torch.full((4, 1, 6, 6), 2.0)}, r"must lie in \[0, 1\]"),
        ({"images": torch.zeros(3, 1, 6, 6)}, "with n labels"),
        ({"labels": torch.full((4,), 12)}, "one logit for each of 13 classes"),
    ],
)
def test_mistakes_are_messages(changes, message):
    model, images, labels = tiny_problem(4)
    with pytest.raises(robustsweep.UserError, match=message):
        robustsweep.evaluate(model, **{"images": images, "labels": labels, "attacks": ["clean"], **changes})


@pytest.mark.timeout(300)
def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python_interface.py"])
    runpy.run_path(str(ROOT / "examples" / "python_interface.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "sovr - at:" in said and "withstand" in said and (tmp_path / "store").is_dir()

"""The shipped studies say what the paper's settings are decided to be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import studies
from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.written import written_settings
from sweep.trials import cells as plan
from trainers.config import Schedule

PAPER = (
    "cifar10_rn18 cifar10_wrn cifar100_rn18 svhn_rn18 cifar10_awp cifar10_seat cifar10_ddpm cifar10_m_effect "
    "cifar10_lambda_effect cifar100_lambda trajectories_cifar10_rn18 trajectories_cifar10_wrn "
    "trajectories_cifar100_rn18 trajectories_svhn_rn18"
).split()
OTHERS = ("digits", "cifar10_small", "mnist_small", "cifar10_edm", "tiny_imagenet_rn18")
MAIN = PAPER[:4]
NINE = {"at", "mart", "mma", "gairat", "mail", "ewat", "sovr", "trades", "tsovr"}


def test_every_study_of_the_paper_is_shipped_with_a_title():
    assert {*PAPER, *OTHERS} == set(studies.shipped())
    assert all(studies.titles().values())


@pytest.mark.parametrize("name", studies.shipped())
def test_a_shipped_study_loads_and_its_trials_have_distinct_names(name):
    study = Study.load(name)
    named = [cell.trial for cell in plan.expand(study) if cell.trial]
    assert named and len(set(named)) == len(named)
    assert study.title == studies.titles()[name]
    assert plan.manifest(study, plan.expand(study)).name == name


@pytest.mark.parametrize("name", MAIN)
def test_the_main_studies_have_the_nine_methods_and_both_extremes(name):
    study = Study.load(name)
    assert NINE | {"st", "ovr"} <= set(study.labels) and study.seeds == (0, 1, 2)


def test_digits_has_all_eleven_methods_and_a_wrapper():
    assert NINE | {"st", "ovr", "sovr+awp"} <= set(Study.load("digits").labels)


def test_all_columns_of_digits_share_one_recipe_but_for_the_rate_that_some_cannot_bear_and_the_length_of_mma():
    study = Study.load("digits")
    recipes = {label: study.config(label).recipe for label in study.labels}
    shared = {label: recipe.model_copy(update={"learning_rate": 0.0}) for label, recipe in recipes.items()}
    mma = shared.pop("mma")
    assert all(recipe == shared["at"] for recipe in shared.values())
    times = mma.epochs / recipes["at"].epochs
    assert times == 4 and mma.schedule.at == tuple(times * epoch for epoch in recipes["at"].schedule.at)
    assert mma.model_copy(update={"epochs": 300, "schedule": recipes["at"].schedule}) == shared["at"]
    rates = {label: recipe.learning_rate for label, recipe in recipes.items()}
    lower = {label: rate for label, rate in rates.items() if rate != rates["at"]}
    assert lower == {"mma": 0.05} | dict.fromkeys(("mart", "gairat", "mail", "ewat"), 0.1)
    selections = {label: study.config(label).selection for label in study.labels}
    assert selections["mma"] == selections["at"].model_copy(update={"from_epoch": 600})
    assert {one for label, one in selections.items() if label != "mma"} == {selections["at"]}


@pytest.mark.parametrize("name", ["cifar10_small", "mnist_small"])
def test_studies_on_a_cpu_have_the_papers_columns_seeds_of_their_own_and_an_interleaved_hold_out(name):
    study = Study.load(name)
    assert set(study.labels) == NINE - {"mma"} | {"st", "ovr"} and study.seeds == (10, 11, 12)
    assert (study.selection.protocol, study.selection.validation_from) == ("heldout", "spread")
    assert all(study.methods[label].train == {} for label in study.labels)  # no column has a rate of its own


@pytest.mark.parametrize(
    ("study", "label", "M", "lam"),
    [
        ("cifar10_rn18", "sovr", 40, 0.4),
        ("cifar10_wrn", "sovr", 30, 0.4),
        ("cifar100_rn18", "sovr", 50, 0.5),
        ("cifar100_rn18", "sovr_lam06", 50, 0.6),
        ("svhn_rn18", "sovr", 20, 0.2),
        ("cifar10_rn18", "tsovr", 80, 0.8),
        ("cifar10_wrn", "tsovr", 20, 0.8),
        ("cifar100_rn18", "tsovr", 50, 0.5),
        ("svhn_rn18", "tsovr", 20, 0.8),
        ("cifar10_awp", "sovr+awp", 40, 0.4),
        ("cifar10_awp", "tsovr+awp", 100, 1.2),
        ("cifar10_seat", "sovr+seat", 50, 0.5),
        ("cifar10_ddpm", "sovr+ddpm", 40, 0.2),
        ("cifar10_ddpm", "tsovr+ddpm", 100, 1.6),
    ],
)
def test_m_and_lambda_are_the_papers(study, label, M, lam):
    values = Study.load(study).config(label).hyperparameters
    assert (values["M"], values["lam"]) == (M, lam)


@pytest.mark.parametrize(
    ("study", "rates"),
    [
        ("cifar10_rn18", {"sovr": 0.05, "at": 0.1, "trades": 0.1, "tsovr": 0.1, "mma": 0.3}),
        ("cifar10_wrn", {"sovr": 0.1, "at": 0.1, "tsovr": 0.1, "mma": 0.3}),
        ("cifar100_rn18", {"sovr": 0.1, "at": 0.1, "mma": 0.3}),
        ("svhn_rn18", {"sovr": 0.05, "at": 0.01, "trades": 0.01, "tsovr": 0.01, "mma": 0.3}),
        ("cifar10_ddpm", {"sovr+ddpm": 0.2, "tsovr+ddpm": 0.4, "at+ddpm": 0.4}),
        ("trajectories_cifar10_rn18", {"at": 0.05, "ovr": 0.05, "weighted_ce_5": 0.05}),
        ("trajectories_svhn_rn18", {"at": 0.01, "ovr": 0.05, "weighted_ovr_2": 0.05}),
    ],
)
def test_learning_rates_are_the_papers(study, rates):
    loaded = Study.load(study)
    assert {label: loaded.config(label).recipe.learning_rate for label in rates} == rates


@pytest.mark.parametrize("name", MAIN)
def test_schedules_and_exceptions_of_the_main_studies(name):
    study = Study.load(name)
    recipe = {label: study.config(label).recipe for label in study.labels}
    assert recipe["at"].schedule == Schedule(kind="piecewise", at=(100, 150), factors=(0.1, 0.01))
    assert recipe["ewat"].schedule == Schedule(kind="piecewise", at=(100, 105), factors=(0.1, 0.01))
    assert recipe["trades"].schedule.kind == recipe["tsovr"].schedule.kind == "piecewise_epoch"
    assert not recipe["trades"].standardize and not recipe["tsovr"].standardize and recipe["sovr"].standardize
    assert (recipe["trades"].attack.start, recipe["trades"].attack.mode) == ("gauss", "eval")
    mma = recipe["mma"]
    assert (mma.steps, mma.weight_decay, mma.schedule.at) == (50000, 2e-4, (20000, 30000, 40000))
    assert [round(mma.learning_rate * f, 6) for f in mma.schedule.factors] == [0.09, 0.03, 0.009]
    step = "1/255" if name == "svhn_rn18" else "2/255"
    assert all(one.attack.step_size == step and one.attack.epsilon == "8/255" for one in recipe.values())
    assert study.selection.steps == 20 and study.selection.step_size == step
    crops = {label: (one.augmentation.crop, one.augmentation.rotation) for label, one in recipe.items()}
    expected = {"cifar10": ("reflect", 0, "zero"), "cifar100": ("zero", 15, "zero"), "svhn": ("none", 0, "none")}
    crop, rotation, trades_crop = expected[study.dataset]
    assert crops["at"] == crops["mma"] == (crop, rotation) and crops["tsovr"] == (trades_crop, 0)


def test_the_combinations_follow_their_own_scripts():
    awp = Study.load("cifar10_awp")
    assert {label: awp.config(label).wrappers["awp"].gamma for label in awp.labels} == {
        "at+awp": 0.01,
        "sovr+awp": 0.01,
        "trades+awp": 0.005,
        "tsovr+awp": 0.005,
    }
    assert all(awp.config(label).wrappers["awp"].warmup_epochs == 10 for label in awp.labels)
    seat = Study.load("cifar10_seat").config("sovr+seat")
    assert (seat.recipe.epochs, seat.recipe.weight_decay, seat.recipe.attack.epsilon) == (120, 7e-4, "0.031")
    assert seat.recipe.schedule.factors == (1, 1, 0.1, 0.05) and seat.wrappers["seat"].decay == 0.999
    ddpm = Study.load("cifar10_ddpm")
    config = ddpm.config("tsovr+ddpm")
    assert config.selection.headline == "best_validation" and config.selection.validation_from == "start"
    assert (config.selection.loss, config.selection.steps, config.selection.ties) == ("cw", 40, "last")
    assert config.recipe.attack.mode == "train_untracked" and ddpm.config("sovr+ddpm").recipe.attack.mode == "eval"
    smoothing = {label: ddpm.config(label).hyperparameters.get("label_smoothing") for label in ddpm.labels}
    assert smoothing == {"at+ddpm": None, "trades+ddpm": 0.1, "sovr+ddpm": 0.1, "tsovr+ddpm": 0.1}


def test_ablations_share_their_trials_with_the_main_study():
    main = {cell.trial for cell in plan.expand(Study.load("cifar10_rn18"), {"sovr": {"M": 40, "lam": 0.4}})}
    for name, label in (("cifar10_m_effect", "sovr_m40"), ("cifar10_lambda_effect", "sovr_lam04")):
        cells = plan.expand(Study.load(name))
        assert {cell.trial for cell in cells if cell.label in ("at", label)} <= main
    hundred = {cell.trial for cell in plan.expand(Study.load("cifar100_rn18"))}
    assert {cell.trial for cell in plan.expand(Study.load("cifar100_lambda"))} <= hundred


def test_searches_hold_images_out_only_for_their_own_trials():
    study = Study.load("cifar10_rn18")
    assert set(study.searches()) == {"sovr", "tsovr"}
    for label in study.searches():
        assert study.search_config(label, {}).selection.validation == 1000
        assert study.config(label).selection.validation == 0
        assert not set(study.search[label].seeds) & set(study.seeds)


@pytest.mark.parametrize("name", studies.shipped())
def test_what_a_study_writes_down_is_the_whole_configuration_of_every_label(name):
    study = Study.load(studies.FOLDER / f"{name}.yaml")
    for label in study.labels:
        written, resolved = written_settings(name, label), study.config(label).model_dump(mode="json")
        assert json.dumps(written, sort_keys=True) == json.dumps(resolved, sort_keys=True)


def test_written_settings_load_neither_torch_nor_ray():
    code = (
        "import sys; from sweep.studies.written import written_settings; written_settings('cifar10_ddpm', 'at+ddpm'); "
        "sys.exit('torch' in sys.modules or 'ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3]).returncode == 0


def test_the_edm_study_follows_the_code_of_better_diffusion_models():
    config = Study.load("cifar10_edm").config("trades+ddpm")
    recipe, edm = config.recipe, config.wrappers["ddpm"]
    assert (config.model, recipe.batch_size, recipe.learning_rate, recipe.epochs) == ("wrn_28_10_silu", 512, 0.2, 400)
    assert config.hyperparameters == {"beta": 5.0, "label_smoothing": 0.1, "forwards": "ddpm"}
    assert recipe.schedule.kind == "onecycle" and recipe.schedule.warmup_fraction == 0.025 and not recipe.standardize
    assert (edm.file, edm.fraction, edm.decay) == ("cifar10_edm_1m.npz", 0.7, 0.995)


def test_cutmix_is_no_part_of_a_name_unless_it_is_asked_for_and_needs_a_loss_that_mixes():
    plain, mixed = (Study.load("cifar10_edm", overrides=settings, methods=["at+ddpm", "trades+ddpm"]) for settings in
                    ([], ["train.augmentation.cutmix=1.0"]))  # fmt: skip
    names = [{cell.trial for cell in plan.expand(one)} for one in (plain, mixed)]
    assert not names[0] & names[1]
    with pytest.raises(UserError, match="methods.sovr.ddpm.train.augmentation.cutmix: the loss of sovr.ddpm takes no"):
        Study.load("cifar10_edm", overrides=["train.augmentation.cutmix=1.0"], methods=["at+ddpm", "sovr+ddpm"])

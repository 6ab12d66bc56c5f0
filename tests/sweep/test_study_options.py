"""What --set, --methods and --seeds make of a study, and what of them is refused."""

import json

import pytest
from own_study import GOOD, refusal, write

from sweep.errors import UserError
from sweep.store.opening import open_store
from sweep.studies import shipped
from sweep.studies.model import Study
from sweep.studies.options import StudyOptions, as_in_a_file, parse_seeds
from sweep.trials import cells as planned


def test_set_changes_values_and_names_unknown_paths(tmp_path):
    path = write(tmp_path, GOOD)
    study = Study.load(path, overrides=["train.epochs=5", "methods.sovr.hyperparameters.M=20", "seeds=[7]"])
    assert (study.train.epochs, study.config("sovr").hyperparameters["M"], study.seeds) == (5, 20, (7,))
    for setting, expected in (
        ("train.epoch=5", "did you mean 'epochs'?"),
        ("trian.epochs=5", "did you mean 'train'?"),
        ("train.epochs", "must look like"),
        ("=5", "must look like"),
        ("train.epochs.deep=5", "not a mapping"),
        ("train.epochs=[", "--set train.epochs=["),
        ("methods.att.method=sov", "did you mean 'sovr'?"),
    ):
        with pytest.raises(UserError) as caught:
            Study.load(path, overrides=[setting])
        assert expected in str(caught.value)


def test_set_on_one_of_two_methods_that_share_an_anchor_leaves_the_other(tmp_path):
    text = GOOD + "  trades: {train: &t {standardize: false}}\n  tsovr: {train: *t}\n"
    study = Study.load(write(tmp_path, text), overrides=["methods.tsovr.train.epochs=9"])
    assert study.config("tsovr").recipe.epochs == 9 and study.config("trades").recipe.epochs == 2


def test_methods_and_seeds_narrow_or_widen_a_study(tmp_path):
    path = write(tmp_path, GOOD)
    study = Study.load(path, methods=["sovr", "trades+awp"], seeds=[4])
    assert study.labels == ["sovr", "trades+awp"] and study.seeds == (4,)
    assert "awp" in study.config("trades+awp").wrappers
    with pytest.raises(UserError, match=r"'sover'; did you mean 'sovr'\?"):
        Study.load(path, methods=["sover"])
    assert "more than once" in refusal(tmp_path, GOOD, seeds=[1, 1])


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("at+at", "composes two methods"),
        ("sovr+awp+awp", r"\+awp 2 times"),
        ("sovr+foo", "unknown wrapper 'foo'"),
        ("SOVR", "did you mean 'sovr'"),
    ],
)
def test_a_method_that_cannot_be_is_refused_with_its_reason(tmp_path, label, words):
    with pytest.raises(UserError, match=words):
        Study.load(write(tmp_path, GOOD), methods=[label])


def test_no_methods_at_all_are_refused(tmp_path):
    with pytest.raises(UserError, match="--methods is empty; the study has at, sovr"):
        Study.load(write(tmp_path, GOOD), methods=[])


def test_a_misspelt_label_is_found_also_where_methods_are_chosen(tmp_path):
    message = refusal(tmp_path, GOOD, methods=["at"], overrides=["methods.soovr.hyperparameters.M=30"])
    assert "methods.soovr" in message and "did you mean 'sovr'?" in message


def test_a_searched_label_keeps_its_values_and_the_choice_has_a_column_of_its_own(tmp_path):
    text = GOOD + "search: {sovr: {selection: {protocol: heldout, validation: 100}}}\n"
    setting = "methods.sovr.hyperparameters.M=50"
    study = Study.load(write(tmp_path, text), overrides=[setting])
    assert study.config("sovr").hyperparameters["M"] == 50
    assert study.columns() == {"at": "at", "sovr": "sovr", "sovr_searched": "sovr"}
    pinned = Study.load(write(tmp_path, text), overrides=[setting, "search.sovr.pin=true"])
    assert list(pinned.columns()) == ["at", "sovr"]
    assert list(Study.load(write(tmp_path, text), methods=["sovr_searched"]).columns()) == ["sovr", "sovr_searched"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seeds=[1.0, 1]", "1 given more than once"),
        ("seeds=['1', 1]", "1 given more than once"),
        ("seeds=[4294967296]", "less than 4294967296"),
        ("model=resnet18_64", "takes images of at least 16x16, not 8x8"),
        ("selection={protocol: heldout, validation: 2e3}", "leaves nothing of the 1437"),
        ("train_images='2000'", "there are 1437 in digits"),
    ],
)
def test_numbers_are_checked_as_they_will_be_read(tmp_path, setting, words):
    assert words in refusal(tmp_path, GOOD, overrides=[setting])


def test_leaving_a_method_out_leaves_its_search_out(tmp_path):
    text = GOOD + "search: {sovr: {selection: {protocol: heldout, validation: 100}}}\n"
    assert list(Study.load(write(tmp_path, text)).searches()) == ["sovr"]
    assert not Study.load(write(tmp_path, text), methods=["at"]).searches()


@pytest.mark.parametrize(("text", "seeds"), [("0,1", [0, 1]), ("3", [3]), ("0-3", [0, 1, 2, 3]), ("5, 7-8", [5, 7, 8])])
def test_seeds_on_the_command_line(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "1.5", "0,,1", "9" * 30, "3-1", "0-99999999"])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(UserError, match="--seeds"):
        parse_seeds(text)


def test_too_many_seeds_are_refused_with_the_limit():
    assert len(parse_seeds("0-99999")) == 100_000
    for text in ("0-100000", "0-60000,70000-999999999"):
        with pytest.raises(UserError, match="at most 100,000 seeds"):
            parse_seeds(text)


def test_the_options_of_a_command_line_become_a_study(tmp_path):
    path = str(write(tmp_path, GOOD))
    study = StudyOptions(path, ["train.epochs=5"], "sovr, trades", "3-4").load()
    assert (study.labels, study.seeds, study.train.epochs) == (["sovr", "trades"], (3, 4), 5)
    assert StudyOptions(path).load().labels == ["at", "sovr"]


def test_a_study_is_found_by_its_name_beside_and_in_the_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, GOOD)
    beside = StudyOptions("own").load()
    assert beside.name == "own" and beside.labels == ["at", "sovr"]
    store = open_store(tmp_path / "store")
    store.write_record(planned.manifest(beside, planned.expand(beside, {})))
    (tmp_path / "own.yaml").rename(tmp_path / "elsewhere.txt")
    with pytest.raises(UserError, match="no study is named 'own'"):
        StudyOptions("own").load()
    known = StudyOptions("own", settings=["train.epochs=5"], seeds="7", store="store").load()
    assert known.train.epochs == 5 and known.seeds == (7,)
    again = StudyOptions("own", store="store").load()
    cells = [cell.trial for cell in planned.expand(again, {})]
    assert cells == [cell.trial for cell in planned.expand(beside, {})]  # nothing is trained twice
    with pytest.raises(UserError, match="no study is named 'owm'.*nor is it in the store"):
        StudyOptions("owm", store="store").load()


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_study_is_the_same_from_a_store(name, tmp_path):
    study = Study.load(name)
    stored = json.loads(json.dumps(study.model_dump(mode="json")))
    assert Study.load(name, written=as_in_a_file(stored)) == study


@pytest.mark.parametrize("evaluation", ["{attacks: [clean, pgd-10]}", "{attacks: [clean, pgd-10], suite: null}"])
def test_a_study_with_a_list_of_attacks_is_read_from_its_store(tmp_path, monkeypatch, evaluation):
    monkeypatch.chdir(tmp_path)
    study = Study.load(write(tmp_path, f"{GOOD}evaluation: {evaluation}\n"))
    store = open_store(tmp_path / "store")
    store.write_record(planned.manifest(study, planned.expand(study, {})))
    (tmp_path / "own.yaml").unlink()
    again = StudyOptions("own", store="store").load()
    assert planned.evaluation_attacks(again) == planned.evaluation_attacks(study)
    assert [cell.trial for cell in planned.expand(again, {})] == [cell.trial for cell in planned.expand(study, {})]
    added = StudyOptions("own", settings=["evaluation.attacks=[clean, pgd-10, square]"], store="store").load()
    assert added.evaluation.attacks == ("clean", "pgd-10", "square")
    with pytest.raises(UserError, match="give attacks or a suite, not both"):
        StudyOptions("own", settings=["evaluation.suite=quick"], store="store").load()


@pytest.mark.parametrize("setting", ["dataset=svhn", "model=wrn_34_10"])
@pytest.mark.parametrize("name", ["cifar10_rn18", "svhn_rn18"])
def test_another_data_set_or_network_in_a_shipped_study_needs_a_name(setting, name):
    key, _, value = setting.partition("=")
    with pytest.raises(UserError) as caught:
        Study.load("cifar10_rn18", overrides=[setting, f"name={name}"])
    message = str(caught.value)
    way_out = f"name=cifar10_rn18_{value}"
    assert f"name = '{name}'" in message and f"{key} {value}" in message and f"--set {way_out}" in message
    study = Study.load("cifar10_rn18", overrides=[setting, way_out])
    assert (study.name, getattr(study, key)) == (f"cifar10_rn18_{value}", value)


def test_a_shipped_study_keeps_its_name_with_the_data_set_that_it_has(tmp_path):
    assert Study.load("cifar10_rn18", overrides=["dataset=cifar10", "train.epochs=2"]).name == "cifar10_rn18"
    path = write(tmp_path, GOOD)
    assert Study.load(path, overrides=["dataset=mnist"]).dataset == "mnist"  # a file of one's own may be changed
    with pytest.raises(UserError, match="has 1 fault:\n.*did you mean 'svhn'"):  # no name after a misspelt data set
        Study.load("cifar10_rn18", overrides=["dataset=svhm"])

"""A study file is accepted whole, or refused with all its faults in one message."""

import hashlib
import textwrap

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from sweep.errors import UserError
from sweep.studies.model import Study
from sweep.studies.space import search_space
from sweep.trials import cells as plan
from tests.sweep.own_study import GOOD, refusal, write
from trainers.attacks import parse


def test_a_good_study_is_read_with_defaults_and_overrides_merged(tmp_path):
    study = Study.load(write(tmp_path, GOOD))
    assert study.name == "own" and study.labels == ["at", "sovr"]
    sovr, at = study.config("sovr"), study.config("at")
    assert sovr.recipe.learning_rate == 0.05 and at.recipe.learning_rate == 0.1
    # A nested override changes its own key only.
    assert (sovr.recipe.attack.steps, sovr.recipe.attack.epsilon, sovr.recipe.epochs) == (3, "8/255", 2)
    assert sovr.hyperparameters == {"M": 40, "lam": 0.4, "label_smoothing": 0.0}


def test_all_faults_of_a_file_come_in_one_message_with_path_value_rule_and_nearest_name(tmp_path):
    message = refusal(
        tmp_path,
        """
        title: Faulty
        dataset: cifar1
        model: preact_resnet
        seeds: [0, 1, 0]
        trian: {}
        train: {epochs: -1, learning_rate: .nan, schedule: {kind: piecwise}, attack: {epsilon: 8}}
        selection: {validation: -5}
        methods:
          tradse: {}
          sovr: {hyperparameters: {M: 400, lamm: 0.4}, train: {epohcs: 3}}
          at: {awp: {gamma: 0.01}}
          mart: [1, 2]
        search:
          sover: {}
        evaluation: {suite: man}
        resources: {gpus: many, memory: lots}
        """,
    )
    assert str(tmp_path / "own.yaml") in message
    for expected in (
        "dataset = 'cifar1': unknown dataset; did you mean 'cifar10'?",
        "model = 'preact_resnet': unknown model; did you mean 'preact_resnet18'?",
        "seeds = [0, 1, 0]: 0 given more than once",
        "trian: unknown key; did you mean 'train'?",
        "train.epochs = -1: must be greater than or equal to 1",
        "train.learning_rate = nan: must be a finite number",
        "train.schedule.kind = 'piecwise': must be one of: constant, piecewise",
        "train.attack.epsilon = 8: must be at most 1",
        "selection.validation = -5: must be greater than or equal to 0",
        "methods.tradse: unknown method 'tradse'; did you mean 'trades'?",
        "methods.sovr.hyperparameters: method 'sovr': unknown hyperparameter 'lamm'; did you mean 'lam'?",
        "M = 400 must be at most 100",
        "methods.sovr.train.epohcs: unknown key; did you mean 'epochs'?",
        "methods.at.awp: the method is 'at'; write at+awp",
        "methods.mart = [1, 2]: must be a mapping",
        "search.sover: is none of the study's methods; did you mean 'sovr'?",
        "evaluation.suite = 'man': unknown suite; did you mean 'main'?",
        "resources.gpus = 'many'",
        "resources.memory = 'lots': must be auto, or an amount such as 8GB",
    ):
        assert expected in message, f"{expected!r} is not in:\n{message}"
    assert "has 18 faults" in message, message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("title: [unclosed", "line 2, column 1"),
        ("title: a\ntitle: b\n", "key 'title' is given twice"),
        ("title: a\nmethods: {sovr: {hyperparameters: {1: 2}}}\n", "key 1 must be text"),
        ("? [a, b]\n: c\n", "line 1"),
        ("title: !!python/object/apply:os.system ['true']\n", "has no place in a study"),
        ("a: &a [*a]\n", "stands for nothing that was completed"),
        ("a: " + "[" * 40 + "]" * 40, "nested more than"),
        ("title: a\n---\ntitle: b\n", "document"),
        ("title: 2024-99-99\n", "month"),
        ("title: x\nmethods:\n", "dataset: missing"),
        ("{title: x, dataset: digits, model: small_cnn, methods: {}}", "methods"),
        ("{title: x, dataset: digits, model: small_cnn, methods: {at: {}}, seeds: []}", "seeds"),
    ],
)
def test_what_is_no_study_is_refused_in_one_message(tmp_path, text, expected):
    assert expected in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("!!bool maybe", "'maybe' does not fit the tag !!bool"),
        ("!!timestamp x", "'x' does not fit the tag !!timestamp"),
        ("2024-99-99", "month must be in 1..12"),
        ('!!int ""', "'' does not fit the tag !!int"),
        ("!!int " + "9" * 5000, "does not fit the tag !!int"),
        ("!!float x", "'x' does not fit the tag !!float (could not convert string to float: 'x')"),
        ("!!null {a: b}", "expected a scalar node"),
        ("!!seq {a: b}", "sequence"),
        ("!!map [a]", "mapping"),
        ("!!set [1]", "the tag !!set has no place in a study"),
        ("!!omap [1]", "the tag !!omap has no place in a study"),
        ("!!binary aGk=", "the tag !!binary has no place in a study"),
        ("!!python/object/apply:os.system ['true']", "the tag !!python/object/apply:os.system has no place"),
        ("!!python/name:os.system ''", "the tag !!python/name:os.system has no place in a study"),
        ("!mine x", "the tag !mine has no place in a study"),
    ],
)
@pytest.mark.parametrize("place", ["{}", "[a, {}]", "{{a: {}}}"])
def test_a_yaml_tag_that_does_not_fit_is_one_message_with_file_line_and_rule(tmp_path, value, rule, place):
    file = write(tmp_path, f"title: a\nseeds: {place.format(value)}\n")
    with pytest.raises(UserError) as caught:
        Study.load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}, line 2, column ") and rule in message and "\n" not in message


def test_a_tag_that_fits_is_welcome(tmp_path):
    study = Study.load(write(tmp_path, GOOD.replace("[0, 1]", "!!seq [!!int '3']")))
    assert list(study.seeds) == [3]


def test_a_yaml_bomb_is_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "aliases stand for more than" in refusal(tmp_path, "\n".join(lines))


def test_a_few_aliases_are_welcome(tmp_path):
    study = Study.load(write(tmp_path, GOOD + "  trades: {train: &t {standardize: false}}\n  tsovr: {train: *t}\n"))
    assert not study.config("tsovr").recipe.standardize


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none.yaml", "does not exist"),
        ("folder", "is a folder"),
        ("cifar10_rn81", "did you mean 'cifar10_rn18'?"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_a_study_that_is_not_there_is_refused_with_the_way_out(tmp_path, monkeypatch, name, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as caught:
        Study.load(name)
    assert expected in str(caught.value)


def test_binary_files_are_refused(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UserError, match="not UTF-8"):
        Study.load(path)
    path.write_bytes(b"title: a\x00b\n")
    with pytest.raises(UserError):
        Study.load(path)


@pytest.mark.parametrize("value", ["8/255", "0.031", 0.031, "2 / 255"])
def test_an_epsilon_may_be_a_fraction(tmp_path, value):
    study = Study.load(write(tmp_path, GOOD), overrides=[f"train.attack.epsilon={value}"])
    assert study.config("at").recipe.attack.epsilon == str(value).replace(" ", "")


@pytest.mark.parametrize("value", ["8/0", "-8/255", ".nan", "1e999999999", "eight", "true", "[1]", "1/2/3", "null"])
def test_an_epsilon_that_is_no_radius_is_refused(tmp_path, value):
    assert "train.attack.epsilon" in refusal(tmp_path, GOOD, overrides=[f"train.attack.epsilon={value}"])


@pytest.mark.parametrize(
    ("spelling", "written"), [("1/5", "0.2"), ("'0.20'", "0.2"), ("4/85", "12/255"), ("8/255", "8/255")]
)
def test_a_radius_has_one_spelling(spelling, written):
    study = Study.load("digits", overrides=[f"train.attack.epsilon={spelling}", f"evaluation.epsilon={spelling}"])
    assert study.train.attack.epsilon == study.evaluation.epsilon == written


def test_weights_that_the_protocol_does_not_keep_cannot_be_evaluated():
    with pytest.raises(UserError, match="best_test needs protocol: paper; heldout leaves the test images alone"):
        Study.load("digits", overrides=["evaluation.checkpoints=[best_test]"])
    both = ["evaluation.checkpoints=[best_test, best_validation]", "selection.protocol=paper"]
    assert Study.load("digits", overrides=both).evaluation.checkpoints == ("best_test", "best_validation")


def test_an_older_file_may_still_ask_for_margins():
    assert Study.load("digits", overrides=["margins=true"]) == Study.load("digits")


def test_a_search_needs_images_that_are_held_out_and_a_space(tmp_path):
    assert "a search chooses on held-out images" in refusal(tmp_path, GOOD + "search: {sovr: {}}\n")
    held_out = "{selection: {protocol: heldout, validation: 100}}"
    assert "no search space" in refusal(tmp_path, GOOD + f"search: {{at: {held_out}}}\n")


HELD_OUT = "selection: {protocol: heldout, validation: 100}"


def test_all_searches_every_method_that_has_a_space_with_what_a_label_says_itself_on_top(tmp_path):
    text = GOOD + f"search: {{all: {{{HELD_OUT}}}, sovr: {{candidates: 3}}}}\n"
    study = Study.load(write(tmp_path, text), overrides=["methods.trades={}"])
    assert {label: search.candidates for label, search in study.searches().items()} == {"sovr": 3, "trades": 8}
    assert study.search_config("trades", {}).selection.validation == 100
    assert Study.load(write(tmp_path, text), methods=["at"]).searches() == {}
    nothing = refusal(tmp_path, GOOD + f"search: {{all: {{{HELD_OUT}}}}}\n", overrides=["methods={at: {}}"])
    assert "search.all" in nothing and "none of the study's methods has such a search space" in nothing


def test_a_study_may_write_a_space_or_take_the_declared_one(tmp_path):
    written = f"search: {{sovr: {{space: {{lam: [0.1, 10, log], M: [0, 100, 50]}}, {HELD_OUT}}}}}\n"
    study = Study.load(write(tmp_path, GOOD + written))
    space = search_space("sovr", study.search["sovr"].space)
    assert space == {"lam": FloatDistribution(0.1, 10, log=True), "M": IntDistribution(0, 100, step=50)}
    declared = Study.load(write(tmp_path, GOOD + f"search: {{sovr: {{space: declared, {HELD_OUT}}}}}\n"))
    assert search_space("sovr", declared.search["sovr"].space)["M"] == IntDistribution(0, 100)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("{lamb: [0, 1]}", "sovr has no hyperparameter 'lamb'; did you mean 'lam'?"),
        ("{lam: [1, 0]}", "must rise"),
        ("{lam: [0, 1, log]}", "its low must be above 0"),
        ("{lam: 3}", "is no range; write [low, high]"),
        ("{M: [0, 200]}", "M = 200 must be at most 100"),
        ("{M: [0, 1.5]}", "whole number"),
        ("{lam: [0, 1, 2]}", "must be log or a step between 0 and 1"),
        ("{M: {choices: [1]}}", "give at least two"),
    ],
)
def test_a_space_that_is_written_wrong_is_refused(tmp_path, space, words):
    message = refusal(tmp_path, GOOD + f"search: {{sovr: {{space: {space}, {HELD_OUT}}}}}\n")
    assert "search.sovr.space" in message and words in message


def test_a_grid_of_a_hyperparameter_that_is_none_is_refused_for_that_alone(tmp_path):
    text = GOOD + f"search: {{sovr: {{sampler: grid, space: {{nope: [1, 2]}}, {HELD_OUT}}}}}\n"
    assert "nope" in refusal(tmp_path, text) and "sampler" not in refusal(tmp_path, text)


@pytest.mark.parametrize("space", ["continuous", "declared", "{lam: [0.1, 1]}"])
def test_a_grid_of_a_space_without_steps_is_refused_when_the_study_is_read(tmp_path, space):
    text = GOOD + f"search: {{sovr: {{sampler: grid, space: {space}, {HELD_OUT}}}}}\n"
    assert "search.sovr.sampler: a grid needs steps, but " in refusal(tmp_path, text)
    assert Study.load(write(tmp_path, text), overrides=["search.sovr.space={lam: [0, 1, 0.5]}"]).searches()
    assert Study.load(write(tmp_path, text), overrides=["search.sovr.pin=true"])


@pytest.mark.parametrize("seed", ["", "seed: 7, "])
def test_a_search_may_not_choose_by_a_reported_seed(tmp_path, seed):
    text = GOOD + f"search: {{sovr: {{{seed}selection: {{protocol: heldout, validation: 100}}}}}}\n"
    own = 7 if seed else 1000
    message = refusal(tmp_path, text, seeds=[0, own])
    assert f"search.sovr.{'seed' if seed else 'seeds'} = {own}" in message and "is a reported seed too" in message
    assert Study.load(write(tmp_path, text), seeds=[0, own], methods=["at"]).seeds == (0, own)
    assert Study.load(write(tmp_path, text), seeds=[0, own], overrides=["search.sovr.pin=true"]).seeds == (0, own)


def test_a_candidate_has_the_searchs_seed_selection_and_length(tmp_path):
    text = GOOD + "search: {sovr: {epochs: 1, seed: 77, selection: {protocol: heldout, validation: 100}}}\n"
    study = Study.load(write(tmp_path, text))
    config = study.search_config("sovr", {"M": 60})
    assert (config.seed, config.recipe.epochs, config.selection.validation) == (77, 1, 100)
    assert config.hyperparameters["M"] == 60 and config.hyperparameters["lam"] == 0.4
    assert config.recipe.learning_rate == 0.05
    assert study.config("sovr").selection.protocol == "paper"


def test_more_images_than_there_are_is_a_fault(tmp_path):
    message = refusal(
        tmp_path, GOOD, overrides=["train_images=5000", "evaluation.images=999", "selection.validation=6000"]
    )
    assert "train_images = 5000: there are 1437 in digits" in message
    assert "evaluation.images = 999: there are 360 in digits" in message
    assert "selection.validation = 6000" in message
    search = "search: {sovr: {selection: {protocol: heldout, validation: 1000}}}\n"
    message = refusal(tmp_path, GOOD + search, overrides=["train_images=256"])
    assert "search.sovr.selection.validation = 1000: leaves nothing of the 256" in message
    assert Study.load(tmp_path / "own.yaml", overrides=["train_images=256", "search.sovr.pin=true"]).searches() == {}


def test_resources_read_auto_fractions_and_amounts(tmp_path):
    assert Study.load(write(tmp_path, GOOD)).resources.gpus is None
    resources = Study.load(write(tmp_path, GOOD + "resources: {gpus: 0.5, cpus: 2, memory: 8GB}\n")).resources
    assert (resources.gpus, resources.cpus, resources.memory) == (0.5, 2.0, 8 * 1024**3)


def test_a_number_in_exponent_form_is_a_number(tmp_path):
    study = Study.load(write(tmp_path, GOOD), overrides=["methods.sovr.hyperparameters.lam=4e-1"])
    assert study.config("sovr").hyperparameters["lam"] == 0.4


def test_a_plug_in_becomes_a_column_with_the_hash_of_its_file(tmp_path):

    plugin = tmp_path / "halved_ce.py"
    plugin.write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        import torch.nn.functional as F
        from trainers.method import Method, hyperparameter

        @dataclass(frozen=True)
        class Halved(Method):
            share: float = hyperparameter(0.5, low=0.0, high=1.0)

            def loss(self, model, images, labels, attack):
                return self.share * F.cross_entropy(model(images), labels)
        """)
    )
    study = Study.load(write(tmp_path, GOOD), plugins=[plugin])
    config = study.config("halved_ce")
    assert study.labels == ["at", "sovr", "halved_ce"]
    assert config.plugin == hashlib.sha256(plugin.read_bytes()).hexdigest() and config.hyperparameters == {"share": 0.5}
    assert study.config("at").plugin is None
    assert "share = 2.0 must be at most 1.0" in refusal(
        tmp_path, GOOD, plugins=[plugin], overrides=["methods.halved_ce.hyperparameters.share=2"]
    )
    with pytest.raises(UserError, match="cannot be read"):
        Study.load(write(tmp_path, GOOD), plugins=[tmp_path / "none.py"])


def test_a_study_may_list_its_attacks_in_place_of_a_suite(tmp_path):
    own = ["evaluation.suite=null", "evaluation.attacks=[clean, pgd-50, autoattack*2]"]
    study = Study.load(write(tmp_path, GOOD), overrides=own)
    attacks = [(attack.name, attack.epsilon) for attack in plan.evaluation_attacks(study)]
    radius = study.evaluation.epsilon
    assert attacks == [
        ("clean", "0"),
        ("pgd-50", radius),
        ("autoattack", parse("autoattack*2", epsilon=radius).epsilon),
    ]
    both = refusal(tmp_path, GOOD, overrides=["evaluation.suite=main", "evaluation.attacks=[clean]"])
    assert "evaluation.attacks" in both and "give attacks or a suite, not both" in both
    unknown = refusal(tmp_path, GOOD, overrides=["evaluation.suite=null", "evaluation.attacks=[pgd50]"])
    assert "evaluation.attacks.0: unknown attack 'pgd50'; did you mean 'pgd-20'?" in unknown

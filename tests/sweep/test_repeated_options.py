"""Nothing that is typed twice is dropped: every command refuses a second value of an option that takes one."""

import pytest
import typer

from sweep import cli
from sweep.application import app
from sweep.studies.options import StudyOptions

VALUES = ("3", "4")  # of text, numbers and paths alike


def commands(command, path=()):
    """Every command below this one, with the words that lead to it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def required_words(command, but):
    words = []
    for parameter in command.params:
        if parameter.required and parameter is not but:
            is_option = parameter.param_type_name == "option"
            words += [*([parameter.opts[0]] if is_option else []), VALUES[0]]
    return words


def options_once():
    """Every option of every command that takes one value, or is switched on and off."""
    for path, command in commands(typer.main.get_command(app)):
        for option in command.params:
            if (
                option.param_type_name == "option"
                and not option.multiple
                and (not option.is_flag or option.secondary_opts)
            ):
                yield path, command, option


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused; return its message."""

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            cli.main(list(words))
        captured = capsys.readouterr()
        assert caught.value.code == 2 and captured.out == "" and captured.err.startswith("error: "), captured
        return captured.err

    return call


def test_every_option_with_one_value_is_refused_when_it_is_typed_twice(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = set()
    for path, command, option in options_once():
        name = max(option.opts, key=len)
        twice = [name, option.secondary_opts[0]] if option.is_flag else [name, VALUES[0], f"{name}={VALUES[1]}"]
        message = refused(*path, *twice, *required_words(command, option))
        assert name in message, (path, message)
        assert option.is_flag or ", ".join(VALUES) in message, (path, message)
        names.add((path[0], name))
    for command in ("run", "plan", "evaluate", "submit", "decide", "gc", "merge", "retry", "status", "new", "report"):
        assert any(path == command for path, _ in names), command
    assert {("run", "--methods"), ("run", "--seeds"), ("gc", "--keep"), ("export", "--label")} <= names
    assert list(tmp_path.iterdir()) == []


def test_an_option_before_and_after_a_subcommand_is_typed_twice(refused):
    assert "--store" in refused("report", "--store", "first", "diff", "--store", "second")
    assert "first, second" in refused("report", "--out", "first", "export", "--out", "second")


def test_methods_typed_twice_are_told_how_to_have_both(refused):
    assert "--methods at,sovr" in refused("run", "--methods", "at", "--methods", "sovr", "--dry-run")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("train.epochs=2", "train.epochs=3"), ("train.epochs=2", "train.epochs=3")),
        (("train.epochs=2", "train={epochs: 3}"), ("train.epochs=2", "train={epochs: 3}")),
        (("train . epochs=2", "train.epochs=2"), ("both give train.epochs",)),
    ],
)
def test_a_setting_that_is_given_twice_is_refused_with_both_values(refused, settings, words):
    message = refused("run", "--dry-run", *(word for setting in settings for word in ("--set", setting)))
    assert all(word in message for word in words) and "leave one" in message


def test_a_setting_may_refine_an_earlier_one(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--dry-run", "--set", "train={epochs: 3}", "--set", "train.epochs=2", "--yes", "-y"])
    assert not caught.value.code and "at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "option"), [("seeds=[0]", ("--seeds", "5")), ("methods={at: {}}", ("--methods", "sovr"))]
)
def test_a_setting_and_an_option_that_replaces_it_are_refused(refused, setting, option):
    for command in ("run", "plan", "submit"):
        message = refused(command, "--set", setting, *option)
        assert setting in message and " ".join(option) in message


def test_the_words_of_a_study_from_python_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [
        "search={}",
        "train.epochs=3",
        "seeds=[0]",
        "methods={at: {}, st: {}, trades: {train: {epochs: 4}}}",
        "train.epochs=2",
    ]
    options = StudyOptions("digits", settings, methods="trades,at", seeds="5")
    words = options.words()
    assert "seeds=[0]" not in words and "train.epochs=3" not in words
    with pytest.raises(SystemExit) as caught:
        cli.main(["run", "--dry-run", *words])
    assert not caught.value.code
    given = [words[number + 1] for number, word in enumerate(words) if word == "--set"]
    assert StudyOptions("digits", given, methods="trades,at", seeds="5").load() == options.load()

"""Models of the sections of a study file: methods, search, evaluation and resources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from sweep.studies.check_search import SEARCH_SEEDS
from trainers.attacks.scoring import suites
from trainers.config import is_checkpoint
from trainers.plugins import registry
from trainers.values import Amount, Hyperparameter, NormName, Strict


def wrapper_field(name: str) -> Any:
    return Field(None, description=f"settings of +{name}", examples=[{}])


def auto_or_number(value: Any) -> Any:
    if value == "auto":
        return None
    if value is None or isinstance(value, bool):
        raise ValueError("must be auto or a number")
    return value


def _share_of_one_device(value: float | None) -> float | None:
    if value is not None and value > 1:
        raise ValueError("one trial uses one device: 1, a share such as 0.5, or 0 for the CPU")
    if value is not None and 0 < value < 0.0001:
        raise ValueError("Ray counts shares in ten-thousandths: at least 0.0001, or 0 for the CPU")
    return value


def auto_or_bytes(value: Any) -> Any:
    if value == "auto":
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(value), re.IGNORECASE)
    if not match or isinstance(value, bool):
        raise ValueError("must be auto, or an amount such as 8GB")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


class Share(Strict):
    """Resources of one trial. Absent values (auto) are chosen from the available devices."""

    gpus: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
        BeforeValidator(auto_or_number),
        AfterValidator(_share_of_one_device),
    ] = Field(None, description="of one trial; parts of one share a GPU", examples=[0.5])
    cpus: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, BeforeValidator(auto_or_number)] = Field(
        None, description="of one trial", examples=[4]
    )
    memory: Annotated[int | None, BeforeValidator(auto_or_bytes)] = Field(
        None, description="that one trial needs", examples=["8GB"]
    )


def _checkpoint(value: Any) -> Any:
    if value == "headline" or (isinstance(value, str) and is_checkpoint(value)):
        return value
    raise ValueError("must be headline, last, best_test, best_validation or epoch-N, such as epoch-100")


CheckpointName = Annotated[str, BeforeValidator(_checkpoint)]


class _Entry(Strict):
    """One column of the tables. Its `train` and `selection` are merged into those of the study."""

    method: str | None = Field(
        None, description="base method and wrappers; the label itself unless given", examples=["sovr+awp"]
    )
    display: str | None = Field(None, description="the column's name in tables and figures", examples=["SOVR (ours)"])
    hyperparameters: dict[str, Hyperparameter] = Field(
        {}, description="of the method; the rest keep their defaults", examples=[{"beta": 6.0}]
    )
    train: dict[str, Any] = Field(
        {}, description="parts of `train` that differ for this column", examples=[{"learning_rate": 0.01}]
    )
    selection: dict[str, Any] = Field(
        {}, description="parts of `selection` that differ for this column", examples=[{"ties": "last"}]
    )
    resources: Share | None = Field(
        None,
        description="what a trial of this column takes, if not `resources`",
        examples=[{"gpus": 1}],
    )


if TYPE_CHECKING:
    MethodEntry = _Entry
else:  # an entry also has one field for each wrapper, with the wrapper's settings
    _settings = {name: (registry.WRAPPERS.get(name) | None, wrapper_field(name)) for name in registry.WRAPPERS.names()}
    MethodEntry = create_model("MethodEntry", __base__=_Entry, **_settings)

Objective = Literal["margin", "quick", "pgd", "clean"]


def _single(value: Any) -> Any:
    """Unwrap a list of one, so that both spellings of a search give the same search id."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


Objectives = Annotated[Objective | Annotated[tuple[Objective, ...], Field(min_length=1)], AfterValidator(_single)]


class Search(Strict):
    """The search of one label. It has its own seeds, so the reported seeds never choose anything."""

    space: Literal["paper", "fine", "continuous", "declared"] | dict[str, Any] = Field(
        "paper",
        description="what is varied: a space by name, the method's declared ranges, or ranges by hyperparameter",
        examples=[{"beta": [1, 10, "log"]}],
    )
    sampler: Literal["gp", "tpe", "grid"] = Field(
        "gp",
        description="proposes candidates by what it saw (Optuna's Gaussian process or TPE), or all of a grid",
    )
    candidates: int = Field(8, ge=1, description="how many are tried at most; the sampler `grid` tries all")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        SEARCH_SEEDS, min_length=1, description="of the search alone; a reported seed is refused"
    )
    epochs: int | None = Field(None, ge=1, description="of a candidate; the study's if absent", examples=[30])
    pruner: Literal["asha", "none"] = Field("asha", description="whether hopeless candidates end early")
    objective: Objectives = Field(
        "margin",
        description="accuracy on held-out images: under a short attack on margins, under `quick`, under PGD, or clean",
    )
    pin: bool = Field(False, description="use the study's values alone and search nothing")
    train: dict[str, Any] = Field(
        {}, description="parts of `train` that differ for candidates", examples=[{"attack": {"steps": 5}}]
    )
    selection: dict[str, Any] = Field(
        {},
        description="parts of `selection` that differ for candidates",
        examples=[{"protocol": "heldout", "validation": 1000}],
    )

    @model_validator(mode="before")
    @classmethod
    def _one_seed(cls, content: Any) -> Any:
        """Expand `seed: 1000` to `seeds: [1000]`."""
        if isinstance(content, dict) and "seed" in content and "seeds" not in content:
            content = {**content, "seeds": [content["seed"]]}
            del content["seed"]
        return content

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return the objectives as a tuple; the first one decides which candidates are pruned."""
        return (self.objective,) if isinstance(self.objective, str) else self.objective


class Evaluation(Strict):
    """The attacks on finished weights, and the test images they run on."""

    suite: str | None = Field("main", description=f"a set of attacks: {', '.join(suites.SUITES)}")
    attacks: tuple[str, ...] = Field(
        (),
        description="in place of a suite; tests compare by AutoAttack or the first after clean",
        examples=[["clean", "pgd-50", "square"]],
    )
    epsilon: Amount = Field("8/255", description="radius of the attacks")
    norm: NormName | None = Field(None, description="of the attacks; that of train.attack if absent", examples=["l2"])
    images: int | None = Field(None, ge=1, description="the first so many test images; all if absent", examples=[1000])
    shards: int = Field(1, ge=1, description="pieces that one evaluation is cut into, to run at once")
    checkpoints: tuple[CheckpointName, ...] = Field(
        ("headline",),
        description="weights that are attacked: headline (as the protocol selects), last, best_test, best_validation, "
        "epoch-N (after N epochs)",
    )
    batch_size: int = Field(256, ge=1, description="images per forward of an attack")
    counterexamples: bool = Field(
        True, description="keep one adversarial image for each image that an attack fools, for sweep.verify"
    )
    diagnostics: bool = Field(False, description="also margins, gradient norms and potentially misclassified images")
    diagnosed: tuple[CheckpointName, ...] = Field(
        (), description="further checkpoints whose margins are measured, without attacks", examples=[["epoch-100"]]
    )


class Resources(Share):
    """Resources of one trial, with retries and the limit for hung trials."""

    evaluation: Share | None = Field(
        None, description="what an attack or a diagnosis takes instead", examples=[{"gpus": 0.5}]
    )
    retries: int = Field(3, ge=0, description="times a trial is started again from its last checkpoint")
    hang_minutes: Annotated[float, Field(gt=0)] = Field(60.0, description="without progress, then it counts as hung")

"""Checked types of settings: radii as text, bounded numbers, frozen models. Loads no torch."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

MOST_DIGITS = 20  # after the decimal point
DIGITS = 12  # significant digits in which a decimal is compared with a fraction


class Strict(BaseModel):
    """A settings model that rejects unknown keys and is frozen once checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def as_float(amount: str | float | int) -> float:
    """Return the number behind an amount such as '8/255', '0.031' or 0.1."""
    return float(_exact(amount)) if isinstance(amount, str) else float(amount)


def amount_text(number: Fraction) -> str:
    """Return the canonical text of a radius: a decimal if it has a finite one, else over 255, else a fraction."""
    for factor, ending in ((1, ""), (255, "/255")):
        scaled = number * factor
        # If the denominator has only factors 2 and 5, this many digits are exact.
        if 10**MOST_DIGITS % scaled.denominator == 0:
            whole, rest = divmod(scaled.numerator * (10**MOST_DIGITS // scaled.denominator), 10**MOST_DIGITS)
            digits = f"{rest:0{MOST_DIGITS}d}".rstrip("0")
            return f"{whole}{'.' if digits else ''}{digits}{ending}"
    return f"{number.numerator}/{number.denominator}"


def _exact(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(numerator) / Fraction(denominator or 1)


def _from_decimal(number: Fraction) -> Fraction:
    """Return the multiple of 1/255 that agrees with the decimal in 12 significant digits, otherwise the decimal itself.

    What a program prints for 8/255 means 8/255. A decimal that a person wrote is never changed: except for multiples of
    0.2, which are multiples of 1/255 themselves, no decimal of fewer than 11 digits agrees with one.
    """
    nearest = Fraction(round(number * 255), 255)
    return nearest if f"{float(nearest):.{DIGITS}g}" == f"{float(number):.{DIGITS}g}" else number


def check_amount(value: Any) -> str:
    """Return the canonical text of a radius. Raise ValueError if it is not a finite, non-negative number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a number or a fraction such as 8/255")
    return _checked(f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value).replace(" ", ""))


@lru_cache  # a study with thousands of labels has few radii
def _checked(text: str) -> str:
    if not re.fullmatch(r"[+-]?[\d.]{1,30}([eE][+-]?\d{1,2})?(/\d{1,20})?", text):  # 1e999999999 would take forever
        raise ValueError("must be a number or a fraction such as 8/255")
    try:
        number = _exact(text)
        finite = math.isfinite(float(number))
    except (ValueError, ZeroDivisionError):
        raise ValueError("must be a number or a fraction such as 8/255") from None
    except OverflowError:
        finite = False
    if not finite or number < 0:
        raise ValueError("must be finite and not negative")
    return amount_text(number if "/" in text else _from_decimal(number))


# Stored as text: 8/255 and 0.031 are different radii, which a float might blur. Each radius has exactly one text:
# 1/5, 0.20 and 0.2 name the same trials and attacks, as do 8/255 and 0.03137254901960784.
Amount = Annotated[
    str,
    BeforeValidator(check_amount),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[\d.eE+ -]+(/\d+)?$"}]}
    ),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Hyperparameter = bool | int | float | str
NormName = Literal["linf", "l2", "l1"]
NORM_NAMES: tuple[NormName, ...] = ("linf", "l2", "l1")
NORM_DISPLAYS: dict[str, str] = {"linf": "Linf", "l2": "L2", "l1": "L1"}  # as AutoAttack writes them

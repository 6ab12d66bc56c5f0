"""Checked values that settings are made of: radii as text, bounded numbers, frozen models. Loads no torch."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Strict(BaseModel):
    """Unknown keys are faults, values never change after they were checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def as_float(amount: str | float | int) -> float:
    """The number behind an amount such as '8/255', '0.031' or 0.1."""
    return float(Fraction(amount)) if isinstance(amount, str) else float(amount)


def _check_amount(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a number or a fraction such as 8/255")
    text = f"{value:.12g}" if isinstance(value, float) else str(value).replace(" ", "")
    if not re.fullmatch(r"[+-]?[\d.]{1,30}([eE][+-]?\d{1,2})?(/\d{1,20})?", text):  # 1e999999999 would take for ever
        raise ValueError("must be a number or a fraction such as 8/255")
    try:
        number = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError("must be a number or a fraction such as 8/255") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError("must be finite and not negative")
    return text


# Kept as text: 8/255 and 0.031 are different radii, and a float would blur which one was meant.
Amount = Annotated[str, BeforeValidator(_check_amount)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Hyperparameter = bool | int | float | str

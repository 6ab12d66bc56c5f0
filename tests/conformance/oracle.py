"""Oracle files: inputs, small models and cases with the values that the official code produced."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class OracleFault(ValueError):
    """A fault in an oracle file."""


@dataclass(frozen=True)
class Case:
    id: str
    family: str
    model_name: str
    inputs: Mapping[str, Any]
    hyper: Mapping[str, Any]
    expected: Mapping[str, Any]

    def given(self, name: str) -> Any:
        """Return a hyperparameter of the case, or of the generator of its inputs."""
        if name not in self.hyper:
            raise OracleFault(f"hyper lacks {name!r}")
        return self.hyper[name]

    def number(self, name: str) -> float:
        value = self.given(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise OracleFault(f"hyper {name!r} = {value!r} must be a number")
        return float(value)

    def whole(self, name: str) -> int:
        value = self.number(name)
        if value != int(value):
            raise OracleFault(f"hyper {name!r} = {value!r} must be a whole number")
        return int(value)

    def vector(self, name: str) -> Tensor:
        return as_tensor(self.given(name), f"hyper {name!r}")

    @property
    def x(self) -> Tensor:
        return self._array("x", lambda i: 0.5 + 0.5 * torch.sin(1.3 * i + self.phase("psi")))

    @property
    def unit_noise(self) -> Tensor:
        return self._array("unit_noise", lambda i: torch.sin(2.1 * i + self.phase("psi")))

    @property
    def gauss(self) -> Tensor:
        return self._array("gauss", lambda i: torch.cos(0.9 * i + self.phase("phi")))

    @property
    def x_adv(self) -> Tensor:
        if "x_adv" in self.inputs:
            return as_tensor(self.inputs["x_adv"], "input 'x_adv'")
        return (self.x + 8 / 255 * self.unit_noise).clamp(0, 1)

    @property
    def labels(self) -> Tensor:
        name = "y_convbn" if self.model_name == "convbn" else "y_lin"
        if name not in self.inputs:
            raise OracleFault(f"the inputs lack {name!r}")
        labels = as_tensor(self.inputs[name], f"input {name!r}")
        if labels.dim() != 1 or not torch.isin(labels, torch.arange(self.classes)).all():
            raise OracleFault(f"input {name!r} must be a list of whole numbers from 0 to {self.classes - 1}")
        return labels.long()

    @property
    def classes(self) -> int:
        for name in ("b", "W"):
            if name in self.inputs:
                return len(as_tensor(self.inputs[name], f"input {name!r}"))
        if "logits" in self.inputs:
            return self.logits.shape[-1]
        return 10

    @property
    def logits(self) -> Tensor:
        """The family's own logits, for cases without a network."""
        if "logits" in self.inputs:
            return as_tensor(self.inputs["logits"], "input 'logits'")
        shape = (len(self.labels), self.classes)
        return 3 * torch.sin(1.9 * _index(shape) + self.phase("phi"))

    def network(self) -> nn.Module:
        """Build a new copy of the small network, in training mode."""
        shape = self.x.shape
        if self.model_name == "lin":
            network: nn.Module = Linear(math.prod(shape[1:]), self.classes)
            values = {
                "fc.weight": self._weights(
                    "W", network, "fc.weight", lambda i: 2.5 * torch.sin(0.7 * i + self.phase("phi"))
                ),
                "fc.bias": self._weights("b", network, "fc.bias", lambda i: 0.1 * torch.cos(i)),
            }
        elif self.model_name == "convbn":
            network = ConvBatchNorm(shape[1], self.classes)
            formulas = {
                "conv.weight": lambda i: 0.4 * torch.sin(0.9 * i + self.phase("phi")),
                "bn.weight": lambda i: 1 + 0.1 * torch.cos(i),
                "bn.bias": lambda i: 0.05 * torch.sin(i),
                "fc.weight": lambda i: 12 * torch.cos(1.7 * i + self.phase("phi")),
                "fc.bias": lambda i: 0.1 * torch.sin(2 * i),
            }
            values = {name: f(_index(network.get_parameter(name).shape)) for name, f in formulas.items()}
        else:
            raise OracleFault(f"unknown model {self.model_name!r}; known: lin, convbn, logits, none")
        network.load_state_dict(values, strict=False)
        return network.train()

    def _weights(self, name: str, network: nn.Module, parameter: str, formula: Any) -> Tensor:
        if name in self.inputs:
            return as_tensor(self.inputs[name], f"input {name!r}")
        return formula(_index(network.get_parameter(parameter).shape))

    def _array(self, name: str, formula: Any) -> Tensor:
        if name in self.inputs:
            return as_tensor(self.inputs[name], f"input {name!r}")
        shape = self.x.shape if name != "x" else (len(self.labels), 3, 4, 4)
        return formula(_index(shape))

    def phase(self, name: str) -> float:
        if name not in self.inputs:
            raise OracleFault(f"the inputs lack the phase {name!r} of their generator")
        return float(self.inputs[name])


class Linear(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(features, classes, dtype=torch.float64)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(images.flatten(1))


class ConvBatchNorm(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3, padding=1, bias=False, dtype=torch.float64)
        self.bn = nn.BatchNorm2d(4, dtype=torch.float64)
        self.fc = nn.Linear(4, classes, dtype=torch.float64)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(torch.relu(self.bn(self.conv(images))).mean(dim=(2, 3)))


def load(path: Path) -> list[Case]:
    """Load all cases of a .json or .json.gz file and check their form. OracleFault names the first fault."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = _plain(json.loads(raw))
    except FileNotFoundError:
        raise OracleFault("there is no such file") from None
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise OracleFault(f"cannot be read as JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise OracleFault("must be an object with a list of 'cases'")
    inputs = content.get("inputs", {})
    if not isinstance(inputs, dict) or not all(isinstance(value, dict) for value in inputs.values()):
        raise OracleFault("'inputs' must be an object of input sets")
    if not content["cases"]:
        raise OracleFault("has no cases")
    return [_case(number, entry, inputs) for number, entry in enumerate(content["cases"])]


def _case(number: int, entry: Any, inputs: dict[str, Any]) -> Case:
    if not isinstance(entry, dict):
        raise OracleFault(f"case {number} must be an object")
    for key, kind in (("id", str), ("family", str), ("expected", dict)):
        if not isinstance(entry.get(key), kind):
            raise OracleFault(
                f"case {number} ({entry.get('id', 'no id')!r}) lacks {key!r}, or it is no {kind.__name__}"
            )
    if _is_hollow(entry["expected"]):
        raise OracleFault(f"case {entry['id']!r} expects nothing")
    hyper = entry.get("hyper") or {}
    if not isinstance(hyper, dict):
        raise OracleFault(f"'hyper' of case {entry['id']!r} must be an object")
    input_set = str(entry.get("input_set", "-"))
    if input_set != "-" and input_set not in inputs:
        raise OracleFault(f"case {entry['id']!r} names the unknown input set {input_set!r}")
    model = str(entry.get("model", "none"))
    return Case(entry["id"], entry["family"], model, inputs.get(input_set, {}), hyper, entry["expected"])


def _is_hollow(expected: dict[str, Any]) -> bool:
    """Return whether the expected values, or a part of them, contain nothing to compare."""
    parts = [part for part in expected.values() if isinstance(part, dict)]
    return not expected or any(_is_hollow(part) for part in parts)


def _plain(value: Any) -> Any:
    """Convert "inf" and "-inf" to numbers, because the file stores infinity as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {"inf": math.inf, "-inf": -math.inf}.get(value, value) if isinstance(value, str) else value


def as_tensor(value: Any, what: str) -> Tensor:
    try:
        return torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise OracleFault(f"{what} is no array of numbers") from None


def _index(shape: Any) -> Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float64).view(*shape)

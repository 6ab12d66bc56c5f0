"""Counts where a host waits for its device: on the meta device, which computes nothing, every such place is seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# What has to know values: a number for the host, or how many entries of a mask are true.
ASKS = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero, aten._unique2}
COPIES = {aten._to_copy, aten.copy_}


class Waits(TorchDispatchMode):
    """Stands in for a device: what needs a value is counted and answered as if all masks were true, all numbers 1."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return sum(self.seen.values())

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        operation = function.overloadpacket
        if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"):
            with self:  # in inference mode nobody else takes an operation apart
                return function.decompose(*arguments, **keywords)
        if operation in ASKS and _on_device(arguments[0]):
            self.seen[str(operation)] += 1
            return _answer(operation, arguments)
        if operation is aten.index and any(_is_mask(one) for one in arguments[1]):
            self.seen["index by a mask"] += 1
            return aten.index(arguments[0], [one.new_empty(len(one), dtype=torch.long) for one in arguments[1]])
        if operation in (aten.index_put_, aten.index_put) and any(_is_mask(one) for one in arguments[1]):
            self.seen["assignment by a mask"] += 1
            return arguments[0]
        if operation in COPIES and _is_awaited(operation, arguments, keywords):
            self.seen[str(operation)] += 1
            if operation is aten._to_copy and _on_device(arguments[0]):
                return torch.ones(arguments[0].shape, dtype=keywords.get("dtype") or arguments[0].dtype)
        return function(*arguments, **keywords)


def _on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == "meta"


def _is_mask(value: Any) -> bool:
    return _on_device(value) and value.dtype == torch.bool


def _is_awaited(operation: Any, arguments: Any, keywords: Any) -> bool:
    """A copy between host and device; to the device only where the host did not say that it goes on meanwhile."""
    if operation is aten._to_copy:
        source, target = arguments[0].device, torch.device(keywords.get("device") or arguments[0].device)
        goes_on = keywords.get("non_blocking", False)
    else:
        target, source = arguments[0].device, arguments[1].device
        goes_on = len(arguments) > 2 and arguments[2]
    if {source.type, target.type} != {"cpu", "meta"}:
        return False
    return source.type == "meta" or not goes_on


def _answer(operation: Any, arguments: Any) -> Any:
    asked = arguments[0]
    if operation is aten.nonzero:
        return torch.empty((asked.numel(), asked.dim()), dtype=torch.long, device="meta")
    if operation is aten.masked_select:
        return torch.empty((arguments[1].numel(),), dtype=asked.dtype, device="meta")
    if operation is aten._local_scalar_dense:
        return True if asked.dtype == torch.bool else 1
    raise NotImplementedError(f"{operation} on the device")

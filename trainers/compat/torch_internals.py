"""What we use of torch beyond its documented interface, with the reason for each."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

# The only ancestor of every BatchNorm: networks derive their own from it directly, which a list of torch's public
# classes would miss.
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

# The base class of what sees every operation. Torch's notes on extending it document the class, at this address.
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "BatchNorm",
    "TorchDispatchMode",
    "batchnorms",
    "copy_without_hooks",
    "floating_point_operations",
    "raise_recompile_limit",
    "storage_key",
]


def batchnorms(model: nn.Module) -> list[BatchNorm]:
    """Return the model's BatchNorm layers of any dimension, those of a user's own class included."""
    return [module for module in model.modules() if isinstance(module, BatchNorm)]


def copy_without_hooks(model: nn.Module) -> nn.Module:
    """Return a copy that shares the model's parameters, owns its buffers and has none of its forward hooks.

    Torch removes a hook only by the handle that its owner holds. A copy that keeps the hooks would report to whoever
    watches the model.
    """
    memo: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    for module in model.modules():
        memo |= {id(hooks): OrderedDict() for hooks in (module._forward_hooks, module._forward_pre_hooks)}
    return copy.deepcopy(model, memo)


def floating_point_operations(
    function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], result: Any
) -> int:
    """Return the operations of one call that a `TorchDispatchMode` has seen; 0 for all but products and convolutions.

    `FlopCounterMode`, the documented counter, hooks into modules, which an attack's gradients do not survive.
    """
    from torch.utils.flop_counter import flop_registry  # only planning counts

    count = flop_registry.get(function.overloadpacket)
    return 0 if count is None else int(count(*arguments, **keywords, out_val=result))


def storage_key(tensor: Tensor) -> int:
    """Return what tensors that share their memory have in common. `data_ptr` is 0 for all on the meta device."""
    key: int = tensor.untyped_storage()._cdata
    return key


def raise_recompile_limit(limit: int) -> None:
    """Let torch compile at least this many variants of one function before it gives up.

    `torch.compiler.config.recompile_limit` is documented from torch 2.10 on; we support 2.9.
    """
    import torch._dynamo  # takes seconds, and only a compiled network needs it

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, limit)

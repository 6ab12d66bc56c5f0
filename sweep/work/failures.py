"""Classification of a failure by its worker: the fault of the task, its machine or the store, or a lack of memory."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import Literal

import torch

from sweep.listing import size
from sweep.store.patient import StoreGone
from sweep.trials.provenance import device_name
from trainers.dataset import DataMissing

REASON_CHARACTERS = 500
_OF_A_GPU = re.compile(r"CUDA (error|driver|initialization|unknown)|no kernel image|cuDNN|CUDNN|NVML|NCCL")

# trial: a retry may or may not help; loss: fails again at every retry; machine: another one may succeed; store: not
# the fault of the piece or the node; memory: a larger GPU may suffice; hung, died: detected by the driver.
Kind = Literal["trial", "loss", "machine", "store", "memory", "hung", "died"]


@dataclass(frozen=True)
class PieceFailure:
    kind: Kind
    reason: str
    gpu_bytes: int = 0  # memory of the GPU, which was too small


def failure_of(error: BaseException) -> PieceFailure:
    if isinstance(error, torch.OutOfMemoryError):
        return _out_of_memory()
    reason = f"{type(error).__name__}: {error}".strip()[:REASON_CHARACTERS]
    if isinstance(error, StoreGone):
        return PieceFailure("store", reason)
    if isinstance(error, DataMissing | OSError) or _raised_in(error, "data_set") or _is_of_a_gpu(error):
        return PieceFailure("machine", reason)
    # A fault of the code returns at every retry, unlike a disk's.
    if isinstance(error, ValueError | TypeError | AttributeError) and _raised_in(error, "training_step"):
        return PieceFailure("loss", reason)
    return PieceFailure("trial", reason)


def _out_of_memory() -> PieceFailure:
    peak = total = 0
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return PieceFailure(
        "memory",
        f"out of memory on {device_name()}: this trial had {size(peak)} at its peak, the device has {size(total)}. "
        "Two ways out: a device with more memory (a whole one, resources.gpus=1, where trials share it), or a smaller "
        "train.batch_size, which is another trial with other numbers",
        total,
    )


def _is_of_a_gpu(error: BaseException) -> bool:
    """Return whether an error comes from a GPU's driver, kernels or hardware.

    A failed assertion in a kernel is not one of them: it is a wrong index in the code.
    """
    text = str(error)
    return isinstance(error, RuntimeError) and bool(_OF_A_GPU.search(text)) and "device-side assert" not in text


def _raised_in(error: BaseException, function: str) -> bool:
    return any(frame.f_code.co_name == function for frame, _ in traceback.walk_tb(error.__traceback__))

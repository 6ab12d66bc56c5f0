"""Why a task failed, told by its worker: by its own fault, its machine's, the store's, or for want of memory."""

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

# trial: may come again or not; loss: comes again with every retry; machine: another one may be better; store: nobody's
# fault here; memory: a larger GPU may do; hung, died: seen by the driver.
Kind = Literal["trial", "loss", "machine", "store", "memory", "hung", "died"]


@dataclass(frozen=True)
class TaskFailure:
    kind: Kind
    reason: str
    gpu_bytes: int = 0  # of the device whose memory was too small


def failure_of(error: BaseException) -> TaskFailure:
    if isinstance(error, torch.OutOfMemoryError):
        return _out_of_memory()
    reason = f"{type(error).__name__}: {error}".strip()[:REASON_CHARACTERS]
    if isinstance(error, StoreGone):
        return TaskFailure("store", reason)
    if isinstance(error, DataMissing | OSError) or _raised_in(error, "data_set") or _is_of_a_gpu(error):
        return TaskFailure("machine", reason)
    # A fault of the code comes again with every retry, unlike one of a disk.
    if isinstance(error, ValueError | TypeError | AttributeError) and _raised_in(error, "training_step"):
        return TaskFailure("loss", reason)
    return TaskFailure("trial", reason)


def _out_of_memory() -> TaskFailure:
    peak = total = 0
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return TaskFailure(
        "memory",
        f"out of memory on {device_name()}: this trial had {size(peak)} at its peak, the device has {size(total)}. "
        "Two ways out: a device with more memory (a whole one, resources.gpus=1, where trials share it), or a smaller "
        "train.batch_size, which is another trial with other numbers",
        total,
    )


def _is_of_a_gpu(error: BaseException) -> bool:
    """Driver, kernels, hardware. An assertion in a kernel is a wrong index of the code."""
    text = str(error)
    return isinstance(error, RuntimeError) and bool(_OF_A_GPU.search(text)) and "device-side assert" not in text


def _raised_in(error: BaseException, function: str) -> bool:
    return any(frame.f_code.co_name == function for frame, _ in traceback.walk_tb(error.__traceback__))

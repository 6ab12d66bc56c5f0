"""Runs that take turns pass by pass, so that load on the machine slows all of them alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch
from torch import nn


def in_turns(runs: list[tuple[nn.Module, Callable[[], object]]]) -> list[float]:
    """Run all callables in turns, and return the processor seconds of each.

    Only one runs at a time. It hands over to the next whenever it calls its network.
    """
    turns = [threading.Semaphore(0) for _ in runs]
    waiting = list(range(len(runs)))
    seconds = [0.0] * len(runs)
    failures: list[BaseException] = []

    def next_after(number: int) -> threading.Semaphore:
        return turns[next((candidate for candidate in waiting if candidate > number), waiting[0])]

    def take_part(number: int) -> None:
        model, run = runs[number]

        def hand_over(*_: object) -> None:
            next_after(number).release()
            turns[number].acquire()

        turns[number].acquire()
        torch.set_num_threads(1)  # applies to this thread only
        hook, started = model.register_forward_pre_hook(hand_over), time.thread_time()
        try:
            run()
        except BaseException as failure:  # raised in the calling thread, after the other runs
            failures.append(failure)
        finally:
            seconds[number] = time.thread_time() - started
            hook.remove()
            waiting.remove(number)
            if waiting:
                next_after(number).release()

    threads = [threading.Thread(target=take_part, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    turns[0].release()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return seconds

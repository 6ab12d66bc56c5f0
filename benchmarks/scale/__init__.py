"""Ten thousand trials on 512 devices, in virtual time: the real desk, queue, leases and records, without Ray.

    python -m benchmarks.scale [--trials 100 1000 10000]

Three drivers share one store that takes 20 ms for an answer, and devices that are taken away at random, after six
hours on average. Nothing is trained: a task takes as long as its passes would on an A100. What is measured is real: the
processor time of the drivers, their questions to the store, and how long devices wait for them.
"""

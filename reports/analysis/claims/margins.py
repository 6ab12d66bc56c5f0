"""Measures of single training images' margins and of their course: peaks, easy and important images, the first epochs.

A logit margin loss is the largest other logit minus that of the label; a negative one is correct. Each function takes
the values of one training and returns one number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# The share of the training images called important: the paper's M on CIFAR10. The paper itself takes them from a
# histogram's right peak and names no share.
IMPORTANT = 0.4
PROMINENCE = 0.05  # share of the highest peak; anything lower is noise
FIRST_EPOCHS = 5
BINS = 512


def peaks(margins: np.ndarray) -> float:
    """Count the peaks of the density, smoothed with Silverman's bandwidth, that stand out by at least PROMINENCE."""
    from scipy.signal import find_peaks

    low, quarter, half, high = np.quantile(margins, (0.001, 0.25, 0.75, 0.999))
    spread = min(float(margins.std()), float(half - quarter) / 1.34) or float(margins.std())
    if spread == 0.0:
        return 1.0
    width = 0.9 * spread * len(margins) ** -0.2
    edges = np.linspace(low - 4 * width, high + 4 * width, BINS + 1)
    counts = np.histogram(margins, edges)[0]
    step = float(edges[1] - edges[0])
    reach = int(4 * width / step) + 1
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
    density = np.convolve(counts, kernel)
    return float(len(find_peaks(density, prominence=PROMINENCE * density.max())[0]))


def important(margins: np.ndarray) -> float:
    """Return the mean margin loss of the images with the smallest margins."""
    return float(np.sort(margins)[len(margins) - round(IMPORTANT * len(margins)) :].mean())


def easy(margins: np.ndarray) -> float:
    """Return the mean margin loss of the other images."""
    return float(np.sort(margins)[: len(margins) - round(IMPORTANT * len(margins))].mean())


OF_IMAGES: dict[str, Callable[[np.ndarray], float]] = {
    "margin_peaks": peaks,
    "margin_important": important,
    "margin_easy": easy,
}


def early(course: np.ndarray) -> float | None:
    """Return the mean over the first epochs' margin losses; None if there are fewer epochs.

    course: the mean margin loss of each epoch.
    """
    return float(course[:FIRST_EPOCHS].mean()) if len(course) >= FIRST_EPOCHS else None


OF_COURSE: dict[str, Callable[[np.ndarray], float | None]] = {"margin_early": early}

"""Recordings of one spoken word as images: log-magnitude spectrograms, 64×24.

The paper draws AudioMNIST as images of 64×24 (frequency × time) and says no
more.  Ours, for recordings at 8 kHz:

=============  ==============  ==================================================
length         0.96 s          24 columns of 40 ms; the longest of AudioMNIST
                               has 1.00 s.  A shorter recording stands in the
                               middle of silence, a longer one loses as much at
                               either end, so that position says little and a
                               warp has room on both sides
window         Hann, 16 ms     short enough to blur the harmonics of a low voice
                               (pitch below 125 Hz), which tell speakers apart
                               and not digits; long enough for the formants
hop            10 ms           windows overlap, no part of the signal is missed;
                               the power of 4 is averaged in each column
bands          64, mel scale,  near to how ears resolve; and on this scale a
               80 to 4000 Hz   longer or shorter vocal tract moves the formants
                               about equally, as a warp can undo.  Below 80 Hz
                               lies hum
scale          decibels        relative to the loudest cell of the recording, so
                               that loudness and distance do not count
floor          −50 dB          0 in the image: noise of the room stays near it,
                               and what is outside the frame (0) is silence
values         0 to 255        linear in decibels: floor to loudest
=============  ==============  ==================================================

Low frequencies are at the bottom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["PARAMETERS", "SHAPE", "centred", "mel_bands", "spectrograms"]

RATE = 8000
SHAPE = (64, 24)
WINDOW = 128
HOP = 80
HOPS_PER_COLUMN = 4
LENGTH = SHAPE[1] * HOPS_PER_COLUMN * HOP
"""Samples of a recording that an image shows."""

FFT = 512
"""Points of the transform: at 16 Hz a bin, each band holds two bins at least."""

LOWEST_HZ = 80.0
HIGHEST_HZ = RATE / 2
FLOOR_DB = -50.0
_BLOCK = 64
"""Recordings that are transformed at a time: bounds the memory."""

PARAMETERS = {
    "rate_hz": RATE,
    "length_s": LENGTH / RATE,
    "window": "hann",
    "window_ms": 1000 * WINDOW / RATE,
    "hop_ms": 1000 * HOP / RATE,
    "hops_per_column": HOPS_PER_COLUMN,
    "fft_points": FFT,
    "bands": "mel",
    "lowest_hz": LOWEST_HZ,
    "highest_hz": HIGHEST_HZ,
    "floor_db": FLOOR_DB,
}
"""What the images depend on, for the data cards."""


def centred(samples: np.ndarray, length: int = LENGTH) -> np.ndarray:
    """Return a recording as `length` samples: zeros at both ends, or both ends cut.

    An odd sample goes to, or is taken from, the end.
    """
    samples = np.asarray(samples)
    spare = length - len(samples)
    if spare >= 0:
        return np.pad(samples, (spare // 2, spare - spare // 2))
    return samples[-spare // 2 : -spare // 2 + length]


def _mel(hertz: np.ndarray | float) -> np.ndarray:
    """Return a frequency on the mel scale (O'Shaughnessy)."""
    return 2595 * np.log10(1 + np.asarray(hertz, np.float64) / 700)


def mel_bands() -> np.ndarray:
    """Return the weight of each bin in each band, (64, FFT // 2 + 1).

    Band b is a triangle on the mel scale: 1 at its centre, 0 at the centres of
    its neighbours.  Weights sum to 1, so a band's value is a mean power.  The
    highest band comes first.
    """
    bins = _mel(np.fft.rfftfreq(FFT, 1 / RATE))
    edges = np.linspace(_mel(LOWEST_HZ), _mel(HIGHEST_HZ), SHAPE[0] + 2)
    distance = np.abs(bins - edges[1:-1, None]) / (edges[1] - edges[0])
    weights = np.clip(1 - distance, 0, None)
    return (weights / weights.sum(axis=1, keepdims=True))[::-1]


def _powers(recordings: np.ndarray) -> np.ndarray:
    """Return the mean power (N, 64, 24) of recordings (N, LENGTH) in each cell."""
    from scipy.signal import ShortTimeFFT, get_window

    transform = ShortTimeFFT(
        get_window("hann", WINDOW), HOP, RATE, mfft=FFT, scale_to="magnitude", fft_mode="onesided"
    )
    # slice p is centred at sample p * HOP; half a hop in front puts one in the
    # middle of each hop of the recording
    padded = np.pad(recordings.astype(np.float64), ((0, 0), (HOP // 2, 0)))
    power = transform.spectrogram(padded, p0=1, p1=1 + SHAPE[1] * HOPS_PER_COLUMN)
    columns = power.reshape(*power.shape[:2], SHAPE[1], HOPS_PER_COLUMN).mean(axis=-1)
    return mel_bands() @ columns


def spectrograms(recordings: Iterable[np.ndarray]) -> np.ndarray:
    """Return the images of recordings at 8 kHz (see the module's text).

    Parameters
    ----------
    recordings : iterable of ndarray, (samples,)
        Any real type and loudness, any length.

    Returns
    -------
    ndarray of uint8, (N, 64, 24)
        0: 50 dB or more below the loudest cell; 255: the loudest cell.  A
        recording of silence is black.
    """
    images: list[np.ndarray] = []
    block: list[np.ndarray] = []
    for recording in recordings:
        block.append(centred(recording))
        if len(block) == _BLOCK:
            images.append(_images(block))
            block = []
    if block:
        images.append(_images(block))
    return np.concatenate(images) if images else np.empty((0, *SHAPE), np.uint8)


def _images(block: Sequence[np.ndarray]) -> np.ndarray:
    """Return the images of recordings of LENGTH samples each."""
    power = _powers(np.stack(block))
    loudest = power.max(axis=(1, 2), keepdims=True)
    floor = 10 ** (FLOOR_DB / 10)
    # silence has no loudest cell: all of it is at the floor
    relative = np.divide(power, loudest, out=np.zeros_like(power), where=loudest > 0)
    decibels = 10 * np.log10(np.maximum(relative, floor))
    return np.rint(255 * (1 - decibels / FLOOR_DB)).astype(np.uint8)

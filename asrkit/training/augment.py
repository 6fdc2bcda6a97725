"""Augmentation of samples and features in training."""

import math
import random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit.audio.frontends.base import NYQUIST, SAMPLE_RATE, Frontend
from asrkit.audio.resampler import resample

SILENCE_DB = (-110.0, -45.0)  # dBFS, range of the level of a silence's white noise
DIGITAL_DB = -96.0  # dBFS; 16-bit samples are 0 below this level
TELEPHONE_RATE = 8000  # Hz
MU = 255.0  # parameter of 8-bit mu-law
WARP_EDGE = 4800.0  # Hz, above the formants that tell vowels apart


class SpecAugment(NamedTuple):
    """SpecAugment (Park et al. 2019): masks over time and frequency, filled with the row's mean.

    The width of a mask is uniform from 0 to its limit, and its place is uniform.
    """

    frequency_masks: int  # number of frequency masks
    frequency_bins: int  # mel bins in the widest frequency mask
    time_masks: int  # largest number of time masks
    time_frames: int  # feature frames in the longest time mask
    max_time_share: float  # largest share of an utterance's frames that time masks cover together

    def __call__(
        self, feats: Tensor, lengths: Tensor, probability: float, draw: random.Random
    ) -> Tensor:
        """Return masked (B, T, F) features; `draw` chooses the rows, with this probability.

        Pass lengths on the CPU: reading them from a GPU would wait for it.
        """
        feats = feats.clone()
        for row, length in zip(feats, lengths.tolist(), strict=True):
            if draw.random() >= probability:
                continue
            valid = row[:length]
            mean = valid.mean()
            bins = [min(self.frequency_bins, row.size(1))] * self.frequency_masks
            for start, end in draw_masks(row.size(1), bins, draw):
                valid[:, start:end] = mean
            for start, end in draw_masks(length, self.time_limits(length), draw):
                valid[start:end] = mean
        return feats

    def time_limits(self, length: int) -> list[int]:
        """Return the largest width of each time mask for `length` frames.

        The sum is at most `max_time_share` of the frames. It is divided into masks of `time_frames`
        and a shorter last one, but at most `time_masks`.
        """
        total = int(self.max_time_share * length)
        lefts = range(total, 0, -self.time_frames)
        return [min(self.time_frames, left) for left in lefts][: self.time_masks]


def draw_masks(size: int, limits: list[int], draw: random.Random) -> list[tuple[int, int]]:
    """Draw start and end of a mask within `size` for each limit, the mask's largest width."""
    widths = [draw.randint(0, limit) for limit in limits]
    starts = [draw.randint(0, size - width) for width in widths]
    return [(start, start + width) for start, width in zip(starts, widths, strict=True)]


def mix_noise(samples: np.ndarray, noise: np.ndarray, snr_db: float) -> np.ndarray:
    """Add noise (m,), repeated to the length of (n,) samples, at this ratio of their mean squares.

    Noise without energy, for which no gain reaches the ratio, is not added.
    """
    noise = np.resize(noise, samples.shape)
    energy = np.mean(np.square(noise, dtype=np.float64))
    if energy == 0.0:
        return samples
    wanted = np.mean(np.square(samples, dtype=np.float64)) * 10.0 ** (-snr_db / 10.0)
    return samples + (np.sqrt(wanted / energy) * noise).astype(np.float32)


def in_a_room(samples: np.ndarray, room: int, source: int) -> np.ndarray:
    """Place (n,) samples at 16 kHz in a synthetic room (Luo and Yu 2022) at the same loudness.

    Both seeds and torch's global generator determine the room and the place of the source.
    """
    from lhotse.augmentation import FastRandomRIRGenerator, ReverbWithImpulseResponse

    rooms = FastRandomRIRGenerator(SAMPLE_RATE, room_seed=room, source_seed=source)
    reverb = ReverbWithImpulseResponse(rir_generator=rooms)
    return reverb(samples[None], SAMPLE_RATE)[0]


def between_silences(samples: np.ndarray, longest: float, draw: random.Random) -> np.ndarray:
    """Add a silence of 0 to `longest` seconds before and after (n,) samples at 16 kHz.

    It is faint white noise, or zeros.
    """
    before, after = silences(longest, 2, draw)
    return np.concatenate([before, samples, after]).astype(np.float32, copy=False)


def silences(longest: float, count: int, draw: random.Random) -> list[np.ndarray]:
    """Draw silences of one level, each of 0 to `longest` seconds."""
    counts = [int(draw.uniform(0.0, longest) * SAMPLE_RATE) for _ in range(count)]
    level = draw.uniform(*SILENCE_DB)
    scale = 10.0 ** (level / 20.0) if level > DIGITAL_DB else 0.0
    noise = np.random.default_rng(draw.getrandbits(64))
    return [scale * noise.standard_normal(n, dtype=np.float32) for n in counts]


def with_pauses(samples: np.ndarray, longest: float, draw: random.Random) -> np.ndarray:
    """Put one or two silences of 0 to `longest` seconds inside (n,) samples at 16 kHz.

    Each is at the quietest place near a random one. Less than half a second stays unchanged.
    """
    if len(samples) < SAMPLE_RATE // 2:
        return samples
    pauses = silences(longest, draw.randint(1, 2), draw)
    places = sorted(quiet_place(samples, draw.uniform(0.15, 0.85)) for _ in pauses)
    parts = np.split(samples, places)
    mixed = [part for pair in zip(parts, pauses, strict=False) for part in pair]
    return np.concatenate([*mixed, parts[-1]]).astype(np.float32, copy=False)


def quiet_place(samples: np.ndarray, share: float) -> int:
    """Return the middle of the quietest 40 ms within 0.25 s of a share of (n,) samples."""
    size, reach = SAMPLE_RATE // 25, SAMPLE_RATE // 4
    start = max(0, int(share * len(samples)) - reach)
    near = np.square(samples[start : start + 2 * reach], dtype=np.float64)
    energy = np.convolve(near, np.ones(size), "valid")[:: size // 4]
    return start + int(energy.argmin()) * (size // 4) + size // 2


def through_telephone(samples: np.ndarray) -> np.ndarray:
    """Pass (n,) samples at 16 kHz through a telephone's 8 kHz and 8-bit mu-law (ITU-T G.711)."""
    narrow = resample(samples, SAMPLE_RATE, TELEPHONE_RATE).clip(-1.0, 1.0)
    compressed = np.copysign(np.log1p(MU * np.abs(narrow)) / np.log1p(MU), narrow)
    compressed = np.round((compressed + 1.0) / 2.0 * MU) / MU * 2.0 - 1.0  # 256 levels
    expanded = np.copysign(np.expm1(np.abs(compressed) * np.log1p(MU)) / MU, compressed)
    return resample(expanded.astype(np.float32), TELEPHONE_RATE)


def warp_frequencies(feats: Tensor, width: float, frontend: Frontend) -> Tensor:
    """Vocal tract length perturbation (VTLP, Jaitly and Hinton 2013) of (B, T, F) log mels.

    Each row's frequencies are scaled by a factor drawn from [1 - width, 1 + width]. Above about
    4.8 kHz the scale bends, so that the end of the band stays in place. Values between filters are
    interpolated.
    """
    if width == 0.0:
        return feats
    top, scale = NYQUIST, frontend.scale
    edges = torch.from_numpy(frontend.edges()).to(feats, non_blocking=True)
    centers = scale.to_hertz(edges[1:-1])  # (F,) Hz
    drawn = torch.rand(feats.size(0), 1).to(feats, non_blocking=True)
    factor = 1.0 + width * (2.0 * drawn - 1.0)  # (B, 1)
    bend = WARP_EDGE * factor.clamp(max=1.0) / factor
    bent = top - (top - bend * factor) / (top - bend) * (top - centers)
    source = torch.where(centers <= bend, centers * factor, bent)  # (B, F) Hz
    place = (scale.of_hertz(source) - edges[1]) / (edges[2] - edges[1])  # in filters
    place = place.clamp(0.0, feats.size(2) - 1.0)
    lower = place.floor().long().clamp(max=feats.size(2) - 2)  # (B, F)
    share = (place - lower)[:, None]
    left, right = (feats.gather(2, i[:, None].expand_as(feats)) for i in (lower, lower + 1))
    return left.lerp(right, share.to(feats.dtype))


def change_gain(feats: Tensor, width: float) -> Tensor:
    """Shift each row's log mels (B, T, F) like a gain drawn from [-width, width] decibels."""
    if width == 0.0:
        return feats
    decibels = width * (2.0 * torch.rand(feats.size(0), 1, 1) - 1.0)
    return feats + (decibels * math.log(10.0) / 10.0).to(feats, non_blocking=True)

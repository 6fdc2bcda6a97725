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
DIGITAL_DB = -96.0  # dBFS; below it, samples of 16 bits are 0
TELEPHONE_RATE = 8000  # Hz
MU = 255.0  # of mu-law with 8 bits
WARP_EDGE = 4800.0  # Hz, above the formants that tell vowels apart


class SpecAugment(NamedTuple):
    """SpecAugment (Park et al. 2019): masks over time and frequency, filled with the row's mean.

    A mask's width is uniform from 0 to its limit, its place is uniform. The draws come from the
    global generator of `random`.

    Attributes:
        frequency_masks: number of frequency masks.
        frequency_bins: mel bins in the widest one.
        time_masks: largest number of time masks.
        time_frames: feature frames in the longest one.
        max_time_share: largest share of an utterance's frames that time masks cover together.
    """

    frequency_masks: int
    frequency_bins: int
    time_masks: int
    time_frames: int
    max_time_share: float

    def __call__(self, feats: Tensor, lengths: Tensor, probability: float) -> Tensor:
        """A copy of (B, T, F) features; each row is masked, with this probability, within (B,).

        The lengths are read: on the CPU they wait for no GPU.
        """
        feats = feats.clone()
        for row, length in zip(feats, lengths.tolist(), strict=True):
            if random.random() >= probability:
                continue
            valid = row[:length]
            mean = valid.mean()
            bins = [min(self.frequency_bins, row.size(1))] * self.frequency_masks
            for start, end in draw_masks(row.size(1), bins):
                valid[:, start:end] = mean
            for start, end in draw_masks(length, self.time_limits(length)):
                valid[start:end] = mean
        return feats

    def time_limits(self, length: int) -> list[int]:
        """The largest width of each time mask of `length` frames.

        Their sum is at most the share of the frames. It is used up by masks of `time_frames` and
        one of the rest, if there are not more than `time_masks`.
        """
        total = int(self.max_time_share * length)
        lefts = range(total, 0, -self.time_frames)
        return [min(self.time_frames, left) for left in lefts][: self.time_masks]


def draw_masks(size: int, limits: list[int]) -> list[tuple[int, int]]:
    """Start and end of a mask within `size` for each limit, which its width may reach."""
    widths = [random.randint(0, limit) for limit in limits]
    starts = [random.randint(0, size - width) for width in widths]
    return [(start, start + width) for start, width in zip(starts, widths, strict=True)]


def mix_noise(samples: np.ndarray, noise: np.ndarray, snr_db: float) -> np.ndarray:
    """The samples with noise, repeated to their length, at a ratio of their mean squares.

    Noise without energy, which no gain can raise to a ratio, changes nothing.

    Args:
        samples: (n,).
        noise: (m,) at the same rate.
        snr_db: ratio of the samples to the noise.
    """
    noise = np.resize(noise, samples.shape)
    energy = np.mean(np.square(noise, dtype=np.float64))
    if energy == 0.0:
        return samples
    wanted = np.mean(np.square(samples, dtype=np.float64)) * 10.0 ** (-snr_db / 10.0)
    return samples + (np.sqrt(wanted / energy) * noise).astype(np.float32)


def in_a_room(samples: np.ndarray, room: int, source: int) -> np.ndarray:
    """(n,) samples at 16 kHz in a synthetic room (Luo and Yu 2022), as loud as they were.

    The room and the place of the source come from these seeds and torch's global generator.
    """
    from lhotse.augmentation import FastRandomRIRGenerator, ReverbWithImpulseResponse

    rooms = FastRandomRIRGenerator(SAMPLE_RATE, room_seed=room, source_seed=source)
    reverb = ReverbWithImpulseResponse(rir_generator=rooms)
    output: np.ndarray = reverb(samples[None], SAMPLE_RATE)[0]
    return output


def between_silences(samples: np.ndarray, longest: float, draw: random.Random) -> np.ndarray:
    """The samples with a silence before and after them: faint white noise, or zeros.

    Args:
        samples: (n,) at 16 kHz.
        longest: seconds; each silence's length is drawn between 0 and this.
        draw: generator of the lengths, the level and the noise.
    """
    counts = [int(draw.uniform(0.0, longest) * SAMPLE_RATE) for _ in range(2)]
    level = draw.uniform(*SILENCE_DB)
    scale = 10.0 ** (level / 20.0) if level > DIGITAL_DB else 0.0
    noise = np.random.default_rng(draw.getrandbits(64))
    before, after = (scale * noise.standard_normal(n, dtype=np.float32) for n in counts)
    return np.concatenate([before, samples, after]).astype(np.float32, copy=False)


def through_telephone(samples: np.ndarray) -> np.ndarray:
    """(n,) samples at 16 kHz after a telephone's 8 kHz and 8-bit mu-law (ITU-T G.711)."""
    narrow = torch.from_numpy(resample(samples, SAMPLE_RATE, TELEPHONE_RATE)).clamp(-1.0, 1.0)
    return resample(through_mu_law(narrow).numpy(), TELEPHONE_RATE)


def through_mu_law(samples: Tensor) -> Tensor:
    """Samples from -1 to 1 as 8 bits on the scale of mu-law hold them."""
    log_mu = torch.log1p(torch.tensor(MU))
    compressed = samples.sign() * torch.log1p(MU * samples.abs()) / log_mu
    levels = ((compressed + 1.0) / 2.0 * MU + 0.5).floor()  # 0 to 255
    compressed = levels / MU * 2.0 - 1.0
    return compressed.sign() * (torch.exp(compressed.abs() * log_mu) - 1.0) / MU


def warp_frequencies(feats: Tensor, width: float, frontend: Frontend) -> Tensor:
    """Vocal tract length perturbation (VTLP, Jaitly and Hinton 2013) of (B, T, F) log mels.

    Each row's frequencies are scaled by a factor drawn from [1 - width, 1 + width], and above about
    4.8 kHz so that the band's end stays where it is. Values between filters are interpolated.

    Args:
        feats: (B, T, F) log mels.
        width: below 1; 0 changes nothing.
        frontend: whose features they are.
    """
    if width == 0.0:
        return feats
    top, scale = NYQUIST, frontend.scale
    edges = frontend.edges().to(feats, non_blocking=True)
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
    """Each row's log mels shifted as by a gain of the samples, drawn from [-width, width] decibels.

    Args:
        feats: (B, T, F) log mels.
        width: decibels; 0 changes nothing.
    """
    if width == 0.0:
        return feats
    decibels = width * (2.0 * torch.rand(feats.size(0), 1, 1) - 1.0)
    return feats + (decibels * math.log(10.0) / 10.0).to(feats, non_blocking=True)

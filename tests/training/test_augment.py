"""Warped frequencies: a tone moves to where its factor says. Gain: that of the samples.
Silence: around them. A telephone: half the band, in 8 bits. SpecAugment: masks of all widths."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit.audio import Fbank
from asrkit.model.frontend import TorchFrontend
from asrkit.training.augment import (
    SpecAugment,
    between_silences,
    change_gain,
    through_telephone,
    warp_frequencies,
    with_pauses,
)

FBANK = TorchFrontend(Fbank(80)).of_tensors()


def tone(hertz: float, rows: int = 1) -> Tensor:
    samples = torch.sin(2 * math.pi * hertz * torch.arange(16000) / 16000)
    samples = samples.expand(rows, -1)
    feats: Tensor = FBANK(samples, samples[:, :0])[0]
    return feats


def peak(feats: Tensor) -> Tensor:
    """Hz of the loudest filter of each row, read off as a centre of gravity."""
    weights = feats.mean(1).exp()  # (B, F)
    centers = torch.from_numpy(FBANK.edges())[1:-1]
    centroid = (weights * centers).sum(1) / weights.sum(1)
    return 700.0 * torch.expm1(centroid / 1127.0)


def test_tones_move_by_the_factors_drawn_for_their_rows() -> None:
    torch.manual_seed(0)
    factors = 1.0 + 0.2 * (2.0 * torch.rand(6, 1) - 1.0)
    torch.manual_seed(0)
    warped = warp_frequencies(tone(1500.0, 6), 0.2, FBANK)
    ratios = peak(tone(1500.0)) / peak(warped)
    assert (ratios - factors[:, 0]).abs().max() < 0.03
    assert factors.max() - factors.min() > 0.1
    ramp = torch.arange(80.0).expand(50, 3, 80)  # the band and its order stay
    warped = warp_frequencies(ramp, 0.3, FBANK)
    assert (warped.diff(dim=2) >= 0).all()
    assert warped.min() >= 0.0
    assert 77.5 < warped[:, :, -1].min() <= warped.max() <= 79.0
    assert warp_frequencies(ramp, 0.0, FBANK) is ramp


def test_a_gain_is_that_of_the_samples() -> None:
    samples = 0.1 * torch.randn(3, 8000)
    torch.manual_seed(0)
    decibels = 20.0 * (2.0 * torch.rand(3, 1) - 1.0)
    torch.manual_seed(0)
    changed = change_gain(FBANK(samples, samples[:, :0])[0], 20.0)
    louder = samples * 10.0 ** (decibels / 20.0)
    assert (changed - FBANK(louder, samples[:, :0])[0]).abs().max() < 1e-3
    assert decibels.max() - decibels.min() > 5.0
    assert change_gain(changed, 0.0) is changed


def test_silences() -> None:
    """The utterance is whole between them; they are of all lengths and levels, and repeatable."""
    samples = np.full(100, 0.5, dtype=np.float32)
    draw, before, levels = random.Random(0), [], []
    for _ in range(200):
        padded = between_silences(samples, 1.5, draw)
        (place,) = (padded == 0.5).nonzero()
        assert (padded[place[0] : place[0] + 100] == samples).all()
        assert padded.dtype == np.float32
        before.append(place[0])
        after = padded[place[0] + 100 :]
        assert len(after) <= 24000
        levels.append(padded[: place[0]].std())
    assert min(before) < 1000 < 23000 < max(before) <= 24000
    assert 20 < sum(level == 0.0 for level in levels) < 80
    assert 1e-3 < max(levels) < 10 ** (-44 / 20)


def test_pauses_inside() -> None:
    """Nothing of the utterance is lost, and silences are at its quiet places."""
    tone = 0.5 * np.ones(12_000, dtype=np.float32)
    gap = np.full(2_000, 1e-3, dtype=np.float32)
    samples, draw, lengths = np.concatenate([tone, gap, tone]), random.Random(0), set()
    inside = 0
    for _ in range(50):
        paused = with_pauses(samples, 0.5, draw)
        assert paused.dtype == np.float32
        assert np.array_equal(paused[paused == 0.5], samples[samples == 0.5])
        assert 0 < len(paused) - len(samples) <= 16_000
        lengths.add(len(paused))
        inside += bool((paused[:12_000] == 0.5).all() and (paused[-12_000:] == 0.5).all())
    assert len(lengths) > 40
    assert inside > 10  # a random place is within a quarter of a second of the gap that often
    assert np.array_equal(with_pauses(tone[:4_000], 0.5, draw), tone[:4_000])


@pytest.mark.parametrize("level", [1.0, 0.01])
def test_a_telephone_carries_half_the_band_in_eight_bits(level: float) -> None:
    """mu-law's error is 36 to 40 dB below a tone (ITU-T G.712), whatever its level."""
    seconds = np.arange(16000, dtype=np.float32) / 16000
    low, high = (level * np.sin(2 * np.pi * hertz * seconds) for hertz in (1013.0, 5000.0))
    middle = slice(1000, 15000)  # the resampler's ends ring

    def error(output: np.ndarray, wanted: np.ndarray) -> float:
        difference = (output[: len(wanted)] - wanted)[middle]
        return 20 * math.log10(np.sqrt(np.mean(difference**2) / np.mean(low[middle] ** 2)))

    output = through_telephone(low)
    assert -42 < error(output, low) < -30
    assert error(through_telephone(high), 0.0 * high) < -35
    assert np.abs(through_telephone(3.0 / level * low)).max() < 1.5  # clipped


def masked_parts(masks: SpecAugment, length: int, num_rows: int) -> tuple[Tensor, Tensor]:
    """The masked frames (B, length) and mel bins (B, 80) of rows with 7 frames of padding."""
    torch.manual_seed(0)
    feats = torch.randn(num_rows, length + 7, 80)
    output = masks(feats, torch.full((num_rows,), length), 1.0, random.Random(0))
    assert torch.equal(output[:, length:], feats[:, length:])
    means = feats[:, :length].mean((1, 2))
    changed = output != feats
    assert (output - means[:, None, None])[changed].abs().max() < 1e-6
    changed = changed[:, :length]
    frames, bins = changed.all(2), changed.all(1)
    assert torch.equal(changed, frames[:, :, None] | bins[:, None, :])
    return frames, bins


@pytest.mark.parametrize("length", [1, 33, 1000])
@pytest.mark.parametrize("share", [0.02, 0.15, 1.0])
def test_every_length_gets_frequency_masks_and_time_masks_within_the_share(
    length: int, share: float
) -> None:
    frames, bins = masked_parts(SpecAugment(2, 27, 10, 40, share), length, 200)
    allowed = share * length
    counts = frames.sum(1)
    assert counts.max() <= allowed
    assert (counts.sum() > 0) == (allowed >= 1.0)
    if share < 1.0:  # a row that is masked whole does not show its bins
        assert (bins.sum(1) > 0).double().mean() > 0.95
        assert 27 < bins.sum(1).max() <= 54


@pytest.mark.parametrize(("length", "share"), [(400, 0.15), (80, 1.0)])
def test_widths_are_uniform_from_0_to_the_configured_value(length: int, share: float) -> None:
    """The last frame and the last bin are masked too, and the first."""
    frames, bins = masked_parts(SpecAugment(1, 27, 1, 40, share), length, 1600)
    for parts, widest in ((frames, 40), (bins, 27)):
        widths = Counter(parts.sum(1).tolist())
        assert sorted(widths) == [*range(widest + 1)]
        expected = 1600 / (widest + 1)
        assert all(0.5 * expected < count < 1.6 * expected for count in widths.values())
        assert parts[:, 0].any()
        assert parts[:, -1].any()


def test_masks_come_with_their_probability_and_again_from_the_same_seed() -> None:
    masks, feats = SpecAugment(2, 27, 10, 40, 0.15), torch.randn(300, 200, 80)

    def output(probability: float) -> Tensor:
        random.random()  # other threads draw from the global generator
        return masks(feats, torch.tensor([200] * 300), probability, random.Random("a batch"))

    changed = {p: (output(p) != feats).any(2).any(1).sum() for p in (0.0, 0.5, 1.0)}
    assert changed[0.0] == 0
    assert 120 < changed[0.5] < 180
    assert changed[1.0] > 290
    assert torch.equal(output(0.5), output(0.5))

"""The frontend: Kaldi's numbers, and the same ones for every split."""

import numpy as np
import pytest
import soundfile
import torch

from asrkit.audio import Fbank
from tests.conftest import RECORDINGS, mel_difference, speech


def kaldi(samples: torch.Tensor, num_mels: int = 80) -> torch.Tensor:
    from torchaudio.compliance.kaldi import fbank

    return fbank(
        samples[None] * 32768, num_mel_bins=num_mels, dither=0.0, snip_edges=True,
        sample_frequency=16000.0, window_type="povey",
    )  # fmt: skip


def ours(samples: torch.Tensor, num_mels: int = 80) -> torch.Tensor:
    return Fbank(num_mels)(samples[None], samples[None, :0])[0][0]


@pytest.mark.parametrize("num_mels", [40, 80])
def test_equals_kaldi(num_mels: int) -> None:
    samples = torch.from_numpy(speech(3.0))
    found, expected = ours(samples, num_mels), kaldi(samples, num_mels)
    assert (found - expected).abs().max() < 1e-3
    assert mel_difference(found, expected) < 1e-4


def test_equals_kaldi_on_real_speech() -> None:
    for path in sorted((RECORDINGS / "an4" / "audio").rglob("*.flac")):
        samples = torch.from_numpy(soundfile.read(path, dtype="float32")[0])
        found, expected = ours(samples), kaldi(samples)
        assert (found - expected).abs().max() < 5e-3
        assert mel_difference(found, expected) < 1e-4


def test_equals_kaldi_on_silence() -> None:
    samples = torch.zeros(1600)
    assert torch.equal(ours(samples), kaldi(samples))


def test_control_another_window_is_noticed() -> None:
    samples = torch.from_numpy(speech(1.0))
    fbank = Fbank()
    fbank.window.fill_(1.0)
    assert mel_difference(fbank(samples[None], samples[None, :0])[0][0], kaldi(samples)) > 0.1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_any_split(dtype: torch.dtype, tolerance: float) -> None:
    samples = torch.from_numpy(speech(2.0)).to(dtype)[None]
    fbank = Fbank().to(dtype)
    whole, _ = fbank(samples, samples[:, :0])
    draw = np.random.default_rng(0)
    past, parts, start = samples[:, :0], [], 0
    while start < samples.size(1):
        size = int(draw.choice([0, 1, 159, 160, 399, 400, 2000]))
        feats, past = fbank(samples[:, start : start + size], past)
        parts.append(feats)
        start += size
    assert (torch.cat(parts, dim=1) - whole).abs().max() < tolerance


def test_160_samples_give_a_frame_after_the_first_240() -> None:
    samples = torch.from_numpy(speech(0.1))[None]
    feats, past = Fbank()(samples[:, 240:400], samples[:, :240])
    assert feats.shape == (1, 1, 80)
    assert torch.equal(past, samples[:, 160:400])


def test_less_than_a_frame() -> None:
    feats, past = Fbank()(torch.zeros(2, 399), torch.zeros(2, 0))
    assert feats.shape == (2, 0, 80)
    assert past.shape == (2, 399)


def test_batch_rows_and_script() -> None:
    rows = torch.stack([torch.from_numpy(speech(1.0, seed)) for seed in range(3)])
    batch, _ = Fbank()(rows, rows[:, :0])
    for row, feats in zip(rows, batch, strict=True):
        assert (ours(row) - feats).abs().max() < 1e-4
    scripted, _ = torch.jit.script(Fbank())(rows, rows[:, :0])
    assert torch.equal(scripted, batch)

"""Every frontend: the same numbers for every split, both ends of a stream among them; Kaldi's,
NeMo's and sherpa-onnx's."""

from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from asrkit.audio import KINDS, Fbank, Frontend, build_frontend, features
from asrkit.audio.frontends.nemo import SlaneyFbank
from asrkit.model.frontend import TorchFrontend
from tests.conftest import RECORDINGS, mel_difference, speech

PHONES = {"kind": "kaldi", "high_frequency": 7600.0, "snip_edges": False}
BAND = {"kind": "kaldi", "low_frequency": 40.0, "high_frequency": 7600.0}
CHOICES: list[Any] = ["kaldi", BAND, PHONES, "slaney", "sherpa_nemo", "whisper"]
LEADS = [0, 7]


def whole(frontend: Frontend, samples: Tensor) -> Tensor:
    """(T, F) of (N,)."""
    feats, _ = features(frontend, samples.numpy()[None], np.array([len(samples)]))
    return torch.from_numpy(feats[0])


def kaldi(samples: Tensor, num_mels: int = 80, **options: Any) -> Tensor:
    from torchaudio.compliance.kaldi import fbank

    return fbank(
        samples[None] * 32768, num_mel_bins=num_mels, dither=0.0, sample_frequency=16000.0,
        window_type="povey", **options,
    )  # fmt: skip


@pytest.mark.parametrize("num_mels", [40, 80])
def test_the_features_are_kaldis(num_mels: int) -> None:
    samples = torch.from_numpy(speech(3.0))
    found, expected = whole(Fbank(num_mels), samples), kaldi(samples, num_mels)
    assert (found - expected).abs().max() < 1e-3
    assert mel_difference(found, expected) < 1e-4
    other = Fbank(num_mels)
    other.window = np.ones_like(other.window)
    assert mel_difference(whole(other, samples), expected) > 0.1  # control
    silence = torch.zeros(1600)
    assert torch.equal(whole(Fbank(num_mels), silence), kaldi(silence, num_mels))


def test_the_features_of_real_speech_are_kaldis() -> None:
    for path in sorted((RECORDINGS / "an4" / "audio").rglob("*.flac")):
        samples = torch.from_numpy(soundfile.read(path, dtype="float32")[0])
        found, expected = whole(Fbank(), samples), kaldi(samples)
        assert (found - expected).abs().max() < 5e-3
        assert mel_difference(found, expected) < 1e-4


@pytest.mark.parametrize(("choice", "options"), [
    (BAND, {"low_freq": 40.0, "high_freq": 7600.0}),
    (PHONES, {"high_freq": -400.0, "snip_edges": False}),
], ids=["band", "edges"])  # fmt: skip
def test_other_options_are_kaldis(choice: Any, options: dict[str, Any]) -> None:
    samples = torch.from_numpy(speech(1.0))
    found, expected = whole(build_frontend(choice, 80), samples), kaldi(samples, **options)
    assert len(expected) - len(found) in (0, 1)  # the last one needs samples after the end
    assert (found - expected[: len(found)]).abs().max() < 1e-3
    other = whole(Fbank(80), samples)  # control
    assert (found[:1] - other[:1]).abs().max() > 0.1


def published(samples: Tensor) -> Tensor:
    """(T, F) of (N,) as NeMo's FilterbankFeatures computes them, by torch.stft."""
    frontend = SlaneyFbank()
    emphasized = torch.cat([samples[:1], samples[1:] - 0.97 * samples[:-1]])
    spectrum = torch.stft(
        emphasized, 512, 160, 400, torch.from_numpy(frontend.window).to(samples), center=True,
        pad_mode="constant", return_complex=True,
    )  # fmt: skip
    mels = torch.from_numpy(frontend.filters).to(samples).T @ spectrum.abs().square()
    return (mels + 2.0**-24).log().T[: len(samples) // 160]


@pytest.mark.parametrize("size", [160, 319, 4000, 16000 + 77])
def test_slaney_is_nemos(size: int) -> None:
    samples = torch.from_numpy(speech(2.0)[:size]).double()
    found, expected = whole(SlaneyFbank().converted(np.float64), samples), published(samples)
    assert found.shape == expected.shape == (size // 160, 80)
    assert (found - expected).abs().max() < 1e-9


def test_control_zeros_after_the_samples_are_not_zeros_after_the_pre_emphasis() -> None:
    samples = torch.from_numpy(speech(1.0)[8000:8640]).double()
    frontend = SlaneyFbank().converted(np.float64)
    padded = np.pad(samples.numpy(), (0, 40))[None]
    found, _ = frontend(padded, frontend.start(1))
    off = abs(found[0] - published(samples).numpy()).max(axis=1)
    assert off[:-1].max() < 1e-9
    assert off[-1] > 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_any_split_and_rows(choice: Any, lead: int, dtype: str) -> None:
    """In packets, and as a row among others that end elsewhere: bit for bit; PyTorch's are near."""
    frontend = build_frontend(choice, 80, lead).converted(lambda array: array.astype(dtype))
    draw = np.random.default_rng(0)
    sizes = np.array([16000, 9999, 0, 100, 4800])
    rows = np.stack([speech(1.0, seed).astype(dtype) for seed in range(5)])
    for row, size in zip(rows, sizes, strict=True):
        row[size:] = 0.0
    batch, lengths = features(frontend, rows, sizes)
    for row, size, feats, length in zip(rows, sizes, batch, lengths.tolist(), strict=True):
        assert length == frontend.num_frames(int(size))
        ended = frontend.ended(row[None, :size], np.array([size]))
        past, parts, start = frontend.start(1), [], 0
        while start < ended.shape[1]:
            count = int(draw.choice([0, 1, 159, 160, 399, 400, 2000]))
            part, past = frontend(ended[:, start : start + count], past)
            parts.append(part[0])
            start += count
        assert np.array_equal(np.concatenate([*parts, feats[:0]]), feats[:length])
    of_torch = TorchFrontend(frontend).of_tensors()
    other, counts = features(of_torch, torch.from_numpy(rows), torch.from_numpy(sizes))
    assert counts.tolist() == lengths.tolist()
    for ours, feats, length in zip(other.numpy(), batch, lengths, strict=True):
        off = abs(ours[:length] - feats[:length])
        assert off.max(initial=0.0) < {"float32": 2e-3, "float64": 1e-9}[dtype]
        assert off.sum() < 1e-5 * max(1, off.size)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_frames_before_the_stream_come_first_and_change_no_other(choice: Any) -> None:
    samples = torch.from_numpy(speech(1.0))
    plain, led = (whole(build_frontend(choice, 80, lead), samples) for lead in LEADS)
    assert len(led) == len(plain) + 7
    assert (led[7:] - plain).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, None), (20.0, 8001.0), (4000.0, 4000.0), (float("nan"), None)]
)
def test_frequencies_that_are_no_band(low: float, high: float | None) -> None:
    with pytest.raises(ValueError, match=r"low_frequency .* must be from 0"):
        Fbank(80, low_frequency=low, high_frequency=high)


def test_the_scales_go_both_ways() -> None:
    hertz = np.array([0.0, 150.0, 999.0, 1000.0, 3000.0, 8000.0])
    for kind in KINDS.values():
        assert abs(kind.scale.to_hertz(kind.scale.of_hertz(hertz)) - hertz).max() < 1e-9

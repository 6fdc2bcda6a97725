"""Every frontend: the same numbers for every split, both ends of a stream among them; NeMo's."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit.audio import KINDS, Fbank, Frontend, build_frontend, features
from asrkit.audio.frontends.nemo import SlaneyFbank
from tests.conftest import mel_difference, speech, toolkit_outputs

PHONES = {"kind": "kaldi", "high_frequency": 7600.0, "snip_edges": False}
BAND = {"kind": "kaldi", "high_frequency": 7600.0}
CHOICES: list[Any] = ["kaldi", BAND, PHONES, "slaney", "sherpa_nemo"]
LEADS = [0, 7]


def whole(frontend: Frontend, samples: Tensor) -> Tensor:
    """(T, F) of (N,)."""
    return features(frontend, samples[None], torch.tensor([len(samples)]))[0][0]


def published(samples: Tensor) -> Tensor:
    """(T, F) of (N,) as NeMo's FilterbankFeatures computes them, by torch.stft."""
    frontend = SlaneyFbank()
    emphasized = torch.cat([samples[:1], samples[1:] - 0.97 * samples[:-1]])
    spectrum = torch.stft(
        emphasized, 512, 160, 400, frontend.window.to(samples), center=True, pad_mode="constant",
        return_complex=True,
    )  # fmt: skip
    mels = frontend.filters.to(samples).T @ spectrum.abs().square()
    return (mels + 2.0**-24).log().T[: len(samples) // 160]


@pytest.mark.parametrize("size", [160, 319, 4000, 16000 + 77])
def test_slaney_is_nemos(size: int) -> None:
    samples = torch.from_numpy(speech(2.0)[:size]).double()
    found, expected = whole(SlaneyFbank().double(), samples), published(samples)
    assert found.shape == expected.shape == (size // 160, 80)
    assert (found - expected).abs().max() < 1e-9


def test_control_zeros_after_the_samples_are_not_zeros_after_the_pre_emphasis() -> None:
    samples = torch.from_numpy(speech(1.0)[8000:8640]).double()
    frontend = SlaneyFbank().double()
    padded = torch.nn.functional.pad(samples, (0, 40))[None]
    found, _ = frontend(padded, frontend.start(1))
    off = (found[0] - published(samples)).abs().amax(dim=1)
    assert off[:-1].max() < 1e-9
    assert off[-1] > 1e-4


def test_a_network_of_nemo() -> None:
    """The features of NeMo's own module: its filters, its rounding."""
    arrays = toolkit_outputs("nemo-fastconformer-ctc", "nemo-features.npz")
    for clip in ("speech", "synthetic"):
        samples, expected = (
            torch.from_numpy(arrays[f"{clip}/{name}"]) for name in ("audio", "feats")
        )
        found = whole(SlaneyFbank(), samples)
        assert (found - expected).abs().max() < 1e-3
        assert mel_difference(found, expected) < 1e-4


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_any_split_and_rows(choice: Any, lead: int) -> None:
    """In packets, and as a row among others that end elsewhere."""
    frontend = build_frontend(choice, 80, lead).double()
    draw = np.random.default_rng(0)
    sizes = [16000, 9999, 0, 100, 4800]
    rows = torch.stack([torch.from_numpy(speech(1.0, seed)).double() for seed in range(5)])
    for row, size in zip(rows, sizes, strict=True):
        row[size:] = 0.0
    batch, lengths = features(frontend, rows, torch.tensor(sizes))
    for row, size, feats, length in zip(rows, sizes, batch, lengths.tolist(), strict=True):
        assert length == frontend.num_frames(size)
        ended = frontend.ended(row[None, :size], torch.tensor([size]))
        past, parts, start = frontend.start(1), [], 0
        while start < ended.size(1):
            count = int(draw.choice([0, 1, 159, 160, 399, 400, 2000]))
            part, past = frontend(ended[:, start : start + count], past)
            parts.append(part[0])
            start += count
        streamed = torch.cat([*parts, feats[:0]])
        assert len(streamed) == length
        assert (streamed - feats[:length]).abs().amax(dim=(0, 1)) < 1e-9 if length else True


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_frames_before_the_stream_come_first_and_change_no_other(choice: Any) -> None:
    samples = torch.from_numpy(speech(1.0))
    plain, led = (whole(build_frontend(choice, 80, lead), samples) for lead in LEADS)
    assert len(led) == len(plain) + 7
    assert (led[7:] - plain).abs().max() < 1e-4


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_script(choice: Any) -> None:
    frontend = build_frontend(choice, 80, 7)
    samples = torch.from_numpy(speech(1.0))[None]
    scripted, _ = torch.jit.script(frontend)(samples, frontend.start(1))
    assert torch.equal(scripted, frontend(samples, frontend.start(1))[0])


def test_kaldi_with_another_band_is_kaldis() -> None:
    from torchaudio.compliance.kaldi import fbank

    samples = torch.from_numpy(speech(1.0))
    expected = fbank(
        samples[None] * 32768, num_mel_bins=80, dither=0.0, sample_frequency=16000.0,
        window_type="povey", low_freq=40.0, high_freq=7600.0,
    )  # fmt: skip
    found = whole(Fbank(80, low_frequency=40.0, high_frequency=7600.0), samples)
    assert (found - expected).abs().max() < 1e-3
    assert (found - whole(Fbank(80), samples)).abs().max() > 0.1  # control


def test_frames_around_edges_are_kaldis() -> None:
    from torchaudio.compliance.kaldi import fbank

    samples = torch.from_numpy(speech(1.0))
    expected = fbank(
        samples[None] * 32768, num_mel_bins=80, dither=0.0, sample_frequency=16000.0,
        window_type="povey", high_freq=-400.0, snip_edges=False,
    )  # fmt: skip
    found = whole(build_frontend(PHONES, 80), samples)
    assert len(found) == len(expected) - 1  # whose last one needs samples after the end
    assert (found - expected[: len(found)]).abs().max() < 1e-3
    found[0] = whole(Fbank(80, high_frequency=7600.0), samples)[0]
    assert (found - expected[: len(found)]).abs().max() > 0.1  # control


@pytest.mark.parametrize(
    ("low", "high"), [(-1.0, None), (20.0, 8001.0), (4000.0, 4000.0), (float("nan"), None)]
)
def test_frequencies_that_are_no_band(low: float, high: float | None) -> None:
    with pytest.raises(ValueError, match=r"low_frequency .* must be from 0"):
        Fbank(80, low_frequency=low, high_frequency=high)


def test_the_scales_go_both_ways() -> None:
    hertz = torch.tensor([0.0, 150.0, 999.0, 1000.0, 3000.0, 8000.0], dtype=torch.float64)
    for kind in KINDS.values():
        assert (kind.scale.to_hertz(kind.scale.of_hertz(hertz)) - hertz).abs().max() < 1e-9

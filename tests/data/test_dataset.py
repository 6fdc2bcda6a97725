"""Training hears what decoding hears: noise and rooms change samples that one reader has made."""

import random
from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet

from asrkit import audio
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts, perturb_speed
from asrkit.data.dataset import Augmentation
from tests.conftest import speech, write_manifest, write_wav

RECORDINGS = [(8000, 1), (16000, 2), (44100, 1), (48000, 2)]


@pytest.fixture
def cuts(tmp_path: Path) -> CutSet:
    """Recordings of all rates and channels, whole and in part, at two speeds."""
    lines = []
    for rate, channels in RECORDINGS:
        name = f"{rate}-{channels}"
        columns = [speech(1.2, seed=seed, rate=rate) for seed in range(channels)]
        path = write_wav(tmp_path / f"{name}.wav", np.stack(columns, axis=1), rate)
        lines.append({"id": name, "audio": path.name, "text": "no"})
        part = {"id": f"{name} part", "start": 0.3, "duration": 0.6}
        lines.append(lines[-1] | part)
    manifest = write_manifest(tmp_path / "recordings.jsonl", *lines)
    return perturb_speed(load_cuts(manifest, []), [1.0, 0.9])


def augmentation(noise: CutSet | None = None, **options: object) -> Augmentation:
    values = {"noise_probability": 0.0, "noise_snr_db": (10.0, 10.0), "reverb_probability": 0.0,
              "silence_probability": 0.0, "silence_seconds": 1.0,
              "telephone_probability": 0.0} | options  # fmt: skip
    return Augmentation(noise, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "others", [{}, {"silence_probability": 0.5, "telephone_probability": 0.5}], ids=len
)
def test_noise_that_is_not_mixed_in_changes_no_bit_at_any_rate(
    cuts: CutSet, others: dict[str, float]
) -> None:
    """With noise at probability 0, or rooms that are not drawn, and all else as without them."""
    for cut in cuts:
        clean = augmentation(**others)(cut, random.Random(0))
        if not others:
            assert np.array_equal(clean, load_samples(cut))
        quiet = augmentation(cuts, **others)(cut, random.Random(0))
        assert np.array_equal(quiet, clean), cut.id
    never = augmentation(cuts, reverb_probability=1e-9, noise_probability=1e-9)
    for cut in cuts:
        assert np.array_equal(never(cut, random.Random(0)), load_samples(cut)), cut.id


@pytest.mark.parametrize("snr", [-5.0, 10.0])
@pytest.mark.parametrize("seconds", [0.25, 1.0, 3.0])
def test_noise_is_read_like_speech_and_mixed_at_its_ratio(
    cuts: CutSet, tmp_path: Path, snr: float, seconds: float
) -> None:
    """A short noise is repeated; of a long one a part is read. Mono and stereo, at 44.1 kHz."""
    columns = [speech(seconds, seed=9 + seed, rate=44100) for seed in range(2)]
    path = write_wav(tmp_path / "noise.wav", np.stack(columns, axis=1), 44100)
    manifest = write_manifest(tmp_path / "noise.jsonl", {"id": "noise", "audio": path.name})
    noise = load_cuts(manifest, [])
    whole = audio.load(path)
    mixing = augmentation(noise, noise_probability=1.0, noise_snr_db=(snr, snr))
    for number, cut in enumerate(cuts):
        clean = load_samples(cut)
        added = (mixing(cut, random.Random(number)) - clean).astype(np.float64)
        assert len(added) == len(clean)
        ratio = 10 * np.log10(np.mean(clean.astype(np.float64) ** 2) / np.mean(added**2))
        assert ratio == pytest.approx(snr, abs=0.01)
        if len(whole) <= len(clean):
            wanted, least = np.resize(whole, len(clean)), 0.999
        else:  # the part begins between two samples of 16 kHz
            spectrum = np.fft.rfft(whole) * np.fft.rfft(added, len(whole)).conj()
            place = int(np.fft.irfft(spectrum, len(whole)).argmax())
            wanted, least = whole[place : place + len(clean)], 0.85
        assert np.corrcoef(added, wanted)[0, 1] > least


def test_silent_noise_and_silent_speech_stay_finite() -> None:
    silence, tone = np.zeros(800, np.float32), np.ones(800, np.float32)
    assert np.array_equal(audio.mix_noise(tone, silence, 10.0), tone)
    assert np.array_equal(audio.mix_noise(silence, tone, 10.0), silence)
    assert audio.mix_noise(tone, tone[:30], 10.0).dtype == np.float32


def test_rooms_are_heard_in_stereo_recordings_too(cuts: CutSet) -> None:
    """The echo comes after the sound, which stays where and as loud as it was."""
    reverb = augmentation(reverb_probability=1.0)
    for cut in list(cuts)[:8]:
        clean, output = load_samples(cut), reverb(cut, random.Random(0))
        assert output.shape == clean.shape
        assert output.dtype == np.float32
        assert not np.array_equal(output, clean)
        assert np.std(output) == pytest.approx(np.std(clean), rel=0.05)


@pytest.mark.parametrize("change", ["whole", "part", "faster", "resampled", "mixed"])
def test_a_sample_rate_that_is_not_the_files(change: str, tmp_path: Path) -> None:
    """One line with the file, both rates and what to do; lhotse reads other samples of a part."""
    changes = {
        "whole": lambda cut: cut,
        "part": lambda cut: cut.truncate(offset=0.5, duration=0.5),
        "faster": lambda cut: cut.perturb_speed(1.1),
        "resampled": lambda cut: cut.resample(4000),
        "mixed": lambda cut: cut.mix(cut, offset_other_by=0.2),
    }
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    line = {"id": "x", "audio": path.name, "text": "no", "duration": 2.0}
    for rate in (8000, 16000):
        manifest = write_manifest(tmp_path / "m.jsonl", line | {"sample_rate": rate})
        (cut,) = load_cuts(manifest, [])
        if rate == 16000:  # a control
            assert len(load_samples(changes[change](cut)))
            continue
        with pytest.raises(audio.AudioError) as error:
            load_samples(changes[change](cut))
        assert str(error.value) == (
            f"{path}: the manifest has 8000 Hz, the file has 16000 Hz: remove sample_rate from "
            "its line, or correct it (sampling_rate in lhotse's cuts)"
        )


@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_a_length_that_is_not_the_files(seconds: float, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    line = {"id": "x", "audio": path.name, "text": "no", "duration": seconds}
    (cut,) = load_cuts(write_manifest(tmp_path / "m.jsonl", line | {"sample_rate": 16000}), [])
    with pytest.raises(audio.AudioError) as error:
        load_samples(cut)
    assert str(error.value).startswith(f"{path} has 2.00 s, which is not the length in the")
    assert "remove sample_rate" in str(error.value)
    assert "Lhotse" not in str(error.value)
    (cut,) = load_cuts(write_manifest(tmp_path / "m.jsonl", line), [])  # what it says to do
    assert len(load_samples(cut)) == 16000 * min(seconds, 2.0)

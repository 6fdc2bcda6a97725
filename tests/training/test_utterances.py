"""Training hears what decoding hears: noise and rooms change samples that one reader has made."""

import random
from pathlib import Path

import numpy as np
import pytest

from asrkit import audio
from asrkit.config.training import AugmentationConfig
from asrkit.data.recordings import Recordings, load_recordings
from asrkit.training import augment
from asrkit.training.utterances import Augmentation
from tests.conftest import speech, write_manifest, write_wav

RECORDINGS = [(8000, 1), (16000, 2), (44100, 1), (48000, 2)]


@pytest.fixture
def recordings(tmp_path: Path) -> Recordings:
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
    return load_recordings(str(manifest), []).at_speeds([1.0, 0.9])


def augmentation(noise: Recordings | None = None, **options: object) -> Augmentation:
    values = {"noise_probability": 0.0, "noise_snr_db": (10.0, 10.0)} | options
    return Augmentation(noise, AugmentationConfig(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "others", [{}, {"silence_probability": 0.5, "telephone_probability": 0.5}], ids=len
)
def test_noise_that_is_not_mixed_in_changes_no_bit_at_any_rate(
    recordings: Recordings, others: dict[str, float]
) -> None:
    """With noise at probability 0, or rooms that are not drawn, and all else as without them."""
    never = augmentation(recordings, reverb_probability=1e-9, noise_probability=1e-9)
    for samples in map(recordings.load, range(len(recordings))):
        clean = augmentation(**others)(samples, random.Random(0))
        if not others:
            assert np.array_equal(clean, samples)
        quiet = augmentation(recordings, **others)(samples, random.Random(0))
        assert np.array_equal(quiet, clean)
        assert np.array_equal(never(samples, random.Random(0)), samples)


@pytest.mark.parametrize("snr", [-5.0, 10.0])
@pytest.mark.parametrize("seconds", [0.25, 1.0, 3.0])
def test_noise_is_read_like_speech_and_mixed_at_its_ratio(
    recordings: Recordings, tmp_path: Path, snr: float, seconds: float
) -> None:
    """A short noise is repeated; of a long one a part is read. Mono and stereo, at 44.1 kHz."""
    columns = [speech(seconds, seed=9 + seed, rate=44100) for seed in range(2)]
    path = write_wav(tmp_path / "noise.wav", np.stack(columns, axis=1), 44100)
    manifest = write_manifest(tmp_path / "noise.jsonl", {"id": "noise", "audio": path.name})
    noise = load_recordings(str(manifest), [])
    whole = audio.load(path)
    mixing = augmentation(noise, noise_probability=1.0, noise_snr_db=(snr, snr))
    for number in range(len(recordings)):
        clean = recordings.load(number)
        added = (mixing(clean, random.Random(number)) - clean).astype(np.float64)
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
    assert np.array_equal(augment.mix_noise(tone, silence, 10.0), tone)
    assert np.array_equal(augment.mix_noise(silence, tone, 10.0), silence)
    assert augment.mix_noise(tone, tone[:30], 10.0).dtype == np.float32


def test_rooms_are_heard_in_stereo_recordings_too(recordings: Recordings) -> None:
    """The echo comes after the sound, which stays where and as loud as it was."""
    reverb = augmentation(reverb_probability=1.0)
    for clean in map(recordings.load, range(8)):
        output = reverb(clean, random.Random(0))
        assert output.shape == clean.shape
        assert output.dtype == np.float32
        assert not np.array_equal(output, clean)
        assert np.std(output) == pytest.approx(np.std(clean), rel=0.05)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"sample_rate": 8000},
            "the manifest has 8000 Hz, the file has 16000 Hz: remove sample_rate",
        ),
        ({"sample_rate": 8000, "start": 0.5, "duration": 0.5}, None),  # the header is read
        ({"sample_rate": 16000, "duration": 3.0}, "has 2.00 s, the manifest 3.00 s: correct durat"),
        ({"sample_rate": 16000, "duration": 2.026}, "has 2.00 s, the manifest 2.03 s: correct dur"),
        ({"sample_rate": 16000, "duration": 2.024}, None),
        ({"sample_rate": 16000, "duration": None}, None),  # what the message says to do
    ],
)
def test_a_manifest_that_contradicts_the_file(
    wrong: dict[str, float], message: str | None, tmp_path: Path
) -> None:
    write_wav(tmp_path / "x.wav", speech(2.0))
    line = {"id": "x", "audio": "x.wav", "text": "no", "duration": 2.0} | wrong
    line = {key: value for key, value in line.items() if value is not None}
    recordings = load_recordings(str(write_manifest(tmp_path / "m.jsonl", line)), [])
    if message is None:
        assert len(recordings.load(0)) == 16000 * min(2.0, line.get("duration", 2.0))
        return
    with pytest.raises(audio.AudioError, match=message) as error:
        recordings.load(0)
    assert str(error.value).startswith(f"{tmp_path}/x.wav")

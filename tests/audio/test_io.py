"""Reading, resampling, and what bad audio is told."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from asrkit import audio
from tests.conftest import speech


@pytest.mark.parametrize("suffix", ["wav", "flac", "mp3", "ogg", "opus"])
def test_formats(suffix: str, tmp_path: Path) -> None:
    samples = speech(1.0)
    path = tmp_path / f"x.{suffix}"
    kind = {"format": "OGG", "subtype": "OPUS"} if suffix == "opus" else {}
    soundfile.write(path, samples, 16000, **kind)
    read, rate = audio.read(path)
    assert rate == 16000
    assert read.shape[1] == 1
    assert abs(len(read) - 16000) < 3000  # lossy codecs pad
    assert abs(np.abs(read).mean() - np.abs(samples).mean()) < 0.02


def test_m4a_through_av(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "x.m4a"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(speech(1.0)[None], format="fltp", layout="mono")
        frame.rate = 16000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    read, rate = audio.read(path)
    assert rate == 16000
    assert 14000 < len(read) < 19000
    assert np.abs(read).max() > 0.05


def test_part_of_a_file(tmp_path: Path) -> None:
    samples = speech(2.0)
    soundfile.write(tmp_path / "x.wav", samples, 16000, subtype="FLOAT")
    part, _ = audio.read(tmp_path / "x.wav", 0.5, 0.25)
    assert np.array_equal(part[:, 0], samples[8000:12000])
    blocks = [block for block, _ in audio.blocks(tmp_path / "x.wav", 0.3)]
    assert np.array_equal(np.concatenate(blocks)[:, 0], samples)


def test_mono() -> None:
    stereo = np.stack([speech(0.1, 0), speech(0.1, 1)], axis=1)
    assert np.allclose(audio.mono(stereo), stereo.mean(axis=1))
    assert np.allclose(audio.mono(np.array([-32768, 16384], dtype=np.int16)), [-1.0, 0.5])


def bad_files(folder: Path) -> dict[str, Path]:
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.wav").write_text("these are not samples\n" * 20)
    soundfile.write(folder / "header.wav", np.zeros(0, dtype=np.float32), 16000)
    return {name: folder / f"{name}.wav" for name in ("missing", "empty", "text", "header")}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "does not exist"),
        ("empty", r"is empty \(0 bytes\)"),
        ("text", "is not audio that soundfile or FFmpeg reads"),
        ("header", "has a header but no samples"),
    ],
)
def test_bad_files(name: str, message: str, tmp_path: Path) -> None:
    path = bad_files(tmp_path)[name]
    with pytest.raises(audio.AudioError, match=message) as error:
        audio.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("-", "standard input is not read here: asrkit stream - reads it"),
        ("pipe", "pipe is a pipe, which is not read here: asrkit stream - < pipe"),
        (
            "m/https://host/a.wav",
            "it is a URL, which is not read: download the file and name its path",
        ),
        ("file:///rec/a.wav", "does not exist: write the path without file:"),
        ("m/~/a.wav", "does not exist: only a shell knows ~: write the path of the home folder"),
        ("m/rec\\a.wav", "does not exist: write / between folders in place of \\"),
        ("a~b: 1.wav", "a~b: 1.wav does not exist"),  # a name like any other
    ],
)
def test_paths_of_other_places_are_named(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(audio.AudioError) as error:
        audio.info(path)
    assert str(error.value).endswith(message)


def test_truncated_mp3_is_read_as_far_as_it_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    soundfile.write(tmp_path / "x.mp3", speech(4.0), 16000)
    data = (tmp_path / "x.mp3").read_bytes()
    (tmp_path / "cut.mp3").write_bytes(data[: len(data) // 2])
    audio.read(tmp_path / "x.mp3")
    assert not caplog.text
    samples, _ = audio.read(tmp_path / "cut.mp3")
    assert 1.5 < len(samples) / 16000 < 2.5
    assert "cut.mp3 is cut off: it ends 2." in caplog.text
    caplog.clear()
    blocks = [block for block, _ in audio.blocks(tmp_path / "cut.mp3", 0.5)]
    assert len(np.concatenate(blocks)) == len(samples)
    assert "is cut off" in caplog.text


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.array([0.0, np.nan, 1.0], dtype=np.float32), "sample 1 is nan"),
        (np.array([np.inf], dtype=np.float32), "sample 0 is inf"),
        (np.zeros(4, dtype=np.int64), "must be float32 or int16, got int64"),
        (np.zeros((2, 16000), dtype=np.float32), "transpose them"),
        (np.zeros((2, 2, 2), dtype=np.float32), r"got shape \(2, 2, 2\)"),
        (np.zeros((5, 0), dtype=np.float32), r"must be \(n, channels\), got \(5, 0\)"),
        (np.array([0.5, -100.5]), "sample 1 is -100.5; .* or pass int16"),
        (np.array([0.1, 12345.0], dtype=np.float32), "sample 1 is 12345; divide .* by 32768"),
        (np.array([[0.0, 0.0], [1e20, -1e20]]), r"in \[-1, 1\], but sample 1 is 1e\+20"),
        (b"ab" * 10, r"got bytes; .* np.frombuffer\(data, dtype=np.int16\)"),
        (memoryview(bytearray(8)), "got memoryview; .* np.frombuffer"),
        ("x.wav", "got str; pass the path"),
        (None, "float32 or int16, got NoneType"),
        ([[0.0], [0.0, 1.0]], "float32 or int16, got list"),
        (torch.zeros(4, requires_grad=True), "float32 or int16, got Tensor"),
    ],
)
def test_bad_samples(samples: Any, message: str) -> None:
    with pytest.raises(audio.AudioError, match=message):
        audio.mono(samples)


def test_loud_samples_of_all_that_can_be_taken_for_samples() -> None:
    """Mixes, resampled peaks and recorders of 32 bits go beyond 1."""
    loud = 50 * speech(0.1)
    assert np.array_equal(audio.mono(loud), loud)
    assert audio.mono(np.array([-100.0, 100.0])).tolist() == [-100.0, 100.0]
    assert audio.mono(loud.tolist()).dtype == np.float64
    assert np.array_equal(audio.mono(torch.from_numpy(loud)), loud)
    data = np.array([-32768, 16384], dtype=np.int16).tobytes()
    assert audio.mono(memoryview(data).cast("h")).tolist() == [-1.0, 0.5]
    fixed = np.frombuffer(loud.tobytes(), dtype=np.float32)[::-1]  # torch takes neither
    assert np.array_equal(torch.from_numpy(audio.mono(fixed)), loud[::-1])

"""Calls made of recordings: each channel has those of its speaker, whole and in order."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.conftest import speech, write_manifest, write_wav
from tools.make_calls import main


def test_channels_have_the_recordings_of_their_speakers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, voices = [], {}
    for number in range(8):
        name, speaker = f"u{number}", "ab"[number % 2]
        voices[name] = np.rint(speech(1.5, number) * 32767).astype(np.int16)
        write_wav(tmp_path / f"{name}.wav", voices[name])
        lines.append({"id": name, "audio": f"{name}.wav", "text": name, "speaker": speaker})
    manifest = write_manifest(tmp_path / "m.jsonl", *lines)
    for folder in ("one", "two"):
        main([str(manifest), str(tmp_path / folder)])
    assert capsys.readouterr().out.startswith("1 calls, ")
    (mix,) = map(json.loads, (tmp_path / "one/mix.jsonl").read_text().splitlines())
    channels = [*map(json.loads, (tmp_path / "one/channels.jsonl").read_text().splitlines())]
    first = channels[0]["speaker"]
    assert mix["text"].split() == [f"u{n ^ (first == 'b')}" for n in range(8)]
    samples, _ = soundfile.read(tmp_path / "one" / mix["audio"], dtype="int16")
    again, _ = soundfile.read(tmp_path / "two" / mix["audio"], dtype="int16")
    assert np.array_equal(samples, again)  # seeded
    for line in channels:
        assert line["text"].split() == [f"u{n}" for n in range(8) if "ab"[n % 2] == line["speaker"]]
        own, at = samples[:, line["channel"]], 0
        for name in line["text"].split():
            at = own.tobytes().index(voices[name].tobytes(), 2 * at) // 2
            samples[at : at + len(voices[name]), line["channel"]] = 1
            at += len(voices[name])
    both = int((samples == 1).all(axis=1).sum())
    assert both > 16000  # more than a second of two at once

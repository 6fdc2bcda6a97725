"""Shards hold every sample of parts of files, whatever their format."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse.cut import Cut

from asrkit.data.cut_audio import audio_of, load_samples
from asrkit.data.cuts import load_cuts
from asrkit.data.manifest import ManifestError
from asrkit.data.packing import lossless_form, pack
from tests.conftest import speech

LEVEL = speech(1.0) / np.abs(speech(1.0)).max()


@pytest.mark.parametrize(
    ("samples", "subtype", "suffix"),
    [
        (LEVEL, "PCM_16", ".flac"),
        (LEVEL, "PCM_24", ".flac"),
        (20.0 * LEVEL, "FLOAT", ".wav"),
        (1e-4 * LEVEL, "FLOAT", ".wav"),
        (np.repeat(LEVEL[:, None], 16, 1), "PCM_16", ".wav"),
    ],
    ids=["16 bits", "24 bits", "20 times full scale", "-80 dBFS", "16 channels"],
)
def test_a_part_of_a_file_keeps_its_samples_in_a_shard(
    samples: np.ndarray, subtype: str, suffix: str, tmp_path: Path
) -> None:
    soundfile.write(tmp_path / "x.wav", samples, 16000, subtype=subtype)
    line = {"id": "u", "audio": "x.wav", "text": "a", "start": 0.25, "duration": 0.5}
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    cuts = load_cuts(tmp_path / "x.jsonl", [])
    left_out: list = []
    pack(cuts, tmp_path / "shards", 10, left_out)
    assert not left_out
    (before,), (after,) = cuts, load_cuts(tmp_path / "shards", [])
    assert np.array_equal(audio_of(after), audio_of(before))
    assert np.array_equal(load_samples(after), load_samples(before))
    assert lossless_form(audio_of(before))["format"].lower() == suffix[1:]


def test_a_channel_of_a_manifest_is_read_and_packed(tmp_path: Path) -> None:
    both = np.stack([np.zeros_like(LEVEL), LEVEL], 1)
    soundfile.write(tmp_path / "x.wav", both, 16000)
    line = {"id": "u", "audio": "x.wav", "text": "a", "channel": 1}
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    (cut,) = load_cuts(tmp_path / "x.jsonl", [])
    assert np.allclose(load_samples(cut), LEVEL, atol=1e-4)
    pack([cut], tmp_path / "shards", 10, [])
    (after,) = load_cuts(tmp_path / "shards", [])
    assert np.array_equal(load_samples(after), load_samples(cut))


def test_a_folder_whose_name_is_not_text_is_refused_before_it_is_filled(tmp_path: Path) -> None:
    def cuts() -> Iterator[Cut]:
        pytest.fail("recordings were read")
        yield

    with pytest.raises(ManifestError, match=r"\\udcff': its name .* is not UTF-8: rename it"):
        pack(cuts(), tmp_path / os.fsdecode(b"\xff"), 10, [])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sample_rate": 8000}, "the manifest has 8000 Hz, the file has 16000 Hz"),
        ({"sample_rate": 16000, "duration": 2.0}, "has 1.00 s, which is not the length in"),
    ],
)
def test_a_file_that_its_manifest_contradicts_is_not_packed(
    wrong: dict[str, object], told: str, tmp_path: Path
) -> None:
    """No reader of the shards could use it."""
    soundfile.write(tmp_path / "x.wav", LEVEL, 16000)
    right = {"id": "right", "audio": "x.wav", "text": "a", "duration": 1.0, "sample_rate": 16000}
    lines = [right, right | {"id": "wrong"} | wrong]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    left_out: list = []
    pack(load_cuts(tmp_path / "x.jsonl", []), tmp_path / "shards", 10, left_out)
    ((name, reason),) = left_out
    assert name == "wrong"
    assert told in reason
    assert [len(load_samples(cut)) for cut in load_cuts(tmp_path / "shards", [])] == [16000]

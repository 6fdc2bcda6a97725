"""Recordings with their texts, from every kind of manifest."""

from pathlib import Path

import numpy as np
import pytest
from lhotse.serialization import save_to_json, save_to_jsonl

from asrkit.data.cuts import load_cuts
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.data.manifest import LeftOut, ManifestError
from asrkit.data.packing import pack
from tests.conftest import speech, write_manifest, write_wav


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A manifest of a whole file, a part of one, one channel of two, their mean, no text."""
    write_wav(tmp_path / "a.wav", speech(2.0))
    write_wav(tmp_path / "b.wav", np.stack([speech(2.0, 1), speech(2.0, 2)], axis=1), 44100)
    return write_manifest(
        tmp_path / "m.jsonl",
        {"id": "whole", "audio": "a.wav", "text": "yes", "speaker": "s"},
        {"id": "part", "audio": "a.wav", "text": "", "start": 0.53, "duration": 0.71},
        {"id": "channel", "audio": "b.wav", "text": "no", "channel": 1, "start": 0.2},
        {"id": "mean", "audio": "b.wav"},
    )


def all_of(path: Path) -> list[Labelled]:
    left_out: list[LeftOut] = []
    found = list(read_labelled(str(path), left_out))
    assert not left_out
    return found


@pytest.mark.parametrize("name", ["cuts.jsonl", "cuts.jsonl.gz", "cuts.json.gz", "shards"])
def test_every_kind_of_manifest_has_the_same_recordings(name: str, plain: Path) -> None:
    """Ids, texts, speakers and samples; parts of files are read as a plain manifest's are."""
    path, cuts = plain.with_name(name), load_cuts(plain, [])
    if name == "shards":
        pack(cuts, path, 3, [])
    elif name == "cuts.json.gz":
        save_to_json([cut.to_dict() for cut in cuts], path)
    else:
        cuts.to_file(path)
    expected, found = all_of(plain), all_of(path)
    assert [(e.id, e.text, e.speaker) for e in found] == [
        (e.id, e.text, e.speaker) for e in expected
    ]
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.cut is not None) == (name == "shards")
        assert np.abs(ours.load() - theirs.load()).max() <= (1e-6 if name == "shards" else 0.0)


def test_transformed_and_mixed_cuts_are_read_by_lhotse(plain: Path) -> None:
    cuts = list(load_cuts(plain, []))
    fast, mixed = cuts[0].perturb_speed(1.1), cuts[0].mix(cuts[1], offset_other_by=0.5)
    path = plain.with_name("cuts.jsonl")
    save_to_jsonl([each.to_dict() for each in (cuts[0], fast, mixed)], path)
    a, b, c = all_of(path)
    assert a.cut is None
    assert len(b.load()) == pytest.approx(len(a.load()) / 1.1, abs=1)
    assert np.abs(c.load() - a.load()).max() > 0.01
    assert len({a.digest, b.digest, c.digest}) == 3
    blocks = [block for block, _ in b.blocks()]
    assert np.array_equal(np.concatenate(blocks), b.load())


def test_audio_of_a_long_cut_comes_in_pieces(plain: Path) -> None:
    write_wav(plain.with_name("a.wav"), np.tile(speech(20.0), 4), 16000)
    whole = load_cuts(plain, []).subset(first=1)
    pack(whole, plain.with_name("shards"), 1, [])
    (found,) = all_of(plain.with_name("shards"))
    assert [len(block) for block, _ in found.blocks()] == [960_000, 320_000]


def test_what_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "m.jsonl.gz").write_bytes(b"not gzip")
    messages = {
        "none.jsonl": "does not exist",
        "folder": "folder",
        "m.jsonl.gz": "cannot be read as lhotse's",
    }
    for name, message in messages.items():
        with pytest.raises(ManifestError, match=message):
            all_of(tmp_path / name)

"""Manifests of NeMo, WeNet, Kaldi and lhotse as sources of `asrkit data import`."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet, Recording, SupervisionSegment

from asrkit.data.manifest import read_manifest
from tests.conftest import PROJECT, speech, write_manifest, write_wav
from tests.data.test_data_import import Output, imported, sound
from tests.running import run


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A folder in/ with four files of half a second."""
    for name in "abcd":
        sound(tmp_path / f"in/audio/{name}.wav", 0.5)
    return tmp_path / "in"


def test_nemo(audio: Path, tmp_path: Path, capsys: Output) -> None:
    path = write_manifest(
        audio / "train_manifest.json",
        {"audio_filepath": "audio/a.wav", "text": "one", "duration": 0.5, "speaker": 7},
        {"audio_filepath": str(audio / "audio/b.wav"), "text": "two", "duration": 0.502,
         "offset": None},
        {"audio_filepath": "audio/c.wav", "text": "three", "duration": 0.2, "offset": 0.1},
        {"audio_filepath": "audio/c.wav", "text": "four", "duration": 0.2, "offset": 0.3},
        {"audio_filepath": ["a"], "text": "x"}, [1],
    )  # fmt: skip
    with path.open("a") as file:
        file.write("{not json\n" + "[" * 100_000 + "\n")
    found = imported(tmp_path / "out", "auto", path, status=1)
    assert {name: (each["text"], each.get("start"), each["duration"]) for name, each in
            found.items()} == {"a": ("one", None, 0.5), "b": ("two", None, 0.5),
                               "c": ("three", 0.1, 0.2), "c-2": ("four", 0.3, 0.2)}  # fmt: skip
    assert found["a"]["speaker"] == "7"
    errors = capsys.readouterr().err
    assert "left out 3, line that is not a JSON object: train_manifest.json:6" in errors
    assert "left out 1, impossible value: train_manifest.json:5: 'audio': input sh" in errors


pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply
LINES = '{"path": "audio/a.wav", "sentence": "one", "client_id": "x"}\n'


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (LINES, []),
        (LINES.replace("path", "f").replace("sentence", "t"), ["--columns=audio=f,text=t"]),
        (LINES.replace('"client', '"text": "other", "client'), ["--columns=text=sentence"]),
        (LINES.replace('"audio/a.wav"', '{"path": "audio/a.wav", "sampling_rate": 16000}'), []),
        (LINES.replace("path", "audio"), []),  # a manifest that lacks the id alone
        (LINES.replace("path", "audio_filepath"), ["--columns=text=sentence"]),
        (LINES.replace("audio/", ""), ["--audio-root=in/audio"]),
        ('{"key": "a", "wav": "audio/a.wav", "txt": "one", "spk": "x"}', []),  # WeNet
    ],
)
def test_json_lines_with_other_keys(
    line: str, options: list[str], audio: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (audio / "recordings.jsonl").write_text(line)
    source = (audio / "recordings.jsonl", "--dev", 0)
    one = imported(tmp_path / "out", "auto", *source, *options)["a"]
    assert (one["text"], one["speaker"], one["audio"]) == ("one", "x", "../in/audio/a.wav")


def test_kaldi(audio: Path, tmp_path: Path, capsys: Output) -> None:
    (audio / "wav.scp").write_text(
        f"r1 audio/a.wav\nr2 {audio}/audio/b.wav\nr3 touch {tmp_path}/ran |\nr4 x.ark:17\n"
        "r5\nr2 audio/a.wav\nr7 audio/d.wav\n"
    )
    (audio / "text").write_text(
        "u1 one two\nu2 three\nu3 four\nu9 nine\nu5\nu6 six\nu7 seven\nua a\nub b\n"
    )
    (audio / "utt2spk").write_text("u1 s1\nu2 s1\nu3 s2\nu5 s2\nu7 u7\n\u2028\n\u3000", "utf-8")
    (audio / "segments").write_text(
        "u1 r1 0.0 0.2\nu2 r1 0.2 0.5\nu3 r2 0.1 -1\nu4 r2 0 0.1\nu5 r2 0.2 0.3\nu6 r3 0 1\n"
        "u7 r7 0 0.5\nu8 r7 0\nua r4 0 1\nub r8 0 1\n"
    )
    found = imported(tmp_path / "out", "auto", audio, status=1)
    assert {name: (each["text"], each.get("start"), each["duration"], each.get("speaker")) for
            name, each in found.items()} == {
        "u1": ("one two", 0.0, 0.2, "s1"), "u2": ("three", 0.2, 0.3, "s1"),
        "u3": ("four", 0.1, 0.4, "s2"), "u7": ("seven", None, 0.5, None),
    }  # fmt: skip
    assert not (tmp_path / "ran").exists()
    errors = capsys.readouterr().err
    for line in (
        "left out 1, audio that is not a local file: commands are never run: ",
        "x.ark:17 does not exist",
        "left out 1, line of wav.scp whose key occurs twice: r2", "left out 1, empty text: u5",
        "left out 1, audio without a line in text: u4", "left out 1, text without audio: u9",
        "segment without a file in wav.scp: ub: r8", "start and an end: u8 r7 0",
        "1 utterances without a speaker are in train",
    ):  # fmt: skip
        assert line in errors, line


def cuts_of(audio: Path) -> CutSet:
    """A whole file, a part of one, one channel of two, and both, as lhotse writes them."""
    write_wav(audio / "two.wav", np.stack([speech(0.5), speech(0.5, seed=1)], axis=1))
    whole, both = (
        Recording.from_file(audio / name, recording_id=name).to_cut()
        for name in ("audio/a.wav", "two.wav")
    )
    said = {"recording_id": "r", "start": 0.0, "duration": 0.4, "text": "yes", "speaker": "s"}
    part = whole.truncate(offset=0.1, duration=0.3)
    cuts = [whole.with_id("whole"), part.with_id("part"), both.to_mono()[1].with_id("one"),
            both.with_id("both")]  # fmt: skip
    for cut in cuts:
        cut.supervisions = [SupervisionSegment(cut.id, **said), SupervisionSegment("2", **said)]
    mixed = cuts[0].mix(cuts[1], snr=3.0).with_id("mixed")
    return CutSet([*cuts, cuts[0].perturb_speed(1.1).with_id("fast"), mixed])


def test_cuts_of_lhotse_are_imported(audio: Path, tmp_path: Path, capsys: Output) -> None:
    """From files; what lhotse computes, or has in the tars of Shar, is left out."""
    cuts, source = cuts_of(audio), tmp_path / "cuts.jsonl.gz"
    cuts.to_file(source)
    assert run("data", "import", "auto", source, "--output", tmp_path / "out", "--dev", 0) == 1
    assert "left out 2, recording that is not a single local file" in capsys.readouterr().err
    recordings = {each.id: each for each in read_manifest(tmp_path / "out" / "train.jsonl")}
    assert [*recordings] == ["whole", "part", "one", "both"]
    for cut in cuts:
        if (each := recordings.get(cut.id)) is not None:
            assert (each.text, each.speaker) == ("yes yes", "s")
            assert np.abs(each.load() - cut.load_audio().mean(0)).max() < 1e-4
    (tmp_path / "shar").mkdir()
    whole = cuts.filter(lambda cut: cut.id in recordings)
    whole.to_shar(tmp_path / "shar", fields={"recording": "wav"}, shard_size=2)
    assert run("data", "import", "auto", tmp_path / "shar", "--output", tmp_path / "shards") == 2
    assert "left out 4, recording that is not a single local file" in capsys.readouterr().err


def test_a_manifest_to_lhotse_and_back(audio: Path, tmp_path: Path) -> None:
    """By the script of docs/own-corpus.md."""
    write_wav(audio / "two.wav", np.stack([speech(0.5), speech(0.5, seed=1)], axis=1))
    lines = [
        {"id": "whole", "audio": "audio/a.wav", "text": "yes", "speaker": "s"},
        {"id": "part", "audio": "audio/a.wav", "text": "no", "start": 0.1, "duration": 0.3},
        {"id": "mean", "audio": "two.wav", "text": "yes"},
        {"id": "one", "audio": "two.wav", "text": "yes", "channel": 1},
    ]
    before = {each.id: each for each in read_manifest(write_manifest(audio / "m.jsonl", *lines))}
    script, cuts = PROJECT / "docs/examples/to_lhotse.py", tmp_path / "cuts.jsonl.gz"
    cut_of = runpy.run_path(str(script))["cut_of"]
    CutSet.from_cuts(map(cut_of, before.values())).to_file(cuts)
    imported(tmp_path / "out", "auto", cuts, "--dev", 0)
    after = {each.id: each for each in read_manifest(tmp_path / "out/train.jsonl")}
    assert after.keys() == before.keys()
    for name, each in after.items():
        assert (each.text, each.speaker) == (before[name].text, before[name].speaker)
        assert np.array_equal(each.load(), before[name].load())

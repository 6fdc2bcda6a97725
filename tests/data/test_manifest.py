"""Manifests: what is read, what is left out by id, what is refused."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from lhotse import CutSet
from lhotse.serialization import save_to_json, save_to_jsonl, save_to_yaml

from asrkit.audio import AudioError
from asrkit.config import ModelConfig
from asrkit.data import manifest
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts, perturb_speed, text_of, usable
from asrkit.data.dataset import SpeechDataset, TextEncoder
from asrkit.data.labelled import read_labelled
from asrkit.data.manifest import LeftOut, ManifestError, read_manifest
from asrkit.model.head import ctc_frames
from tests.conftest import PROJECT, speech, write_manifest, write_wav
from tests.data.encoding import ENCODE

KEPT = PROJECT / "tests" / "kept"


def test_paths_are_relative_to_the_manifest(corpus: Path) -> None:
    first = next(read_manifest(corpus / "train.jsonl", []))
    assert Path(first.audio) == corpus / "audio" / "train0.flac"
    cuts = load_cuts(corpus / "train.jsonl", [])
    assert len(cuts) == 12
    assert text_of(cuts["train0"]) == "yes no"
    assert cuts["train0"].duration == 1.0


def test_part_of_a_file_stereo_and_another_rate(tmp_path: Path) -> None:
    stereo = speech(2.0, rate=44100)[:, None].repeat(2, axis=1)
    write_wav(tmp_path / "x.wav", stereo, 44100)
    path = write_manifest(
        tmp_path / "m.jsonl",
        {"id": "whole", "audio": "x.wav", "text": "yes"},
        {"id": "part", "audio": "x.wav", "text": "no", "start": 0.5, "duration": 1.0},
        {"id": "tail", "audio": "x.wav", "text": "no", "start": 1.5, "duration": 9.0},
    )
    cuts = load_cuts(path, [])
    lengths = {cut.id: len(load_samples(cut)) for cut in cuts}
    assert lengths == {"whole": 32000, "part": 16000, "tail": 8000}


def test_speed(corpus: Path) -> None:
    cuts = perturb_speed(load_cuts(corpus / "dev.jsonl", []), [0.9, 1.0, 1.1])
    assert len(cuts) == 9
    assert [cut.id[:4] for cut in cuts] == ["dev0"] * 3 + ["dev1"] * 3 + ["dev2"] * 3
    seconds = sorted(len(load_samples(cut)) / 16000 for cut in cuts if "dev0" in cut.id)
    assert seconds == pytest.approx([1 / 1.1, 1.0, 1 / 0.9], abs=1e-3)


def test_one_speed_of_a_lazy_manifest(corpus: Path, tmp_path: Path) -> None:
    load_cuts(corpus / "dev.jsonl", []).to_file(tmp_path / "cuts.jsonl.gz")
    cuts = load_cuts(tmp_path / "cuts.jsonl.gz", [])
    assert [cut.id for cut in perturb_speed(cuts, [1.0])] == ["dev0", "dev1", "dev2"]
    assert [cut.duration for cut in perturb_speed(cuts, [0.5])] == [2.0, 2.4, 2.8]


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Missing, empty, no audio, no text, unknown letters, too short for its labels."""
    write_wav(tmp_path / "ok.wav", speech(1.0))
    write_wav(tmp_path / "short.wav", speech(0.2))
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("no audio")
    bad = [
        ("missing", "yes"),
        ("empty", "yes"),
        ("text", "yes"),
        ("ok", ""),
        ("ok", "yes!"),
        ("short", "yes nono"),
    ]
    utterances = [
        {"id": f"{i}", "audio": f"{name}.wav", "text": text} for i, (name, text) in enumerate(bad)
    ]
    utterances.append({"id": "ok", "audio": "ok.wav", "text": "yes"})
    left_out: list[LeftOut] = []
    cuts = load_cuts(write_manifest(tmp_path / "m.jsonl", *utterances), left_out)
    kept = usable(cuts, lambda c: ENCODE.why_not(text_of(c), int(c.duration * 16000)), left_out)
    assert [cut.id for cut in kept] == ["ok"]
    reasons = {u.id: u.reason for u in left_out}
    assert "does not exist" in reasons["0"]
    assert "is empty" in reasons["1"]
    assert "is not audio" in reasons["2"]
    assert reasons["3"] == "empty text"
    assert "not in the vocabulary: '!'" in reasons["4"]
    assert reasons["5"] == "too short: 5 encoder frames, but its labels need 8"


def test_equal_letters_need_a_blank_between_them() -> None:
    """Frames of ceil((n-240)/640): 4 labels with one pair of equal ones need 5."""
    assert ENCODE.why_not("noon", 240 + 640 * 5) is None
    assert ENCODE.why_not("noon", 240 + 640 * 4) is not None
    assert ENCODE.why_not("nosy", 240 + 640 * 4) is None


def test_longer_frames_need_more_audio() -> None:
    """Of a network that makes one of 8 feature frames: ceil((n-240)/1280)."""
    network = ModelConfig.model_validate({"subsampling": "conv8"})
    encode = TextEncoder(ENCODE.tokenizer, ENCODE.normalize, network.rate.num_frames, ctc_frames)
    assert encode.why_not("nosy", 240 + 1280 * 3) == (
        "too short: 3 encoder frames, but its labels need 4"
    )
    assert encode.why_not("nosy", 240 + 1280 * 3 + 160) is None
    assert ENCODE.why_not("nosy", 240 + 1280 * 3) is None


def test_a_file_that_breaks_later_is_left_out_of_its_batch(corpus: Path) -> None:
    cuts = load_cuts(corpus / "train.jsonl", [])
    (corpus / "audio" / "train1.flac").write_bytes(b"no longer audio")
    (corpus / "audio" / "train2.flac").unlink()
    with pytest.raises(AudioError, match=r"train2\.flac does not exist$") as error:
        load_samples(cuts["train2"])
    assert "\n" not in str(error.value)
    batch = SpeechDataset(cuts, ENCODE)[("seed", [0, 1, 2, 3])]
    assert batch.ids == ["train0", "train3"]
    assert [u.id for u in batch.left_out] == ["train1", "train2"]
    assert batch.samples.shape[0] == 2
    nothing = SpeechDataset(cuts, ENCODE)[("seed", [1])]
    assert nothing.ids == []
    assert len(nothing.left_out) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a"}', ":1: 'audio': field required"),
        ('{"id": 3, "audio": "x"}', ":1: 'id': input should be a valid string, got 3"),
        ('{"id": "a", "audio": "x", "start": -1}', ":1: 'start': input should be greater than or"),
        ('{"id": "a", "audio": "x", "duration": "2"}', ":1: 'duration': input should be a valid"),
        ('{"id": "a", "audio": "x", "sample_rate": 0}', ":1: 'sample_rate': input should be"),
        ("{", ":1: not JSON"),
        ("[1]", r"is not a manifest: it begins with '\[1\]'"),
    ],
)
def test_bad_lines(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(text + "\n")
    with pytest.raises(ManifestError, match=message):
        load_cuts(tmp_path / "m.jsonl", [])


def test_what_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes('{"id": "ä"}'.encode("latin-1"))
    (tmp_path / "cuts.jsonl.gz").write_bytes(b"not gzip")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("latin.jsonl", ":1: not JSON"),
        ("deep.jsonl", r"is not a manifest: it begins with '\[\["),
        ("cuts.jsonl.gz", "cannot be read as lhotse's"),
        ("folder", "cannot be read as lhotse's"),
    ):
        with pytest.raises(ManifestError, match=message):
            load_cuts(tmp_path / name, [])


@pytest.mark.parametrize("name", ["m.jsonl", "cuts.jsonl.gz"])
def test_lines_are_bounded(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes, gzipped, may hold a line of gigabytes."""
    path, cuts = tmp_path / name, load_cuts(corpus / "dev.jsonl", [])
    cuts.to_file(path)
    longest = max(len(json.dumps(cut.to_dict())) for cut in cuts)
    for most, fits in ((longest + 1, True), (longest // 2, False)):  # the first is a control
        monkeypatch.setattr(manifest, "MAX_LINE", most)
        if fits:
            assert [cut.id for cut in load_cuts(path, [])] == [cut.id for cut in cuts]
            continue
        with pytest.raises(ManifestError, match=f"1: a line of more than {most} bytes"):
            load_cuts(path, [])


def test_empty_lines_are_bounded(tmp_path: Path) -> None:
    """A few megabytes, gzipped, may hold a thousand million of them."""
    path = tmp_path / "m.jsonl.gz"
    for empty, fits in ((manifest.MAX_EMPTY, True), (manifest.MAX_EMPTY + 1, False)):
        path.write_bytes(gzip.compress(b"\n" * empty + b"x"))
        if fits:
            assert [line for _, line in manifest.lines_of(path)] == [b"x"]
            continue
        with pytest.raises(ManifestError, match=f"{empty}: {manifest.MAX_EMPTY} empty lines"):
            list(manifest.lines_of(path))


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    """What was read of it to see what it is would be missing afterwards."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(ManifestError, match=f"{name} is not a file"):
            load_cuts(name, [])


@pytest.mark.parametrize("key", ["id", "audio", "text", "speaker"])
def test_half_a_character_leaves_its_line_out(key: str, corpus: Path) -> None:
    """Only its line: JSON can write what UTF-8 cannot."""
    path, lines = corpus / "dev.jsonl", (corpus / "dev.jsonl").read_text().splitlines()
    values = json.loads(lines[1])
    for half, count in (("\ud83d", 2), ("\ud83d\ude00", 3)):  # a control: both halves are a face
        lines[1] = json.dumps(values | {key: values.get(key, "") + half})
        path.write_text("\n".join(lines))
        left_out: list[LeftOut] = []
        assert len(list(read_manifest(path, left_out))) == count
        assert [each.id for each in left_out] == [f"{path}:2"] * (3 - count)
        assert all(r"\ud83d" in each.reason for each in left_out)
        assert all(f"'{key}': cannot be written as UTF-8" in each.reason for each in left_out)


def test_missing_and_double(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"none\.jsonl does not exist"):
        load_cuts(tmp_path / "none.jsonl", [])
    for path, advice in ("~/a", "only a shell"), ("https://h/a", "it is a URL"), ("-", "standard"):
        for read in lambda path: load_cuts(path, []), lambda path: list(read_manifest(path, [])):
            with pytest.raises(ManifestError, match=f"does not exist: {advice}"):
                read(path)
    line = (corpus / "dev.jsonl").read_text().splitlines()[0]
    (corpus / "twice.jsonl").write_text(f"{line}\n{line}\n")
    with pytest.raises(ManifestError, match="id 'dev0' occurs twice"):
        load_cuts(corpus / "twice.jsonl", [])


@pytest.mark.parametrize("damage", [b"5k", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40])
def test_the_number_of_cuts_of_a_damaged_shard_is_a_manifest_error(
    damage: bytes, tmp_path: Path
) -> None:
    """`list` asks for the number first; torture found gzip's and zlib's errors."""
    cuts = load_cuts(KEPT / "train.jsonl", [])
    cuts.to_shar(tmp_path, fields={"recording": "wav"}, shard_size=4)
    assert len(load_cuts(tmp_path, [])) == len(cuts)
    (tmp_path / "cuts.000001.jsonl.gz").write_bytes(damage)
    with pytest.raises(ManifestError, match="cannot be read"):
        len(load_cuts(tmp_path, []))


@pytest.mark.parametrize("channel", [0.5, 0.0, "0", [0, -1], [[]], True, {}])
def test_a_channel_of_a_cut_is_a_whole_number(channel: object, tmp_path: Path) -> None:
    """`asrkit decode --manifest` read 0.5 as a list of channels; torture found it."""
    path = tmp_path / "cuts.jsonl"
    load_cuts(KEPT / "train.jsonl", []).to_file(path)
    assert len(list(read_labelled(str(path), []))) == 8
    line = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps(line | {"channel": channel}) + "\n")
    with pytest.raises(ManifestError, match="channel"):
        list(read_labelled(str(path), []))


def test_lhotse_manifests_and_shar(corpus: Path, tmp_path: Path) -> None:
    cuts = load_cuts(corpus / "dev.jsonl", [])
    cuts.to_file(tmp_path / "cuts.jsonl.gz")
    cuts.to_file(tmp_path / "cuts.jsonl")
    (tmp_path / "shar").mkdir()
    cuts.to_shar(tmp_path / "shar", fields={"recording": "wav"}, shard_size=2)
    for path in ("cuts.jsonl.gz", "cuts.jsonl", "shar"):
        left_out: list[LeftOut] = []
        loaded = usable(load_cuts(tmp_path / path, left_out), lambda cut: None, left_out)
        assert isinstance(loaded, CutSet)
        assert {cut.id: text_of(cut) for cut in loaded} == {cut.id: text_of(cut) for cut in cuts}
        assert [len(load_samples(cut)) for cut in loaded] == [
            len(load_samples(cut)) for cut in cuts
        ]


def command(folder: Path) -> dict[str, object]:
    """A source that leaves a file behind when lhotse runs it."""
    return {"type": "command", "channels": [0], "source": f"touch {folder}/ran; cat {folder}/x.wav"}


def recording(*sources: object, **keys: object) -> dict[str, object]:
    facts = {"id": "r", "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
    return facts | {"sources": list(sources), "channel_ids": [0]} | keys


def mono_cut(**keys: object) -> dict[str, object]:
    cut = {"id": "c", "start": 0.0, "duration": 1.0, "channel": 0, "type": "MonoCut"}
    return cut | {"supervisions": []} | keys


def mixed(*tracks: dict[str, object]) -> dict[str, object]:
    parts = [{"cut": each, "type": each.pop("type"), "offset": 0.0} for each in tracks]
    return {"id": "c", "tracks": parts, "type": "MixedCut"}


def hostile_cuts(folder: Path) -> dict[str, dict[str, object]]:
    """Cuts that lhotse would run, fetch or take all memory for."""
    file = {"type": "file", "channels": [0], "source": str(folder / "x.wav")}
    bad = recording(command(folder))
    reverb = {"name": "ReverbWithImpulseResponse", "kwargs": {"rir": bad}}
    url = {"type": "url", "channels": [0], "source": "file:///etc/hostname"}
    rates = {"source_sampling_rate": 16000, "target_sampling_rate": 10**9}
    high = {"name": "Resample", "kwargs": rates}
    slow = {"name": "Speed", "kwargs": {"factor": 1e-9}}
    return {
        "command": mono_cut(recording=bad),
        "second": mono_cut(recording=recording(file, command(folder))),
        "url": mono_cut(recording=recording(url)),
        "other": mono_cut(recording=recording(file | {"type": "pipe"})),
        "track": mixed(mono_cut(recording=recording(file)), mono_cut(recording=bad)),
        "reverb": mono_cut(recording=recording(file, transforms=[reverb])),
        "factor": mono_cut(recording=recording(file, transforms=[slow])),
        "rate": mono_cut(recording=recording(file, transforms=[high])),
        "samples": mono_cut(recording=recording(file, num_samples=10**18)),
        "length": mono_cut(recording=recording(file, duration=1e308)),
        "kind": mono_cut(recording=recording(file), duration="1"),
        "number": mono_cut(recording=recording(file), id=3),
        "channel": mono_cut(recording=recording(file), channel=None),
        "recording": recording(file),
    }


NAMES = list(hostile_cuts(Path("folder")))
MESSAGES = {"command": "type file or memory, got 'command'", "url": "got 'url'", "other": "'pipe'"}


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json.gz", "yaml.gz"])
@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_runs_and_fetches_nothing(name: str, suffix: str, tmp_path: Path) -> None:
    """Named before anything is read, whatever file it comes in."""
    write_wav(tmp_path / "x.wav", speech(1.0))
    good = mono_cut(recording=recording({"type": "file", "channels": [0], "source": "x"}), id="a")
    path, cut = tmp_path / f"cuts.{suffix}", hostile_cuts(tmp_path)[name]
    writers = {"json": save_to_json, "yaml": save_to_yaml}
    writers.get(suffix.removesuffix(".gz"), save_to_jsonl)([good, cut], path)
    with pytest.raises(ManifestError, match=MESSAGES.get(name, "cut")) as error:
        [load_samples(each) for each in load_cuts(path, []) if each.id == "c"]
    assert str(path) in str(error.value)
    assert len(str(error.value)) < len(str(path)) + 500
    assert not (tmp_path / "ran").exists()


def test_what_is_not_read_is_left_away(tmp_path: Path) -> None:
    """Features, arrays and recordings in custom fields could run commands and unpickle."""
    write_wav(tmp_path / "x.wav", speech(1.0))
    file = {"type": "file", "channels": [0], "source": str(tmp_path / "x.wav")}
    array = {"storage_type": "memory_raw", "storage_path": "", "storage_key": "x", "shape": [1]}
    custom = {"target": recording(command(tmp_path)), "array": array}
    supervision = {"id": "c", "recording_id": "r", "start": -0.1, "duration": 1.0, "text": "no"}
    cut = mono_cut(
        recording=recording(file), custom=custom, supervisions=[supervision | {"custom": custom}]
    )
    save_to_jsonl([cut], tmp_path / "cuts.jsonl.gz")
    (loaded,) = load_cuts(tmp_path / "cuts.jsonl.gz", [])
    assert loaded.custom is loaded.supervisions[0].custom is None
    assert text_of(loaded) == "no"
    assert len(load_samples(loaded)) == 16000


def test_a_cut_that_no_recording_has_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By itself, and named once however often the cuts are read."""
    file = recording({"type": "file", "channels": [0], "source": "x.wav"})
    changes: list[dict[str, object]] = [{}, {"duration": 1e308}, {"id": "x" * 2000}]
    cuts = [mono_cut(recording=file) | each for each in changes]
    save_to_jsonl(cuts, tmp_path / "cuts.jsonl")
    loaded = load_cuts(tmp_path / "cuts.jsonl", [])
    assert [[cut.id for cut in loaded] for _ in range(2)] == [["c"], ["c"]]
    assert caplog.text.count("is left out: ") == 2
    assert "cut 2, 'c' is left out: 'duration': input should be less than" in caplog.text


def test_the_names_of_shards_are_paths(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files in a folder that is named by itself: "pipe:…" would be a command to lhotse."""
    shar = tmp_path / "shar"
    shar.mkdir()
    load_cuts(corpus / "dev.jsonl", []).to_shar(shar, fields={"recording": "wav"}, shard_size=3)
    (shar / "recording.000000.tar").rename(shar / "pipe:touch ran;.000000.tar")
    monkeypatch.chdir(shar)
    with pytest.raises(ManifestError):
        list(load_cuts(".", []))
    assert not (shar / "ran").exists()


@pytest.mark.parametrize(
    "keys",
    [{"start": 1e308}, {"duration": 1e9}, {"num_channels": 10**9}, {"sample_rate": 10**9},
     {"id": "x" * 2000}, {"audio": "x" * 5000}, {"text": "x" * 2_000_000}],
)  # fmt: skip
def test_what_no_recording_has_leaves_its_line_out(keys: dict[str, Any], corpus: Path) -> None:
    good = json.loads((corpus / "dev.jsonl").read_text().splitlines()[0])
    path = write_manifest(corpus / "m.jsonl", good | {"id": "a"} | keys, good)
    left_out: list[LeftOut] = []
    assert [cut.id for cut in load_cuts(path, left_out)] == [good["id"]]
    assert left_out[0].id == f"{path}:1"
    assert f"'{next(iter(keys))}': " in left_out[0].reason
    assert len(left_out[0].reason) < 300


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("kind", ["plain", "lhotse"])
def test_a_byte_order_mark_says_the_encoding(
    kind: str, encoding: str, corpus: Path, tmp_path: Path
) -> None:
    """Manifests that Windows' editors and shells write."""
    expected, path = load_cuts(corpus / "dev.jsonl", []), corpus / "marked.jsonl"
    if kind == "lhotse":
        expected.to_file(path)
    else:
        path.write_bytes((corpus / "dev.jsonl").read_bytes())
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    left_out: list[LeftOut] = []
    assert [text_of(cut) for cut in load_cuts(path, left_out)] == [text_of(c) for c in expected]
    assert left_out == []


def test_utf_16_without_a_mark_is_refused_by_name(corpus: Path) -> None:
    path = corpus / "dev.jsonl"
    path.write_bytes(path.read_text().encode("utf-16-le"))
    with pytest.raises(ManifestError, match=r"dev.jsonl:1: not UTF-8; .*iconv -f UTF-16LE"):
        load_cuts(path, [])

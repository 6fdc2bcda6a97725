"""Manifests: what is read, left out by id, refused; those of other toolkits name the import."""

import gzip
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from asrkit.audio import AudioError
from asrkit.commands.data_check import default_config
from asrkit.config.model import ModelConfig
from asrkit.data import manifest
from asrkit.data.checks.measure import read_entries
from asrkit.data.inputs import jobs_of
from asrkit.data.manifest import LeftOut, ManifestError, read_manifest
from asrkit.data.recording import Recording
from asrkit.data.recordings import load_recordings
from asrkit.data.text_encoder import TextEncoder
from asrkit.model.head import ctc_frames
from asrkit.training.dataset import fitting
from tests.conftest import speech, write_manifest, write_wav
from tests.data.encoding import ENCODE

pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply


def test_paths_are_relative_to_the_manifest(corpus: Path) -> None:
    first = next(read_manifest(corpus / "train.jsonl"))
    assert Path(first.audio) == corpus / "audio" / "train0.flac"
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    assert len(recordings) == 12
    assert recordings[0].text == "yes no"
    assert recordings[0].duration == 1.0


def test_speed(corpus: Path) -> None:
    recordings = load_recordings(str(corpus / "dev.jsonl"), []).at_speeds([0.9, 1.0, 1.1])
    assert len(recordings) == 9
    ids = [each.id for each in recordings]
    assert ids[:4] == ["dev0_sp0.9", "dev0", "dev0_sp1.1", "dev1_sp0.9"]
    seconds = sorted(len(recordings.load(place)) / 16000 for place in range(3))
    assert seconds == pytest.approx([1 / 1.1, 1.0, 1 / 0.9], abs=1e-3)


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Missing, empty, no audio, no text, unknown letters, too short for its labels."""
    write_wav(tmp_path / "ok.wav", speech(1.0))
    write_wav(tmp_path / "short.wav", speech(0.2))
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("no audio")
    bad = [("missing", "yes"), ("empty", "yes"), ("text", "yes"), ("ok", ""), ("ok", "yes!")]
    bad.append(("short", "yes nono"))
    utterances = [
        {"id": f"{i}", "audio": f"{name}.wav", "text": text} for i, (name, text) in enumerate(bad)
    ]
    utterances.append({"id": "ok", "audio": "ok.wav", "text": "yes"})
    left_out: list[LeftOut] = []
    path = str(write_manifest(tmp_path / "m.jsonl", *utterances))
    found = load_recordings(path, left_out)
    kept = fitting(found, path, default_config(), left_out, ENCODE)
    assert [each.id for each in kept] == ["ok"]
    reasons = {u.id: u.reason for u in left_out}
    assert "does not exist" in reasons["0"]
    assert "is empty" in reasons["1"]
    assert "is not audio" in reasons["2"]
    assert reasons["3"] == "empty text"
    assert "not in the vocabulary: '!'" in reasons["4"]
    assert reasons["5"] == "too short: 5 encoder frames, but its labels need 8"


def test_a_line_is_left_out_once_for_all_its_speeds(tmp_path: Path) -> None:
    """So a count of them is one of lines. `short` fits its labels at all speeds but the fastest."""
    write_wav(tmp_path / "ok.wav", speech(1.0))
    write_wav(tmp_path / "short.wav", speech(0.15))
    lines = [
        {"id": name, "audio": f"{audio}.wav", "text": text}
        for name, audio, text in (("none", "ok", ""), ("a", "ok", "yes"), ("b", "short", "noes"))
    ]
    path, left_out = str(write_manifest(tmp_path / "m.jsonl", *lines)), list[LeftOut]()
    found = load_recordings(path, left_out).at_speeds([0.9, 1.0, 1.1])
    kept = fitting(found, path, default_config(), left_out, ENCODE)
    assert [each.id for each in kept] == ["a_sp0.9", "a", "a_sp1.1", "b_sp0.9", "b"]
    assert [each.id for each in left_out] == ["none_sp0.9", "b_sp1.1"]


@pytest.mark.parametrize("is_packed", [False, True])
def test_lines_are_bounded(
    is_packed: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few megabytes, gzipped, may hold a line of gigabytes."""
    content = (corpus / "dev.jsonl").read_bytes()
    path = tmp_path / "m.jsonl.gz" if is_packed else tmp_path / "m.jsonl"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    longest = max(map(len, content.splitlines()))
    for most, fits in ((longest + 1, True), (longest // 2, False)):  # the first is a control
        monkeypatch.setattr(manifest, "MAX_LINE", most)
        if fits:
            assert len(list(read_manifest(path))) == 3
            continue
        with pytest.raises(ManifestError, match=f"1: a line of more than {most} bytes"):
            list(read_manifest(path))


def test_a_pipe_is_no_manifest(tmp_path: Path) -> None:
    """What was read of it to see what it is would be missing afterwards."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in (tmp_path / "pipe.jsonl", Path("/dev/zero")):
        with pytest.raises(ManifestError, match=f"{name} is not a file"):
            load_recordings(str(name), [])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_byte_order_mark_says_the_encoding(encoding: str, corpus: Path) -> None:
    """Windows' editors and shells write such manifests; UTF-16 without a mark is refused."""
    path = corpus / "dev.jsonl"
    expected = list(read_manifest(path))
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    if encoding != "utf-16-le":
        assert list(read_manifest(path)) == expected
        return
    with pytest.raises(ManifestError, match=r"dev.jsonl:1: not UTF-8: .*iconv -f UTF-16"):
        load_recordings(str(path), [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "a"}, ":1: 'audio': field required"),
        ({"id": 3}, ":1: 'id': input should be a valid string, got 3"),
        ({"start": -1}, ":1: 'start': input should be greater than or"),
        ({"duration": "2"}, ":1: 'duration': input should be a valid"),
        ({"text": "\ud83d"}, ":1: 'text': cannot be written as UTF-8"),
        ("{", ":1: not JSON"),
        ("[1]", ":1: input should be a valid dictionary or instance of Recording, got"),
        ("[" * 100_000, ":1: not JSON: nested too deeply"),
        ('{"id": "\udce4"}', ":1: not JSON: 'utf-8' codec"),
    ],
)
def test_bad_lines(line: str | dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"id": "a", "audio": "x"} if line != {"id": "a"} else {}
    text = line if isinstance(line, str) else json.dumps(good | line)
    (tmp_path / "m.jsonl").write_text(text + "\n", "utf-8", "surrogateescape")
    with pytest.raises(ManifestError, match=message) as error:
        load_recordings(str(tmp_path / "m.jsonl"), [])
    assert f"asrkit data check {tmp_path}/m.jsonl --write FILE removes such" in str(error.value)
    assert len(str(error.value)) < 4 * len(str(tmp_path)) + 400


def test_a_line_names_a_part_of_a_file(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    whole, data = Recording(id="x", audio=str(path)), path.read_bytes()

    def part(**options: Any) -> Recording:
        return Recording(id="x", audio=str(path), **options)

    facts = {"duration": 2.0, "sample_rate": 16000, "num_channels": 1}
    assert whole.measured() == part(sample_rate=16000).measured() == part(**facts)
    assert part(duration=2.0, sample_rate=16000).measured() == part(**facts)
    assert part(start=0.5).measured().duration == 1.5
    assert part(duration=2.05).measured() == part(**facts)  # rounded up
    for options, message in (
        ({"start": 2.0}, r"start must be below 2\.00 s, .* got 2\.0 s"),
        ({"duration": 2.2}, r"has 2\.00 s; 0 to 2\.2 s are not all in it: correct start and dur"),
        ({"start": 1.5, "duration": 1.0}, r"has 2\.00 s; 1\.5 to 2\.5 s are not all in it"),
        ({"channel": 1}, "has one channel, number 0, got channel 1"),
    ):
        with pytest.raises(AudioError, match=message):
            part(**options).measured()
    for first, size in ((0, 10), (3, 10), (0, len(data))):
        assert part(first_byte=first, num_bytes=size).source().read() == data[first:][:size]  # type: ignore[union-attr]
    assert part(num_bytes=10).source().read() == data[:10]  # type: ignore[union-attr]
    with pytest.raises(AudioError, match=f"ends before byte {len(data) + 1}"):
        part(first_byte=1, num_bytes=len(data)).source()
    with pytest.raises(AudioError, match="cannot be read: Is a directory"):
        Recording(id="x", audio=str(tmp_path), num_bytes=1).source()
    with pytest.raises(ValidationError, match="frozen"):
        whole.start = 1.0  # type: ignore[misc]


def test_what_is_no_manifest(corpus: Path) -> None:
    (corpus / "m.jsonl.gz").write_bytes(b"not gzip")
    line = (corpus / "dev.jsonl").read_text().splitlines()[0]
    (corpus / "twice.jsonl").write_text(f"{line}\n{line}\n")
    for name, message in (
        (f"{corpus}/m.jsonl.gz", "m.jsonl.gz is not a gzipped file"),
        (f"{corpus}/none.jsonl", r"none\.jsonl does not exist"),
        ("https://h/a", "^https://h/a is a URL, but asrkit reads files"),
        (f"{corpus}/twice.jsonl", "id 'dev0' occurs twice"),
    ):
        with pytest.raises(ManifestError, match=message):
            load_recordings(name, [])


def test_a_text_needs_frames_for_its_labels() -> None:
    """Frames of ceil((n-240)/640): 4 labels with one pair of equal ones need 5; of conv8 fewer."""
    network = ModelConfig.model_validate({"subsampling": "conv8"})
    conv8 = TextEncoder(ENCODE.tokenizer, ENCODE.normalize, network.rate.num_frames, ctc_frames)
    for encode, text, samples, fits in (
        (ENCODE, "noon", 240 + 640 * 5, True), (ENCODE, "noon", 240 + 640 * 4, False),
        (ENCODE, "nosy", 240 + 640 * 4, True), (conv8, "nosy", 240 + 1280 * 3, False),
        (conv8, "nosy", 240 + 1280 * 3 + 160, True), (ENCODE, "nosy", 240 + 1280 * 3, True),
    ):  # fmt: skip
        assert (encode.why_not(text, samples) is None) == fits


PLAIN = {"id": "a", "audio": "x.wav", "text": "no"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nemo.jsonl", b'{"audio_filepath": "x.wav", "duration": 1.0, "text": "no"}\n'),
        ("array.json", json.dumps([PLAIN, PLAIN]).encode()),
        ("train.parquet", b"PAR1\x15\x04" + bytes(range(256)) * 9),
        ("train.tsv", b"client_id\tpath\tsentence\nc\tx.mp3\tno\n"),
        ("cuts.jsonl.gz", gzip.compress(b'{"id": "c", "type": "MixedCut", "tracks": []}', mtime=0)),
        ("list.txt", b"yes\nno\n"),
        ("shar", b""),
    ],
)
def test_what_is_not_a_manifest_names_the_import(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    if content:
        path.write_bytes(content)
    else:
        path.mkdir()
    for read in (lambda: load_recordings(str(path), []), lambda: jobs_of([], str(path), [])):
        with pytest.raises(ManifestError) as error:
            read()
        assert f"asrkit data import auto {shlex.quote(str(path))} --output DIR" in str(error.value)
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("offset", 1.5, "start"), ("start_time", 1.5, "start"), ("Duration", 1.0, "duration"),
        ("end", 2.5, "duration (end minus start)"), ("TEXT", "no", "text"),
        ("speaker_id", "s", "speaker"), ("sampling_rate", 16000, "sample_rate"),
    ],
)  # fmt: skip
def test_a_key_of_another_toolkit_is_refused_with_the_right_one(
    key: str, value: object, name: str, tmp_path: Path
) -> None:
    """Ignored, an offset would put the beginning of the file under the text."""
    path = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "x.wav", key: value})
    with pytest.raises(ManifestError, match=f":1: {key!r} is not a key here: write "):
        jobs_of([], str(path), [])
    findings: list[Any] = []
    read_entries(str(path), findings)
    assert findings[0].message == f"{key!r} is not a key here: write {name}"


def test_other_keys_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also those beside the key that they stand for: nobody takes them for it."""
    write_wav(tmp_path / "x.wav", speech(1.0))
    line = PLAIN | {"gender": "f", "state": "Ohio", "transcript": "No.", "offset": None}
    path = write_manifest(tmp_path / "m.jsonl", line, line | {"id": "b"}, PLAIN | {"id": "c"})
    for _ in range(2):
        assert len(list(read_manifest(path))) == 3
        assert len(load_recordings(str(path), [])) == 3
    assert caplog.text.count("unused keys, with") == 1
    assert "'gender' (2), 'state' (2), 'transcript' (2), 'offset' (2)" in caplog.text

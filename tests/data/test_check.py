"""The data doctor: every check with what it finds and with what it must not find; the command."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from asrkit.audio.io import AudioInfo
from asrkit.checkpoint import save_model
from asrkit.data.check import Facts, Finding, Rules, examine
from asrkit.data.check.corpus import CORPUS_CHECKS
from asrkit.data.check.facts import Signal
from asrkit.data.check.reading import Entry, in_runs, inspect, measure
from asrkit.data.check.utterance import UTTERANCE_CHECKS
from asrkit.data.cuts import load_cuts
from asrkit.data.dataset import TextEncoder
from asrkit.data.manifest import Utterance, read_manifest
from asrkit.text import CharTokenizer, normalize
from tests.conftest import speech, write_config
from tests.test_checkpoint import a_file

ENCODE = TextEncoder(CharTokenizer(list(" enosy")), normalize)
RULES = Rules(ENCODE, min_seconds=0.1, max_seconds=30.0, fastest=1.25)
SIGNAL = Signal(seconds=2.0, peak=0.5, rms=0.1, mean=0.0, clipped=0.0, not_finite=0, digest=b"0")


def utterance(
    manifest: str = "train.jsonl", line: int = 1, signal: dict | None = None,
    header: tuple[int, int, int] | None = (16000, 32000, 1), problem: str | None = None,
    **keys: Any,
) -> Facts:  # fmt: skip
    """A good utterance of two seconds, but for what is named here."""
    values = {"id": f"u{line}", "audio": f"{line}.wav", "text": "yes no"} | keys
    measured = SIGNAL._replace(digest=f"{manifest}{line}".encode())._replace(**(signal or {}))
    return Facts(
        manifest, line, Utterance(**values), header and AudioInfo(*header),
        None if problem else measured, problem,
    )  # fmt: skip


def many(count: int = 30, **last: Any) -> list[Facts]:
    return [utterance(line=i) for i in range(1, count)] + [utterance(line=count, **last)]


def two(first: dict, second: dict, manifest: str = "dev.jsonl") -> list[Facts]:
    return [utterance(line=1, **first), utterance(manifest, 2, **second)]


def found(facts: list[Facts], check: str) -> list[Finding]:
    return [finding for finding in examine(facts, RULES) if finding.check == check]


# For each check: what it finds with a part of what it says, and what lies just beside that.
CASES: dict[str, tuple[list[Facts], str, list[Facts]]] = {
    "unreadable": ([utterance(problem="x.wav is empty")], "x.wav is empty", [utterance()]),
    "header": (
        [utterance(sample_rate=8000)],
        "sample_rate 8000, the file's is 16000",
        [utterance(sample_rate=16000, num_channels=1), utterance(line=2)],
    ),
    "outside": (
        [utterance(start=1.5, duration=1.0)],
        "1.5 to 2.5 s of a file of 2.00 s",
        [utterance(start=1.0, duration=1.05)],
    ),
    "cut-off": (
        [utterance(signal={"seconds": 1.2})],
        "ends after 1.20 of 2.00 s",
        [
            utterance(signal={"seconds": 1.95}),
            utterance(line=2, duration=1.2, signal={"seconds": 1.2}),
        ],
    ),
    "not-finite": ([utterance(signal={"not_finite": 3})], "3 samples", [utterance()]),
    "silent": (
        [utterance(signal={"rms": 0.0})],
        "all samples are 0",
        [utterance(signal={"rms": 0.0004})],
    ),
    "empty-text": ([utterance(text=" \t")], "' \\t'", [utterance(text=" no ")]),
    "unknown": ([utterance(text="yes!")], "not in the vocabulary: '!'", [utterance()]),
    "ctc": (
        [utterance(signal={"seconds": 0.3}, text="noyes noyes")],
        "7 encoder frames, but CTC needs 11",
        [utterance(signal={"seconds": 0.3}, text="noyes n")],
    ),
    "limits": (
        [utterance(signal={"seconds": 0.05}, text="n")],
        "0.05 s, not 0.1 to 30",
        [utterance(signal={"seconds": 0.1}, text="n")],
    ),
    "duration": (
        [utterance(duration=1.0, signal={"seconds": 1.0})],
        "duration 1.00 s, the file has 2.00 s",
        [utterance(duration=1.95), utterance(line=2, start=0.0, duration=1.0)],
    ),
    "faint": (
        [utterance(signal={"rms": 0.001})],
        "RMS -60 dBFS",
        [utterance(signal={"rms": 0.004})],
    ),
    "clipped": (
        [utterance(signal={"clipped": 0.02})],
        "2.0% of the samples",
        [utterance(signal={"clipped": 0.0009})],
    ),
    "invisible": (
        [utterance(text="no\u200b yes\ufeff")],
        "U+200B, U+FEFF",
        [utterance(text="n\u200co\t\nyes")],  # a joiner is spelling, white space is normalised
    ),
    "ctc-speed": (
        [utterance(signal={"seconds": 0.3}, text="noyes n")],
        "at speed 1.25: 6 encoder frames, but CTC needs 7",
        [utterance(signal={"seconds": 0.36}, text="noyes n")],
    ),
    "dc-offset": (
        [utterance(signal={"mean": -0.03})],
        "mean -0.030",
        [utterance(signal={"mean": 0.01})],
    ),
    "unicode": ([utterance(text="ﬁn")], "'ﬁ' for 'fi'", [utterance(text="é")]),
    "id": (
        [utterance(id="a"), utterance(line=2, id="a")],
        "the id of line 1 too",
        two({"id": "a"}, {"id": "a"}),
    ),
    "audio-twice": (
        [utterance(signal={"digest": b"1"}), utterance(line=2, signal={"digest": b"1"}, text="no")],
        "as u1, but with another text",
        [utterance(signal={"rms": 0.0, "digest": b"1"}) for _ in range(2)],  # silence is silence
    ),
    "pace": (
        many(text="yes no " * 10),
        "25.0/s, the median is 2.5",
        many(text="yes no ny"),
    ),
    "audio-overlap": (
        two({"signal": {"digest": b"1"}}, {"signal": {"digest": b"1"}}),
        "as u1 in train.jsonl",
        two({"signal": {"digest": b"1"}}, {"signal": {"digest": b"1"}}, "train.jsonl"),
    ),
    "speaker-overlap": (
        two({"speaker": "anna"}, {"speaker": "anna"}),
        "speaker 'anna': 1 here, 1 in train.jsonl",
        [*two({"speaker": "anna"}, {"speaker": "ben"}), *two({}, {})],
    ),
    "text-overlap": (
        [*two({}, {"text": "yes  no"}), utterance("dev.jsonl", 3, text="no")],
        "'yes  no' is in train.jsonl too, like 50% of dev.jsonl",
        two({"text": "yes"}, {"text": "no"}),
    ),
    "id-overlap": (
        two({"id": "a"}, {"id": "a"}),
        "in train.jsonl too",
        two({"id": "a"}, {"id": "a"}, "train.jsonl"),
    ),
    "sample-rates": (
        many(header=(8000, 16000, 1)),
        "8000 Hz, most have 16000",
        many(),
    ),
    "channels": (
        many(header=(16000, 32000, 2)),
        "2 channels, most have 1",
        [utterance(line=i, header=(16000, 32000, 2)) for i in range(3)],
    ),
}


def test_every_check_is_tested() -> None:
    assert list(CASES) == [check.name for check in (*UTTERANCE_CHECKS, *CORPUS_CHECKS)]


@pytest.mark.parametrize("check", CASES)
def test_a_check_finds_it(check: str) -> None:
    bad, message, _ = CASES[check]
    (finding,) = found(bad, check)
    assert message in finding.message
    assert finding.id == bad[finding.line - 1].utterance.id


@pytest.mark.parametrize("check", CASES)
def test_control_a_check_finds_nothing_else(check: str) -> None:
    _, _, good = CASES[check]
    assert found(good, check) == []


def test_more_of_what_checks_say() -> None:
    assert found([utterance(text=None)], "empty-text")[0].message == "no text"
    assert "num_channels 2" in found([utterance(num_channels=2)], "header")[0].message
    assert "not NFC" in found([utterance(text="e\u0301")], "unicode")[0].message
    assert found([utterance(signal={"rms": 0.0001})], "silent")[0].message == "RMS -80 dBFS"
    assert found([utterance(start=3.0)], "outside")
    slow = utterance(signal={"seconds": 29.0}, text="no")
    assert found([slow], "pace")[0].message.startswith("0.1/s")  # bounds hold without a median
    assert found(many(signal={"seconds": 2.0, "digest": b"x"}), "pace") == []
    unread = [utterance(line=i, problem="missing", audio="x.wav") for i in (1, 2)]
    assert {f.check for f in examine(unread, RULES)} == {"unreadable"}


def test_ctc_agrees_with_training() -> None:
    """The same function of the same numbers: what is found here is what training leaves out."""
    for samples in range(1600, 8000, 91):
        said = found([utterance(signal={"seconds": samples / 16000}, text="noon")], "ctc")
        assert bool(said) == (ENCODE.why_not("noon", int(samples / 16000 * 16000)) is not None)


# Reading


def inspected(path: Path, **keys: Any) -> Facts:
    return inspect(Entry("m", 1, Utterance(id="u", audio=str(path), text="no", **keys)))


def write_wav(path: Path, samples: np.ndarray, rate: int = 16000, **options: Any) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path


def test_signal(tmp_path: Path) -> None:
    time = np.arange(16000) / 16000
    sine = 0.5 * np.sin(2 * np.pi * 100 * time)
    signal = inspected(write_wav(tmp_path / "a.wav", sine + 0.1)).signal
    assert signal is not None
    assert signal[:4] == pytest.approx((1.0, 0.5, 0.5 / 2**0.5, 0.1), abs=1e-4)
    assert signal[4:6] == (0.0, 0)
    loud = inspected(write_wav(tmp_path / "b.wav", np.clip(4 * sine, -1, 1))).signal
    assert loud is not None
    assert 0.6 < loud.clipped < 0.7  # |2 sin| > 1 two thirds of the time
    broken = speech(1.0)
    broken[7:10] = np.nan
    facts = inspected(write_wav(tmp_path / "c.wav", broken, subtype="FLOAT"))
    assert facts.signal is not None
    assert facts.signal.not_finite == 3
    assert 0 < facts.signal.rms < 1


def test_signal_does_not_depend_on_blocks_or_the_file_format(tmp_path: Path) -> None:
    samples = speech(2.0)[:, None].repeat(2, axis=1)
    whole = measure([samples], 16000)
    pieces = measure([samples[:999], samples[999:1000], samples[1000:]], 16000)
    assert whole is not None
    assert pieces is not None
    assert whole.digest == pieces.digest
    assert whole[:6] == pytest.approx(pieces[:6])
    assert measure([], 16000) is None
    wav, flac = (
        inspected(write_wav(tmp_path / name, (speech(1.0) * 32767).astype(np.int16))).signal
        for name in ("x.wav", "x.flac")
    )
    assert wav == flac


def test_one_sample_at_full_scale_is_a_peak() -> None:
    high = np.array([1, 1, 0, 1, 1, 1, 1, 0, 1], dtype=bool)[:, None]
    assert in_runs(high) == 4
    assert in_runs(high[:2]) == 0


def test_parts_of_files(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(2.0))
    for keys, seconds in (
        ({}, 2.0), ({"start": 0.5}, 1.5), ({"start": 0.5, "duration": 0.25}, 0.25),
        ({"start": 1.5, "duration": 1e308}, 0.5), ({"start": 1e308}, 0.0),
    ):  # fmt: skip
        facts = inspected(path, **keys)
        assert facts.problem is None
        assert facts.seconds == seconds
    assert found([facts], "outside")


def test_hostile_audio(tmp_path: Path) -> None:
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "empty.wav").write_bytes(b"")
    (tmp_path / "text.wav").write_text("no audio")
    write_wav(tmp_path / "x.mp3", speech(4.0))
    (tmp_path / "cut.mp3").write_bytes((tmp_path / "x.mp3").read_bytes()[:4000])
    write_wav(tmp_path / "x.flac", speech(4.0))
    damaged = bytearray((tmp_path / "x.flac").read_bytes())
    damaged[len(damaged) // 2 :] = bytes(len(damaged) // 2)
    (tmp_path / "damaged.flac").write_bytes(damaged)
    for name, message in (
        ("missing.wav", "does not exist"), ("folder.wav", "is no file"), ("empty.wav", "is empty"),
        ("text.wav", "is not audio"), ("x" * 5000, "File name too long"),
    ):  # fmt: skip
        assert message in (inspected(tmp_path / name).problem or "")
    assert inspected(tmp_path / "a\0b.wav").problem
    assert found([inspected(tmp_path / "cut.mp3")], "cut-off")
    bad = [inspected(tmp_path / "damaged.flac")]
    assert found(bad, "cut-off") or found(bad, "unreadable")


# The command


def check(*arguments: object) -> int:
    return importlib.import_module("asrkit.data.__main__").main(["check", *map(str, arguments)])


def write_manifest(path: Path, *utterances: object) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in utterances))
    return path


@pytest.fixture
def sick(corpus: Path) -> Path:
    """One file missing, one silent, one id twice, one line that is none; 10 are good."""
    lines = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    soundfile.write(corpus / "audio" / "train1.flac", np.zeros(16000), 16000)
    (corpus / "audio" / "train2.flac").unlink()
    lines[3]["note"] = "é"
    again = lines[4] | {"audio": lines[5]["audio"]}
    return write_manifest(corpus / "train.jsonl", *lines, again, {"id": "x", "text": 3})


def test_a_good_corpus(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve recordings that differ; those of dev are among them."""
    assert check(corpus / "train.jsonl") == 0
    shown = capsys.readouterr().out
    assert "0 errors, 0 warnings, 0 notes" in shown
    assert "utterances    12" in shown
    assert "--config or --model" in shown
    assert check(corpus / "train.jsonl", corpus / "dev.jsonl") == 0
    shown = capsys.readouterr().out
    assert "dev0: as train0 in" in shown
    assert "0 errors, 3 warnings, 3 notes" in shown
    assert check(corpus / "train.jsonl", corpus / "dev.jsonl", "--strict") == 1


def test_a_sick_corpus(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(sick) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["error", "1", "lines"], ["error", "1", "audio"], ["error", "1", "silence"],
        ["error", "1", "ids"],
    ]  # fmt: skip
    assert "train1: all samples are 0" in lines[2]
    assert check(sick, "--list", "--jobs", 3) == 1
    shown = capsys.readouterr().out
    assert f"{sick}:13: error: id: train4: the id of line 5 too" in shown
    assert f"{sick}:14: error: line: 'audio': field required" in shown
    assert check(sick, "--no-audio") == 1
    shown = capsys.readouterr().out
    assert "all samples" not in shown
    assert "does not exist" in shown


def test_json(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(sick, "--format", "json") == 1
    report = json.loads(capsys.readouterr().out)
    silence = next(f for f in report["findings"] if f["check"] == "silent")
    assert (silence["severity"], silence["id"], silence["line"]) == ("error", "train1", 2)
    totals = report["manifests"][str(sick)]
    assert totals["utterances"] == 13
    assert totals["sample_rates"] == {"16000": 12}


def test_write(sick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From another folder, also through a link; the result has nothing wrong with it."""
    before = sick.read_bytes()
    (tmp_path / "deep" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "real")
    for output in (tmp_path / "new" / "clean.jsonl", tmp_path / "link" / "clean.jsonl"):
        assert check(sick, "--write", output) == 1
        assert f"{output}: 10 of 14 utterances" in capsys.readouterr().err
        kept = list(read_manifest(output, []))
        assert [u.id for u in kept] == [f"train{i}" for i in (0, *range(3, 12))]
        assert all(Path(u.audio).is_file() for u in kept)
        assert "é" in output.read_text(encoding="utf-8")
        assert len(load_cuts(output, [])) == 10
        assert check(output) == 0
    assert sick.read_bytes() == before
    assert check(sick, "--write", sick) == 1  # in place
    assert check(sick) == 0


def test_write_keeps_absolute_paths(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(1.0))
    manifest = write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": str(path), "text": "no"})
    assert check(manifest, "--write", tmp_path / "sub" / "clean.jsonl") == 0
    assert json.loads((tmp_path / "sub" / "clean.jsonl").read_text())["audio"] == str(path)


def test_config_and_model(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path)
    audio = str(write_wav(tmp_path / "new.wav", speech(1.0, seed=99)))
    dev = write_manifest(tmp_path / "dev.jsonl", {"id": "d", "audio": audio, "text": "nö"})
    assert check(corpus / "train.jsonl", dev, "--config", config) == 1
    assert "not in the vocabulary: 'ö'" in capsys.readouterr().out
    assert check(dev, "--config", config) == 0  # its own training set
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("nö"))))
    assert check(dev, "--model", tmp_path / "m.safetensors") == 0
    assert check(corpus / "train.jsonl", "--model", tmp_path / "m.safetensors") == 1


def test_lhotse_manifests(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cuts = load_cuts(corpus / "dev.jsonl", [])
    (tmp_path / "shar").mkdir()
    cuts.to_shar(tmp_path / "shar", fields={"recording": "wav"}, shard_size=2)
    cuts.to_file(tmp_path / "cuts.jsonl.gz")
    assert check(tmp_path / "shar") == 0
    assert "utterances    3" in capsys.readouterr().out
    assert check(tmp_path / "cuts.jsonl.gz", corpus / "train.jsonl") == 0
    (corpus / "audio" / "dev1.flac").unlink()
    assert check(tmp_path / "cuts.jsonl.gz") == 1
    assert "dev1.flac does not exist" in capsys.readouterr().out
    assert check(tmp_path / "cuts.jsonl.gz", "--write", tmp_path / "clean.jsonl") == 2


def test_hostile_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"id": "a", "audio": "x.wav", "text": "no"}
    write_wav(tmp_path / "x.wav", speech(1.0))
    manifest = write_manifest(tmp_path / "m.jsonl", good, good | {"id": "b", "text": ["no"]})
    with manifest.open("ab") as file:
        lines = ("[" * 100_000, '{"id": "ä"}', '{"id": "c", "audio": "x.wav", "text": "\\ud800"}')
        file.write("\n".join(lines).encode("latin-1"))
    assert check(manifest, "--list") == 1
    shown = capsys.readouterr().out
    for expected in (
        ":2: error: line: 'text': input should be a valid string, got ['no']",
        ":3: error: line: not JSON: nested too deep",
        ":4: error: line: not JSON: 'utf-8' codec can't decode",
        ":5: error: line: '\\ud800' cannot be written as UTF-8",
        "utterances    1\n",
    ):
        assert expected in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "no manifest none.jsonl"),
        (["empty.jsonl"], "empty.jsonl is empty"),
        (["folder"], "is neither a manifest nor lhotse's"),
        (["damaged.jsonl.gz"], "damaged.jsonl.gz"),
        (["m.jsonl", "m.jsonl"], "named twice"),
        (["m.jsonl", "n.jsonl", "--write", "c.jsonl"], "--write cleans one plain manifest"),
        (["m.jsonl", "--jobs", "0"], "--jobs must be 1 or more"),
        (["m.jsonl", "--config", "none.yaml"], "no configuration file none.yaml"),
        (["m.jsonl", "--model", "none.safetensors"], "no model file none.safetensors"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "damaged.jsonl.gz").write_bytes(b"not gzip")
    write_manifest(tmp_path / "m.jsonl", {"id": "a", "audio": "x.wav", "text": "no"})
    assert check(*arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()


def test_asrkit_data_has_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from asrkit.__main__ import main

    monkeypatch.setattr(sys, "argv", ["asrkit", "data", "check", "--help"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "usage: asrkit data" in shown
    assert "example:" in shown


def test_real_recordings(
    shared_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """an4 is sound, and its official speakers do not overlap."""
    monkeypatch.chdir(shared_data / "an4")
    assert check("train.jsonl", "dev.jsonl", "--jobs", 1) == 0
    shown = capsys.readouterr().out
    assert "0 errors, 0 warnings, 27 notes" in shown
    assert "26% of dev.jsonl" in shown

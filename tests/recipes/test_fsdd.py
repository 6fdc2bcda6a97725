"""FSDD: the official split, and one speaker left out, who is not in train and dev."""

from pathlib import Path

import pytest
import soundfile

from tests.conftest import write_manifest
from tests.recipes.test_corpora import (
    FSDD,
    check_audio,
    make_fsdd,
    make_prepared,
    pack_fsdd,
    read_rows,
    refuse,
)


def facts(out: Path) -> dict[str, list[tuple[object, ...]]]:
    """Id, text and speaker of what each split holds."""
    splits = {split: read_rows(out / f"{split}.jsonl") for split in ("train", "dev", "test")}
    return {s: [(r["id"], r["text"], r["speaker"]) for r in rows] for s, rows in splits.items()}


def test_archive(tmp_path: Path) -> None:
    audio = make_fsdd(tmp_path / "in")
    archive, out = pack_fsdd(tmp_path / "in"), tmp_path / "out"
    # A path serves like a URL.
    assert FSDD.main(["--output-dir", str(out), "--download", "--url", str(archive)]) == 0
    assert facts(out) == {
        "train": [("2_george_10", "two", "george"), ("9_theo_49", "nine", "theo")],
        "dev": [("0_george_5", "zero", "george"), ("1_george_9", "one", "george")],
        "test": [("7_theo_4", "seven", "theo")],
    }
    for split in facts(out):
        check_audio(read_rows(out / f"{split}.jsonl"), audio, 8000)


def test_leave_out(tmp_path: Path) -> None:
    make_fsdd(tmp_path / "in")
    arguments = ["--output-dir", str(tmp_path / "all"), "--data-dir", str(tmp_path / "in")]
    assert FSDD.main(arguments) == 0
    # From the original, and from the manifests that were made of it.
    for source, out in (("in", "a"), ("all", "b")):
        arguments = ["--output-dir", str(tmp_path / out), "--data-dir", str(tmp_path / source)]
        assert FSDD.main([*arguments, "--leave-out", "theo"]) == 0
        assert facts(tmp_path / out) == {
            "train": [("2_george_10", "two", "george")],
            "dev": [("0_george_5", "zero", "george"), ("1_george_9", "one", "george")],
            "test": [("9_theo_49", "nine", "theo"), ("7_theo_4", "seven", "theo")],
        }
    # Control: with all speakers, theo is in train.
    assert "theo" in {speaker for _, _, speaker in facts(tmp_path / "all")["train"]}


def other_corpus(folder: Path, texts: list[str]) -> Path:
    """A prepared corpus of 0.2 s at 16 kHz an utterance."""
    row = read_rows(make_prepared(folder) / "train.jsonl")[0]
    rows = [row | {"id": f"o{i}", "text": text} for i, text in enumerate(texts)]
    write_manifest(folder / "train.jsonl", *rows)
    return folder


def test_more_voices(tmp_path: Path) -> None:
    """Utterances of others whose words are all digits, at 8 kHz, up to a limit, evenly chosen."""
    make_fsdd(tmp_path / "in")
    texts = ["ONE TWO", "OH", "YES", "three oh", "GO ONE", "NINE"]
    more = other_corpus(tmp_path / "other", texts)
    options = ["--output-dir", tmp_path / "out", "--data-dir", tmp_path / "in", "--more", more]
    for limit, expected in ((400, ["o0", "o1", "o3", "o5"]), (3, ["o0", "o3"])):
        arguments = [*options, "--more-limit", limit, "--leave-out", "theo"]
        assert FSDD.main([str(argument) for argument in arguments]) == 0
        own, *others = read_rows(tmp_path / "out" / "train.jsonl")
        assert own["id"] == "2_george_10"
        assert [row["id"] for row in others] == [f"other-{name}" for name in expected]
        assert [row["text"] for row in others] == [texts[int(n[1])].lower() for n in expected]
        for row in others:
            assert (row["speaker"], row["duration"]) == ("other-a", 0.2)
            info = soundfile.info(row["audio"])
            assert (info.samplerate, info.frames) == (8000, 1600)
        assert len(read_rows(tmp_path / "out" / "dev.jsonl")) == 2  # has no more


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, out = make_prepared(tmp_path / "in"), tmp_path / "out"
    arguments = ["--output-dir", out, "--data-dir", folder, "--leave-out"]
    assert "--leave-out theo: the speakers are a, b" in refuse(FSDD, [*arguments, "theo"], capsys)
    assert "dev split is empty" in refuse(FSDD, [*arguments, "b"], capsys)  # all that dev has
    more = [*arguments[:-1], "--more"]
    assert "it has no train.jsonl; prepare" in refuse(FSDD, [*more, tmp_path / "none"], capsys)
    assert "none of its texts consists of digits alone" in refuse(FSDD, [*more, folder], capsys)
    assert not out.exists()

"""LibriSpeech: the parts asked for become splits; what is missing is named."""

from pathlib import Path

import pytest

from tests.recipes.originals import LIBRISPEECH, Fact, make_librispeech, prepare
from tests.recipes.test_corpora import refuse


def test_librispeech(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, out = make_librispeech(tmp_path / "in"), tmp_path / "out"
    expected = {
        "train": [Fact("19-198-0000", "NORTHANGER ABBEY", "19"),
                  Fact("19-198-0001", "IT'S THE LIFE", "19")],
        "dev": [Fact("84-121-0000", "GO DO YOU HEAR", "84")],
    }  # fmt: skip
    assert prepare(LIBRISPEECH, folder, out) == expected  # the mini parts, unless told otherwise
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["split", "utterances", "hours", "speakers"]
    assert table[1] == ["train", "2", "0.000", "1"]
    # Another part, from the folder above, leaves the others as they are.
    test = {"test-other": [Fact("367-130-0000", "LOBSTERS AND LOBSTERS", "367")]}
    found = prepare(LIBRISPEECH, folder.parent, out, "--parts", "test-other")
    assert found == expected | test


def test_librispeech_all_is_the_seven_official_parts(tmp_path: Path) -> None:
    parts = {part: {f"{i}-1-0000": "YES"} for i, part in enumerate(LIBRISPEECH.FULL)}
    splits = prepare(LIBRISPEECH, make_librispeech(tmp_path, parts), tmp_path, "--parts", "all")
    sizes = {split: len(rows) for split, rows in splits.items()}
    assert sizes == {"train": 3, "dev": 2, "test-clean": 1, "test-other": 1}


def test_librispeech_with_a_part_or_a_recording_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = make_librispeech(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    with pytest.raises(SystemExit):
        LIBRISPEECH.main([*map(str, arguments), "--parts", "train-clean-1000"])
    assert "argument --parts: invalid choice: 'train-clean-1000'" in capsys.readouterr().err
    message = refuse(LIBRISPEECH, [*arguments, "--parts", "train-clean-5", "dev-clean"], capsys)
    assert message.endswith("has no dev-clean: fetch it, or leave it out of --parts")
    recording = folder / "train-clean-5/19/198/19-198-0001.flac"
    recording.write_bytes(b"")
    message = refuse(LIBRISPEECH, arguments, capsys)
    assert "19-198-0001.flac" in message
    assert message.endswith("get a whole copy of the corpus")
    recording.unlink()
    message = refuse(LIBRISPEECH, arguments, capsys)
    assert "train-clean-5 lacks the audio of 1 of its 2 utterances: get a whole copy" in message
    (recording.parent / "19-198.trans.txt").write_text("19-198-0000\n")
    assert "cannot read" in refuse(LIBRISPEECH, arguments, capsys)
    assert not (tmp_path / "out").exists()

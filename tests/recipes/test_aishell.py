"""AISHELL-1: characters without spaces, by the official split."""

from pathlib import Path

import pytest

from tests.recipes.originals import AISHELL, Fact, make_aishell, prepare, write_audio
from tests.recipes.test_corpora import refuse


def test_aishell(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    splits = prepare(AISHELL, make_aishell(tmp_path / "in"), out)
    assert splits == {
        "train": [Fact("BAC009S0002W0122", "而对楼市", "S0002")],
        "dev": [Fact("BAC009S0724W0121", "K歌的T台", "S0724")],
        "test": [Fact("BAC009S0764W0121", "甚至出现", "S0764")],
    }
    assert "no transcript" not in capfd.readouterr().err


def test_aishell_with_recordings_missing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_aishell(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    (folder / "data_aishell/wav/test/S0764/BAC009S0764W0121.wav").unlink()
    message = refuse(AISHELL, arguments, capsys)
    assert "unpack the archives in wav, or get a whole copy" in message
    write_audio(folder / "data_aishell/wav/test/S0764/BAC009S0764W0999.wav")
    assert refuse(AISHELL, arguments, capsys).startswith("recipes/aishell/prepare.py: error:")
    with (folder / AISHELL.TRANSCRIPT).open("a", encoding="utf-8") as file:
        file.write("BAC009S0002W0130 楼\n")
    write_audio(folder / "data_aishell/wav/test/S0764/BAC009S0764W0121.wav")
    message = refuse(AISHELL, arguments, capsys)
    assert "data_aishell lacks the audio of 1 of its 4 utterances: get a whole copy" in message
    assert not (tmp_path / "out").exists()

"""yesno: sixty recordings whose names are their words."""

from pathlib import Path

import pytest

from tests.recipes.originals import YESNO, make_yesno, prepare
from tests.recipes.test_corpora import refuse


def test_yesno(tmp_path: Path) -> None:
    splits = prepare(YESNO, make_yesno(tmp_path / "in"), tmp_path / "out")
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 26, "dev": 4, "test": 30,
    }  # fmt: skip
    assert splits["test"][0] == ("0_0_0_0_0_0_0_1", "NO NO NO NO NO NO NO YES", "unknown")


def test_wrong_yesno(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_yesno(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    recording = folder / "0_0_0_0_0_0_0_0.wav"
    recording.rename(folder / "0_0_0_0_0_0_0_2.wav")
    assert "0_0_0_0_0_0_0_2.wav: the name should be" in refuse(YESNO, arguments, capsys)
    (folder / "0_0_0_0_0_0_0_2.wav").unlink()
    assert "has 59 wav files, not 60: get a whole copy" in refuse(YESNO, arguments, capsys)
    recording.write_bytes(b"RIFF")
    message = refuse(YESNO, arguments, capsys)
    assert recording.name in message
    assert message.endswith("get a whole copy of the corpus")

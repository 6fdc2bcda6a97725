"""Common Voice: one language of a release, its texts cleaned."""

from pathlib import Path

import pytest

from tests.recipes.originals import COMMONVOICE, Fact, check_cuts, make_commonvoice, prepare
from tests.recipes.test_corpora import refuse


def test_commonvoice(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COMMONVOICE, "JOBS", 1)  # a process takes seconds to start
    out = tmp_path / "out"
    splits = prepare(COMMONVOICE, make_commonvoice(tmp_path / "in"), out, "--language", "cy")
    assert splits == {
        "train": [Fact("common_voice_cy_1", "Beth yw'r e-bost meddai hi", "a")],
        "dev": [Fact("common_voice_cy_3", "Tŷ mawr 20 o bobl", "c")],
        "test": [Fact("common_voice_cy_4", "می\u200cروم", "d")],
    }
    check_cuts(out)
    assert "train: left out 1 texts without a letter" in capsys.readouterr().out
    names = ["dev.jsonl", "test.jsonl", "train.jsonl", "train.jsonl.gz"]
    assert sorted(path.name for path in out.iterdir()) == names


def test_wrong_commonvoice(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_commonvoice(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    message = refuse(COMMONVOICE, [*arguments, "--language", "de"], capsys)
    assert "has neither de/train.tsv nor train.jsonl" in message
    dev = folder / "cy/dev.tsv"
    dev.write_text(dev.read_text(encoding="utf-8").replace("variant", "x"), encoding="utf-8")
    arguments += ["--language", "cy"]
    message = refuse(COMMONVOICE, arguments, capsys)
    assert message.endswith("dev.tsv has no column variant: take a release from 13.0 on")
    dev.unlink()
    assert "cy/dev.tsv" in refuse(COMMONVOICE, arguments, capsys)
    assert not list(tmp_path.glob("out/*"))

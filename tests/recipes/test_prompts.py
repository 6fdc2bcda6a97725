"""prompts: texts that are not what is said are left out, each kind with its count."""

import gzip
import json
from pathlib import Path

import pytest
import soundfile

from tests.recipes.test_corpora import load_recipe, make_samples, refuse

PROMPTS = load_recipe("prompts")
TEXTS = """\ufeff; Core sounds
activated: Attivato.
conf/kicked: Sei stato espulso - "subito" - dall’auto-radio!
conf/kicked: Sei stato
beep: [un suono]
menu: Premere 1.
lost: non pu? essere
silent: Senza audio
who: Chi parla?
star: Premere * ...
wait: Attendere...
"""


def unpacked(folder: Path) -> Path:
    """A folder like that of the unpacked packages."""
    doc = folder / "usr/share/doc/asterisk-core-sounds-it/core-sounds-it.txt.gz"
    doc.parent.mkdir(parents=True)
    doc.write_bytes(gzip.compress(TEXTS.encode()))
    for name in ("activated", "conf/kicked", "beep", "menu", "lost", "who", "star", "wait"):
        path = folder / f"usr/share/asterisk/sounds/it_IT_m_Carlo/{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, make_samples(0, 8000), 8000)
    return folder


def options(tmp_path: Path) -> list[str]:
    return ["--language", "it", "--data-dir", str(tmp_path), "--output-dir", str(tmp_path / "out")]


def texts(tmp_path: Path, *more: str) -> dict[str, str]:
    """The texts by id, of both parts."""
    assert PROMPTS.main([*options(tmp_path), *more]) == 0
    paths = [tmp_path / "out" / f"{split}.jsonl" for split in ("train", "dev")]
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    return {row["id"]: row["text"] for row in rows}


def test_prompts_are_spoken_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert texts(unpacked(tmp_path)) == {
        "activated": "attivato",
        "conf-kicked": "sei stato espulso subito dall’auto-radio",
        "who": "chi parla",
        "star": "premere",
        "wait": "attendere",
    }
    printed = capsys.readouterr().out
    for reason in ("name a sound", "have digits", "have lost letters", "come twice"):
        assert f"1 prompts {reason}: left out" in printed
    assert "1 prompts have no recording: left out" in printed


def test_written_prompts_keep_capitals_and_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One form of each mark; a sign that is said as a word is left out."""
    assert texts(unpacked(tmp_path), "--written") == {
        "activated": "Attivato.",
        "conf-kicked": 'Sei stato espulso - "subito" - dall\'auto-radio!',
        "who": "Chi parla?",
        "wait": "Attendere…",
    }
    assert "1 prompts have signs for words: left out" in capsys.readouterr().out


def test_missing_package_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "asterisk-core-sounds-it-wav" in refuse(PROMPTS, options(tmp_path), capsys)

"""Long recordings with their texts: cut where both agree; wrong words cost only their piece."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asrkit
from asrkit.audio import SAMPLE_RATE
from asrkit.commands.data import main
from asrkit.data.inputs import file_of, read_recordings
from asrkit.model_file import load_model, save_model
from asrkit.runtime import Word
from asrkit.text import CharTokenizer
from asrkit.text.graphemes import spaced_units
from asrkit.transcription.segmentation import (
    Cut,
    Options,
    Piece,
    pieces_of,
    possible_cuts,
    scored,
    span,
)
from tests.conftest import RECORDINGS, speech, write_wav
from tests.running import run


def words(*given: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 1.0) for text, start, end in given]


HEARD = words(("one", 0, 0.4), ("too", 1.0, 1.4), ("three", 1.5, 2.0), ("four", 3.0, 3.4))


def test_cuts_are_pauses_between_words_of_both() -> None:
    assert possible_cuts(HEARD, spaced_units("one two three four"), 0.2) == [
        Cut(1, 0.4, 1.0), Cut(3, 2.0, 3.0),
    ]  # fmt: skip
    # An empty word, such as a dash that is not spoken, belongs to the piece before it.
    spelled = [" one", " ", " two", " three", " four"]
    assert [cut.unit for cut in possible_cuts(HEARD, spelled, 0.2)] == [2, 4]


def test_control_no_cut_where_the_text_differs() -> None:
    assert possible_cuts(HEARD, spaced_units("a whole other speech"), 0.2) == []
    assert possible_cuts(HEARD, spaced_units("onetwo three four"), 0.2) == [Cut(2, 2.0, 3.0)]


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("你好，世界。这里是北京。", [2, 4, 7]),  # numbers of units before the cuts
        ("你好， 世界。这里是北京。", [2, 4, 7]),  # a space that is not heard
        ("你号，世界。这里是北京。", [2, 4, 7]),  # a wrong character before a pause
        ("你好，时界。这里是北京。", [2, 4, 7]),  # and after it
        ("你好们，世界。这里是北京。", [5, 8]),  # either 好 or 们 is before the pause
        ("你，世界。这里是北京。", [1, 3, 6]),  # 好 is heard and not read: one cut beside it
        ("这里没有别的话可以说了吧。", []),  # a control: another text
    ],
)
def test_cuts_in_a_script_without_spaces(text: str, cuts: list[int]) -> None:
    """The pauses after 好, after 界 and before the label 北京 of two characters."""
    heard = [
        Word(unit, start, start + 0.2, 1.0).with_space(not number)
        for number, (unit, start) in enumerate(
            zip([*"你好世界这里是", "北京"], [0.0, 0.2, 1.0, 1.2, 2.0, 2.2, 2.4, 3.0], strict=True)
        )
    ]
    spelled = [unit.replace("，", "").replace("。", "") for unit in spaced_units(text)]
    assert [cut.unit for cut in possible_cuts(heard, spelled, 0.3)] == cuts


@pytest.fixture
def talk(tmp_path: Path) -> tuple[Path, list[str]]:
    """Four utterances of an4 with pauses, and their texts as the model writes them."""
    found, size = [], 0.0
    for each in read_recordings(str(RECORDINGS / "an4/dev.jsonl"), []):
        if len((each.text or "").split()) > 3 and size < 12.0:
            found.append(each)
            size += each.duration or 0.0
    pause = np.zeros(SAMPLE_RATE // 2, np.float32)
    parts = [part for each in found for part in (each.load(), pause)]
    soundfile.write(tmp_path / "talk.wav", np.concatenate(parts), SAMPLE_RATE)
    return tmp_path / "talk.wav", [(each.text or "").lower() for each in found]


def segment(
    talk: Path, text: str, folder: Path, model: str = "small-en-alnum"
) -> tuple[int, list[dict[str, object]], list[str]]:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    output = folder / "out.jsonl"
    status = main(
        ["segment", str(talk), str(folder / "text.txt"), "--model", model,
         "--output", str(output), "--min-score", "0.05"]
    )  # fmt: skip
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    left = (folder / "out.left_out.jsonl").read_text().splitlines()
    return status, rows, [json.loads(line)["text"] for line in left]


def test_a_wrong_word_costs_its_piece(talk: tuple[Path, list[str]], tmp_path: Path) -> None:
    path, texts = talk
    wrong = [*texts]
    wrong[1] = " ".join(["september", *wrong[1].split()[1:]])
    status, rows, left = segment(path, " ".join(wrong), tmp_path)
    assert status == 1
    assert "september" in " ".join(left)
    assert "september" not in " ".join(str(row["text"]) for row in rows)
    kept = " ".join(str(row["text"]) for row in rows)
    assert texts[0] in kept
    assert texts[-1] in kept


def test_all_of_a_text_is_found_without_spaces_too(
    talk: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same recording by a model whose labels are characters, from lines of its text."""
    path, texts = talk
    status, expected, left = segment(path, " ".join(texts), tmp_path)
    assert (status, left) == (0, [])
    pieces = [str(row["text"]) for row in expected]
    assert " ".join(pieces) == " ".join(texts)
    assert [each.text for each in read_recordings(str(tmp_path / "out.jsonl"), [])] == pieces
    file = load_model("small-en-alnum")
    label = {word: chr(0x6000 + number) for number, word in enumerate(file.tokenizer.symbols)}
    text = file.config.text.model_copy(update={"tokenizer": "characters"})
    config = file.config.model_copy(update={"text": text})
    tokenizer = CharTokenizer([*label.values()])
    save_model(tmp_path / "zh.safetensors", file._replace(tokenizer=tokenizer, config=config))
    lines = ["".join(label[word] for word in line.split()) for line in texts]
    capsys.readouterr()
    model = str(tmp_path / "zh.safetensors")
    status, rows, left = segment(path, "\n".join(lines), tmp_path, model)
    assert (status, left) == (0, [])
    assert "".join(str(row["text"]) for row in rows) == "".join(lines)
    assert [(row["start"], row["duration"]) for row in rows] == [
        (row["start"], row["duration"]) for row in expected
    ]
    assert f" {len(''.join(lines))} characters, " in capsys.readouterr().out


def test_no_piece_is_shorter_than_the_shortest(
    talk: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Long pauses around a short utterance stay with it, and the last piece is not a rest."""
    path, texts = talk
    job, recognizer = file_of(str(path), text=" ".join(texts)), asrkit.load("small-en-alnum")
    for shortest in (0.5, 1.0, 2.0):
        limits = Options(shortest=shortest, longest=6.0)
        pieces = [*pieces_of(recognizer, job, str, limits)]
        assert len(pieces) > 2
        assert " ".join(piece.text for piece in pieces) == job.text
        assert all(shortest <= round(piece.end - piece.start, 6) <= 6.0 for piece in pieces)


@pytest.mark.parametrize(
    ("edges", "shortest", "expected"),
    [
        ((1.0, 2.0, 5.0, 8.0), 1.0, (1.75, 5.25)),  # a quarter of a second of each pause
        ((1.0, 4.0, 4.4, 8.0), 1.0, (3.7, 4.7)),  # and more for a short piece
        ((3.7, 4.0, 4.4, 8.0), 1.0, (3.85, 4.85)),  # up to the middle of a pause
        ((3.9, 4.0, 4.4, 8.0), 1.0, (3.95, 4.95)),
        ((1.0, 4.0, 4.4, 4.5), 1.0, (3.45, 4.45)),
    ],
)
def test_the_audio_of_a_piece(
    edges: tuple[float, ...], shortest: float, expected: tuple[float, float]
) -> None:
    left, right = Cut(1, *edges[:2]), Cut(2, *edges[2:])
    assert span(left, right, shortest) == pytest.approx(expected)


def test_a_piece_that_is_too_long_or_has_other_letters_is_left_out(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), SAMPLE_RATE)
    recognizer, job = asrkit.load("small-en-alnum"), file_of(str(tmp_path / "a.wav"))
    for text, longest, problem in (
        ("one", 1.0, "no pause of 0.2 s where text and audio agree for 2 s"),
        ("\u2014", 15.0, "not in the vocabulary: '\u2014' in '\u2014'"),
    ):
        limits = Options(longest=longest)
        (piece,) = pieces_of(recognizer, job.model_copy(update={"text": text}), str, limits)
        assert (piece.text, piece.score, piece.problem) == (text, 0.0, problem)


def test_a_recognised_word_that_cannot_be_written_costs_its_piece(tmp_path: Path) -> None:
    """Such as the label <unk> of an imported model: it ended the command."""
    recognizer = asrkit.load("small-en-alnum")
    part, piece = speech(2.0), Piece("one", 0.0, 2.0, 0.0)
    assert scored(recognizer, part, piece, str, words(("<unk>", 0.0, 2.0))).problem == ""
    found = scored(recognizer, part, piece, str, words(("<unk>", 5.0, 6.0)))
    assert found.problem == "not in the vocabulary: '<unk>' in '<unk>'"


def test_pieces_name_the_track_that_was_recognised(tmp_path: Path) -> None:
    """Training would otherwise read the default track with the texts of another one."""
    write_wav(tmp_path / "a.wav", speech(1.0))
    (tmp_path / "a.txt").write_text("one")
    options = "--model", "small-en-alnum", "--output", tmp_path / "a.jsonl", "--track", 0
    assert run("data", "segment", tmp_path / "a.wav", tmp_path / "a.txt", *options) == 1
    (line,) = (tmp_path / "a.left_out.jsonl").read_text().splitlines()
    assert json.loads(line)["track"] == 0

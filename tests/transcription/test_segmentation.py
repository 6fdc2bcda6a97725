"""Long recordings with their texts: cut where both agree; wrong words cost only their piece."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import asrkit
from asrkit.audio import SAMPLE_RATE
from asrkit.data.__main__ import main
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.runtime import Word
from asrkit.transcription.segmentation import (
    Cut,
    Options,
    Part,
    Piece,
    chosen,
    parts_of,
    pieces_of,
    possible_cuts,
    scored,
)
from tests.conftest import speech


def words(*given: tuple[str, float, float]) -> list[Word]:
    return [Word(text, start, end, 1.0) for text, start, end in given]


HEARD = words(("one", 0, 0.4), ("too", 1.0, 1.4), ("three", 1.5, 2.0), ("four", 3.0, 3.4))


def test_cuts_are_pauses_between_words_of_both() -> None:
    assert possible_cuts(HEARD, ["one", "two", "three", "four"], 0.2) == [
        Cut(1, 0.4, 1.0), Cut(3, 2.0, 3.0),
    ]  # fmt: skip
    # An empty word, such as a dash that is not spoken, belongs to the piece before it.
    assert [cut.word for cut in possible_cuts(HEARD, ["one", "", "two", "three", "four"], 0.2)] == [
        2, 4,
    ]  # fmt: skip


def test_control_no_cut_where_the_text_differs() -> None:
    assert possible_cuts(HEARD, ["a", "whole", "other", "speech"], 0.2) == []
    assert possible_cuts(HEARD, ["onetwo", "three", "four"], 0.2) == [Cut(2, 2.0, 3.0)]


def test_pieces_end_at_the_longest_pause_in_bounds() -> None:
    cuts = [Cut(i, at - pause / 2, at + pause / 2) for i, (at, pause) in enumerate(
        [(0.5, 0.9), (3.0, 0.3), (4.0, 0.5), (14.0, 0.4), (40.0, 0.2), (40.5, 0.9)], 1
    )]  # fmt: skip
    assert [cut.word for cut in chosen(cuts, Options(shortest=1.0, longest=15.0))] == [3, 4, 5]


@pytest.fixture
def talk(tmp_path: Path, shared_data: Path) -> tuple[Path, list[str]]:
    """Four utterances of an4 with pauses, and their texts as the model writes them."""
    found, size = [], 0.0
    for each in read_labelled(str(shared_data / "an4/dev.jsonl"), []):
        if len((each.text or "").split()) > 3 and size < 12.0:
            found.append(each)
            size += each.duration or 0.0
    pause = np.zeros(SAMPLE_RATE // 2, np.float32)
    parts = [part for each in found for part in (each.load(), pause)]
    soundfile.write(tmp_path / "talk.wav", np.concatenate(parts), SAMPLE_RATE)
    return tmp_path / "talk.wav", [(each.text or "").lower() for each in found]


def segment(talk: Path, text: str, folder: Path) -> tuple[int, list[dict[str, object]], list[str]]:
    (folder / "text.txt").write_text(text)
    output = folder / "out.jsonl"
    status = main(
        ["segment", str(talk), str(folder / "text.txt"), "--model", "small-en-alnum",
         "--output", str(output), "--min-score", "0.05"]
    )  # fmt: skip
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    left = (folder / "out.left_out.jsonl").read_text().splitlines()
    return status, rows, [json.loads(line)["text"] for line in left]


def test_all_of_a_text_is_found(talk: tuple[Path, list[str]], tmp_path: Path) -> None:
    path, texts = talk
    status, rows, left = segment(path, " ".join(texts), tmp_path)
    assert (status, left) == (0, [])
    assert " ".join(str(row["text"]) for row in rows) == " ".join(texts)
    assert [each.text for each in read_labelled(str(tmp_path / "out.jsonl"), [])] == [
        row["text"] for row in rows
    ]


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


def test_parts_are_those_of_the_file(talk: tuple[Path, list[str]]) -> None:
    job = Labelled("talk", str(talk[0]))
    spans = [(0.0, 1.5), (1.5, 1.5), (2.25, 4.0), (4.0, 100.0)]
    found = list(parts_of(job, spans))
    whole = job.load()
    for (start, end), part in zip(spans, found, strict=True):
        here = whole[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
        assert np.array_equal(part.samples, here)
    inner = found[2].between(3.0, 3.5)
    assert np.array_equal(inner, whole[3 * SAMPLE_RATE : round(3.5 * SAMPLE_RATE)])
    assert not np.array_equal(inner, found[2].between(2.5, 3.0))  # control


def test_a_piece_that_is_too_long_or_has_other_letters_is_left_out(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", speech(2.0), SAMPLE_RATE)
    recognizer, job = asrkit.load("small-en-alnum"), Labelled("a", str(tmp_path / "a.wav"))
    for text, longest, problem in (
        ("one", 1.0, "no pause of 0.2 s where text and audio agree for 2 s"),
        ("\u2014", 15.0, "not in the vocabulary: '\u2014' in '\u2014'"),
    ):
        limits = Options(longest=longest)
        (piece,) = pieces_of(recognizer, job._replace(text=text), str, limits)
        assert (piece.text, piece.score, piece.problem) == (text, 0.0, problem)


def test_a_recognised_word_that_cannot_be_written_costs_its_piece(tmp_path: Path) -> None:
    """Such as the label <unk> of an imported model: it ended the command."""
    recognizer = asrkit.load("small-en-alnum")
    part, piece = Part(speech(2.0), SAMPLE_RATE, 0.0), Piece("one", 0.0, 2.0, 0.0)
    assert scored(recognizer, part, piece, str, words(("<unk>", 0.0, 2.0))).problem == ""
    found = scored(recognizer, part, piece, str, words(("<unk>", 5.0, 6.0)))
    assert found.problem == "not in the vocabulary: '<unk>' in '<unk>'"

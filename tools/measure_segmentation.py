"""Measure how much `asrkit data segment` finds again with a text that has errors.

    python tools/measure_segmentation.py MODEL MANIFEST --errors 0,0.05 --scores 0.05,0.2,0.5

Joins the utterances of each speaker to one recording, with pauses of 0.3 to 0.8 s between them.
`--silence 0,0` joins the utterances of a chapter as they were read. Removes or replaces a share of
the words of the text. Prints the number of utterances whose text is still right, and the share of
them whose words are all in pieces that are kept. The third number is that of utterances which are
kept with a wrong text.

An error costs the words around it, so long utterances need the last columns: the share of the
right words that are in pieces with a right text, the pieces, and those with a wrong text. A word
removed at the edge of a piece makes the text of that piece wrong.
"""

import argparse
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

import asrkit
from asrkit.audio import SAMPLE_RATE
from asrkit.build import build_normalizer
from asrkit.data.labelled import Labelled, read_labelled
from asrkit.runtime.load import load_model
from asrkit.transcription.segmentation import Options, Piece, pieces_of


class Joined(NamedTuple):
    job: Labelled
    words: list[tuple[int, str]]  # utterance and right word, for each word of the job's text; ""
    removed: list[tuple[int, int]]  # utterance of each removed word, and words before its place


def joined(
    utterances: Sequence[Labelled],
    errors: float,
    silence: tuple[float, float],
    draw: random.Random,
    path: Path,
) -> Joined:
    """Write a recording of all utterances, and return it with a text that has errors."""
    every = [word for each in utterances for word in (each.text or "").split()]
    parts, text, words, removed = (
        list[np.ndarray](),
        list[str](),
        list[tuple[int, str]](),
        list[tuple[int, int]](),
    )
    for number, each in enumerate(utterances):
        pause = np.zeros(round(SAMPLE_RATE * draw.uniform(*silence)), np.float32)
        parts += [each.load(), pause]
        for word in (each.text or "").split():
            if draw.random() >= errors:
                text.append(word)
                words.append((number, word))
            elif draw.random() < 0.5:
                removed.append((number, len(text)))
            else:
                text.append(draw.choice(every))
                words.append((number, word))
    soundfile.write(path, np.concatenate(parts), SAMPLE_RATE)
    return Joined(Labelled(path.stem, str(path), " ".join(text)), words, removed)


def found_again(case: Joined, pieces: Sequence[Piece], least: float, count: int) -> Counter[str]:
    """Count utterances and words with the right text, those that are kept, and wrong pieces."""
    total = Counter(number for number, _ in case.words)
    kept, wrong, place = Counter[int](), {number for number, _ in case.removed}, 0
    found = Counter[str]()
    for piece in pieces:
        text = piece.text.split()
        parts, first = case.words[place : place + len(text)], place
        place += len(text)
        same = [word == right for word, (_, right) in zip(text, parts, strict=True)]
        wrong.update(number for (number, _), fits in zip(parts, same, strict=True) if not fits)
        found["words"] += sum(same)
        if text and not piece.problem and piece.score >= least:
            kept.update(number for number, _ in parts)
            missing = any(first <= spot <= place for _, spot in case.removed)
            found["pieces"] += 1
            found["wrong pieces"] += missing or not all(same)
            found["words kept"] += 0 if missing or not all(same) else len(text)
    whole = [number for number in total if kept[number] == total[number]]
    found["right"] = count - len(wrong)
    found["right kept"] = sum(number not in wrong for number in whole)
    found["wrong kept"] = len(whole) - found["right kept"]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("manifest")
    parser.add_argument("--errors", default="0,0.05", help="shares of words with an error")
    parser.add_argument("--scores", default="0.05,0.2,0.5", help="lowest scores of pieces")
    parser.add_argument("--speakers", type=int, default=1000, help="most speakers")
    parser.add_argument("--silence", default="0.3,0.8", help="seconds between utterances")
    options = parser.parse_args(argv)
    recognizer = asrkit.load(options.model)
    normalize = build_normalizer(load_model(options.model).config.text)
    speakers = defaultdict[str, list[Labelled]](list)
    for each in read_labelled(options.manifest, []):
        speakers[each.speaker or ""].append(each)
    names = sorted(speakers)[: options.speakers]
    shortest, longest = map(float, options.silence.split(","))
    print("errors   score  utterances   kept  wrong    words   kept  pieces  wrong")
    for errors in map(float, options.errors.split(",")):
        for least in map(float, options.scores.split(",")):
            draw, counts = random.Random(0), Counter[str]()
            for name in names:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "joined.wav"
                    case = joined(speakers[name], errors, (shortest, longest), draw, path)
                    found = pieces_of(recognizer, case.job, normalize, Options(least=least))
                    counts += found_again(case, list(found), least, len(speakers[name]))
            print(
                f"{100 * errors:4.0f} %  {least:6.3f}"
                f"  {counts['right']:10} {share(counts['right kept'], counts['right'])}"
                f"  {counts['wrong kept']:5}"
                f"  {counts['words']:7} {share(counts['words kept'], counts['words'])}"
                f"  {counts['pieces']:6}  {counts['wrong pieces']:5}",
                flush=True,
            )


def share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):4.1f} %"


if __name__ == "__main__":
    main()

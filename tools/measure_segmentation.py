"""Measure how much `asrkit data segment` finds again with a text that has errors.

    python tools/measure_segmentation.py MODEL MANIFEST --errors 0,0.05 --scores 0.05,0.2,0.5

Joins the utterances of each speaker to one recording, with pauses of 0.3 to 0.8 s between them.
Removes or replaces a share of the words of the text. Prints the number of utterances whose text is
still right, and the share of them whose words are all in pieces that are kept. The last number is
that of utterances which are kept with a wrong text.
"""

import argparse
import random
import tempfile
from collections import defaultdict
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
    removed: set[int]  # utterances that lack a word


def joined(
    utterances: Sequence[Labelled], errors: float, draw: random.Random, path: Path
) -> Joined:
    """Write a recording of all utterances, and return it with a text that has errors."""
    every = [word for each in utterances for word in (each.text or "").split()]
    parts, text, words, removed = (
        list[np.ndarray](),
        list[str](),
        list[tuple[int, str]](),
        set[int](),
    )
    for number, each in enumerate(utterances):
        pause = np.zeros(round(SAMPLE_RATE * draw.uniform(0.3, 0.8)), np.float32)
        parts += [each.load(), pause]
        for word in (each.text or "").split():
            if draw.random() >= errors:
                text.append(word)
                words.append((number, word))
            elif draw.random() < 0.5:
                removed.add(number)
            else:
                text.append(draw.choice(every))
                words.append((number, word))
    soundfile.write(path, np.concatenate(parts), SAMPLE_RATE)
    return Joined(Labelled(path.stem, str(path), " ".join(text)), words, removed)


def found_again(
    case: Joined, pieces: Sequence[Piece], least: float, count: int
) -> tuple[int, int, int]:
    """Return the numbers of utterances with the right text, kept with it, and kept with another."""
    kept, wrong, place = [0] * count, set(case.removed), 0
    total = [0] * count
    for number, _ in case.words:
        total[number] += 1
    for piece in pieces:
        for word in piece.text.split():
            number, right = case.words[place]
            place += 1
            kept[number] += not piece.problem and piece.score >= least
            if word != right:
                wrong.add(number)
    whole = [number for number in range(count) if total[number] and kept[number] == total[number]]
    right = sum(number not in wrong for number in whole)
    return count - len(wrong), right, len(whole) - right


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("manifest")
    parser.add_argument("--errors", default="0,0.05", help="shares of words with an error")
    parser.add_argument("--scores", default="0.05,0.2,0.5", help="lowest scores of pieces")
    parser.add_argument("--speakers", type=int, default=1000, help="most speakers")
    options = parser.parse_args(argv)
    recognizer = asrkit.load(options.model)
    normalize = build_normalizer(load_model(options.model).config.text)
    speakers = defaultdict[str, list[Labelled]](list)
    for each in read_labelled(options.manifest, []):
        speakers[each.speaker or ""].append(each)
    names = sorted(speakers)[: options.speakers]
    print("errors  score     right     kept  wrong")
    for errors in map(float, options.errors.split(",")):
        for least in map(float, options.scores.split(",")):
            draw, counts = random.Random(0), np.zeros(3, int)
            for name in names:
                with tempfile.TemporaryDirectory() as folder:
                    case = joined(speakers[name], errors, draw, Path(folder) / f"{name}.wav")
                    found = pieces_of(recognizer, case.job, normalize, Options(least=least))
                    counts += found_again(case, list(found), least, len(speakers[name]))
            share = f"{100 * counts[1] / counts[0]:7.1f} %"
            print(
                f"{100 * errors:4.0f} %  {least:5.2f}  {counts[0]:8} {share}  {counts[2]:5}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Long audio with its text: divided at pauses into utterances that can be trained on.

The recording is recognised, and the recognised characters are aligned with those of the text. The
recording can be cut in each pause between two units of both: words, or characters in scripts
without spaces. It is cut in the longest pauses until each piece is short enough and fits its own
part of the text. The score of a piece is how well its worst word fits.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from asrkit.audio import SAMPLE_RATE
from asrkit.build import build_alignment
from asrkit.data.recording import Recording
from asrkit.errors import UserError
from asrkit.runtime import Recognizer, Word
from asrkit.text.graphemes import in_one_line, spaced_units

AROUND = 10  # characters at each side of a cut, of which most have to agree
AGREEING = 0.6  # share of them
EDGE = 0.25  # seconds of a pause that stay at each end of a piece


class Options(NamedTuple):
    """Bounds of the pieces; lengths in seconds."""

    pause: float = 0.2  # shortest pause in which the recording is cut
    shortest: float = 1.0
    longest: float = 15.0
    least: float = 0.1  # lowest score; pieces with a lower one are divided further


class Piece(NamedTuple):
    """A part of the recording with its part of the text."""

    text: str  # part of the text, as it was given
    start: float  # start in the recording, in seconds
    end: float  # end in the recording, in seconds
    score: float  # 0 to 1, how well the worst word fits; 0 with a problem
    problem: str = ""  # why the piece cannot be used, or ""


class Cut(NamedTuple):
    """A place between two units at which the recording can be cut."""

    unit: int  # number of units of the text before it
    end: float  # end of the recognised word before it, in seconds
    start: float  # start of the recognised word after it, in seconds

    @property
    def middle(self) -> float:
        return (self.end + self.start) / 2

    @property
    def pause(self) -> float:
        return self.start - self.end


def pieces_of(
    recognizer: Recognizer, job: Recording, normalize: Callable[[str], str], options: Options
) -> Iterator[Piece]:
    """Divide a recording with its text into pieces, in order; no word is lost or repeated."""
    heard, samples = recognizer.transcribe_blocks(job.blocks()).words, job.load()
    given, last = spaced_units(in_one_line(job.text or "")), len(samples) / SAMPLE_RATE
    spelled = [unit[: unit.startswith(" ")] + normalize(unit) for unit in given]
    cuts = possible_cuts(heard, spelled, options.pause)
    waiting = [(Cut(0, 0.0, 0.0), Cut(len(given), last, last))]
    while waiting:
        left, right = waiting.pop()
        start, end = span(left, right, options.shortest)
        piece = Piece("".join(given[left.unit : right.unit]).strip(), start, end, 0.0)
        first, most = left.middle + options.shortest, right.middle - options.shortest
        inner = [cut for cut in cuts if first <= cut.middle <= most]
        if end - start <= options.longest:
            said = [word for word in heard if start <= (word.start + word.end) / 2 < end]
            audible = samples[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
            piece = scored(recognizer, audible, piece, normalize, said)
        else:
            pause = f"no pause of {options.pause:g} s where text and audio agree"
            piece = piece._replace(problem=f"{pause} for {end - start:.0f} s")
        if inner and (piece.problem or piece.score < options.least):
            cut = max(inner, key=lambda each: each.pause)
            waiting += [(cut, right), (left, cut)]
        else:
            yield piece


def span(left: Cut, right: Cut, shortest: float) -> tuple[float, float]:
    """Return start and end of the audio between two cuts, in seconds.

    A piece has EDGE of the pauses at its ends, or more if it is shorter than `shortest` otherwise.
    """
    start, end = max(left.middle, left.start - EDGE), min(right.middle, right.end + EDGE)
    start = max(left.middle, start - max(0.0, shortest - (end - start)) / 2)
    end = min(right.middle, max(end, start + shortest))
    return max(left.middle, min(start, end - shortest)), end


def possible_cuts(words: Sequence[Word], spelled: Sequence[str], pause: float) -> list[Cut]:
    """Return the pauses in which a recognised word and a unit of the text both end.

    Args:
        spelled: units of the text with a space before those that begin a word, see `spaced_units`,
            as the recogniser would write them; some may be empty.
    """
    from rapidfuzz.distance import Levenshtein

    marked = [" " * word.spaced + word.text for word in words]
    heard, read = "".join(marked), "".join(filter(str.strip, spelled))
    partner = [-1] * len(heard)  # place of the same character in the text
    for part in Levenshtein.opcodes(heard, read):
        if part.tag == "equal":
            partner[part.src_start : part.src_end] = range(part.dest_start, part.dest_end)
    starts, ends = boundaries(spelled)
    found, place = list[Cut](), 0
    for (before, after), piece in zip(pairwise(words), marked, strict=False):
        place += len(piece)
        around = partner[max(1, place - AROUND) : place + AROUND + 1]
        agreeing = sum(at >= 0 for at in around) / len(around)
        numbers = [starts.get(partner[place])]
        if not after.spaced:  # one of the characters at the boundary may be wrong
            numbers.append(ends.get(partner[place - 1]))
        known = {number for number in numbers if number is not None}
        is_new = len(known) == 1 and not {cut.unit for cut in found[-1:]} & known
        if is_new and after.start - before.end >= pause and agreeing >= AGREEING:
            found.append(Cut(known.pop(), before.end, after.start))
    return found


def boundaries(spelled: Sequence[str]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the numbers of units before the boundaries of a text.

    They are returned twice: by the place of the character after each boundary, which is a space or
    the first letter of a unit or both, and by the place of the character before it.
    """
    starts, ends, place = dict[int, int](), dict[int, int](), 0
    said = [number for number, unit in enumerate(spelled) if unit.strip()]
    for before, number in pairwise(said):
        place += len(spelled[before])
        ends[place - 1] = starts[place] = starts[place + spelled[number].startswith(" ")] = number
    return starts, ends


def scored(
    recognizer: Recognizer,
    samples: np.ndarray,
    piece: Piece,
    normalize: Callable[[str], str],
    said: Sequence[Word],
) -> Piece:
    """Return a piece with its score: that of its worst word, read or heard.

    A word of the text counts with the confidence of its labels on average. A recognised word that
    no word of the text overlaps was said but is not in the text: it counts with what its
    confidence lacks to 1.
    """
    try:
        tokens = recognizer.tokenizer.encode(normalize(piece.text))
        aligner = recognizer.with_search(build_alignment(recognizer.backend.head, tokens))
        aligned = aligner.transcribe(samples, SAMPLE_RATE).words
        read = [(word.start + piece.start, word.end + piece.start) for word in aligned]
        extra = [
            1.0 - certainty(word, recognizer)
            for word in said
            if not any(start < word.end and word.start < end for start, end in read)
        ]
        fits = [certainty(word, recognizer) for word in aligned]
    except UserError as error:
        return piece._replace(problem=str(error))
    return piece._replace(score=min([*fits, *extra], default=0.0))


def certainty(word: Word, recognizer: Recognizer) -> float:
    """Return the geometric mean of the confidences of a word's labels."""
    return float(word.confidence ** (1 / max(1, len(recognizer.tokenizer.encode(word.text)))))

"""Word errors by the place of the words in their chunk and in their utterance."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from asrkit.evaluation.outcomes import Outcome
from asrkit.evaluation.wer import word_alignment
from asrkit.model import FULL_CONTEXT
from asrkit.text.graphemes import units

PLACES = (
    "ends in the chunk's first quarter",
    "ends in the chunk's second quarter",
    "ends in the chunk's third quarter",
    "ends in the chunk's last quarter",
    "within one chunk",
    "parted by a boundary",
    "first of its utterance",
    "between",
    "last of its utterance",
)


class PlaceErrors(NamedTuple):
    """The words of a corpus at one place, and the errors there, see `errors_by_word`."""

    name: str
    words: int  # of the reference
    errors: int  # in chunks
    errors_full: int  # in full context, at the same words


def places(
    outcomes: Iterable[Mapping[str, Outcome]], name: str, full: str, chunk_size: int
) -> list[PlaceErrors]:
    """Count errors by place: the end of the word in its chunk, a chunk boundary inside the word,
    and the position of the word in its utterance.

    The times of words are those of forced alignment in full context. Utterances without an
    alignment, or with a number of words changed by postprocessing, are skipped.

    Args:
        outcomes: outcomes of each utterance, by the recognisers' names, with alignments.
        name: name of the recogniser in chunks of `chunk_size` encoder frames.
        full: name of the recogniser in full context.
    """
    if chunk_size >= FULL_CONTEXT:
        raise ValueError("chunk_size must not be full context, which has no chunks")
    words: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    wrong_full: Counter[str] = Counter()
    for each in outcomes:
        outcome, alignment = each[name], each[name].alignment
        if alignment is None or len(alignment.words) != len(units(outcome.reference)):
            continue
        errors, errors_full = errors_by_word(outcome), errors_by_word(each[full])
        for i, word in enumerate(alignment.words):
            begin, end = (round(1000 * t / outcome.frame_ms) for t in (word.start, word.end))
            for place in places_of(begin, end - 1, i, len(errors), chunk_size):
                words[place] += 1
                wrong[place] += errors[i]
                wrong_full[place] += errors_full[i]
    return [PlaceErrors(each, words[each], wrong[each], wrong_full[each]) for each in PLACES]


def errors_by_word(outcome: Outcome) -> list[int]:
    """Return the errors at each word of the reference.

    An error is a substitution, a deletion, or a word inserted before the reference's word. Words
    inserted at the end count with the last word.
    """
    reference, hypothesis = units(outcome.reference), units(outcome.text)
    errors, at = [0] * len(reference), 0
    for i, j in word_alignment(reference, hypothesis) if reference else ():
        if i is None:
            errors[min(at, len(errors) - 1)] += 1
        else:
            errors[i] += j is None or reference[i] != hypothesis[j]
            at = i + 1
    return errors


def places_of(begin: int, last: int, number: int, count: int, chunk_size: int) -> list[str]:
    """Return the places of a word from frame `begin` to `last`, the word `number` of `count`."""
    last = max(begin, last)
    quarter = 4 * (last % chunk_size) // chunk_size
    parted = begin // chunk_size != last // chunk_size
    order = 0 if number == 0 else 2 if number == count - 1 else 1
    return [PLACES[quarter], PLACES[4 + parted], PLACES[6 + order]]


def places_table(name: str, unit: str, found: list[PlaceErrors]) -> str:
    """Format a line for each place of the recogniser `name`, see `ErrorRate.unit`."""
    width = max(map(len, PLACES))
    first = f"{unit}s, in chunks of {name}"
    lines = [f"{first:<{width}}  number  errors           in full context"]
    for place in found:
        shown = [share(errors, place.words) for errors in (place.errors, place.errors_full)]
        lines.append(f"{place.name:<{width}} {place.words:>7} {shown[0]} {shown[1]}")
    return "\n".join(lines)


def share(errors: int, words: int) -> str:
    """Format errors, and their share of the words in percent."""
    percent = f"{100 * errors / words:.1f} %" if words else "–"
    return f"{errors:>7} {percent:>8}"

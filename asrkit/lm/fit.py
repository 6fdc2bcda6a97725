"""Checks that the words of a language model fit the spelling of a recogniser."""

from collections.abc import Callable, Container, Sequence

SAMPLE = 10_000  # words of a vocabulary that are compared
MENTIONED = 0.01  # smallest reported share of words that cannot be written
MISSING = 0.4  # smallest reported share of letters that no word has
UNKNOWN = 0.2  # smallest reported share of recognised words that the model lacks


def sampled(words: Sequence[str], most: int = SAMPLE) -> list[str]:
    """Return at most `most` words at equal distances."""
    return [words[i * len(words) // most] for i in range(most)] if len(words) > most else [*words]


def is_written_with(pieces: Sequence[str]) -> Callable[[str], bool]:
    """Return a test if a word is a sequence of these pieces, with or without a space before it."""
    known, longest = {*pieces} - {""}, max(map(len, pieces))
    return lambda word: (
        _is_sequence(word, known, longest) or _is_sequence(f" {word}", known, longest)
    )


def _is_sequence(text: str, pieces: Container[str], longest: int) -> bool:
    ends = [0]  # ends of the prefixes that are sequences of pieces
    for end in range(1, len(text) + 1):
        if any(end - start <= longest and text[start:end] in pieces for start in ends):
            ends.append(end)
    return ends[-1] == len(text)


def misfit(words: Sequence[str], pieces: Sequence[str]) -> str:
    """Describe words and letters that do not fit each other; "" if nearly all fit.

    Args:
        words: sample of the language model's words.
        pieces: text of each token of the recogniser.
    """
    fits, found = is_written_with(pieces), []
    odd = [word for word in words if not fits(word)]
    if odd and len(odd) >= MENTIONED * len(words):
        found.append(
            f"{100 * len(odd) / len(words):.0f} % of its words, such as {examples(odd)}, cannot be "
            f"written with the recogniser's tokens{in_another_case(odd, fits)}"
        )
    letters = {letter for letter in "".join(pieces) if letter.isalpha()}
    missing = sorted(letters - set("".join(words)))
    if missing and len(missing) >= MISSING * len(letters):
        shown = "".join(missing[:20]) + ("…" if len(missing) > 20 else "")
        found.append(
            f"its words lack {len(missing)} of the recogniser's {len(letters)} letters: {shown}"
        )
    return "; ".join(found)


def in_another_case(odd: Sequence[str], fits: Callable[[str], bool]) -> str:
    """Return an addition to a message if most of these words could be written in another case."""
    for case, cased in ("lower", str.lower), ("upper", str.upper):
        share = sum(map(fits, map(cased, odd))) / len(odd)
        if share > 0.5:
            return f" ({100 * share:.0f} % of them can be written in {case} case)"
    return ""


def unfamiliar(words: Sequence[str], has_word: Callable[[str], bool]) -> str:
    """Describe recognised words that the language model lacks; "" if they are few."""
    unknown = [word for word in words if not has_word(word)]
    if not unknown or len(unknown) < UNKNOWN * len(words):
        return ""
    return (
        f"{len(unknown)} of {len(words)} recognised words, such as "
        f"{examples([*dict.fromkeys(unknown)])}, are not in the language model: check its language "
        "and spelling"
    )


def examples(words: Sequence[str] | None) -> str:
    """Format a few words for a message."""
    if words is None:
        return "other words"
    return ", ".join(map(repr, words[:3])) or "no words"

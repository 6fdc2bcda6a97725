"""Checks that the words of a language model fit the spelling of a recogniser."""

from collections.abc import Callable, Container, Sequence

SAMPLE = 10_000  # words of a vocabulary that are compared
UNKNOWN = 0.2  # smallest reported share of recognised words that the model lacks


def sampled(words: Sequence[str], most: int = SAMPLE) -> list[str]:
    """Return at most `most` words at equal distances."""
    return [words[i * len(words) // most] for i in range(most)] if len(words) > most else [*words]


def is_written(word: str, pieces: Container[str], longest: int) -> bool:
    """Return whether a word is a sequence of pieces, with or without a space before it.

    Args:
        longest: characters of the longest piece.
    """
    for text in (word, f" {word}"):
        ends = [0]  # ends of the prefixes that are sequences of pieces
        for end in range(1, len(text) + 1):
            if any(end - start <= longest and text[start:end] in pieces for start in ends):
                ends.append(end)
        if ends[-1] == len(text):
            return True
    return False


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


def examples(words: Sequence[str]) -> str:
    """Format a few words for a message."""
    return ", ".join(map(repr, words[:3])) or "no words"

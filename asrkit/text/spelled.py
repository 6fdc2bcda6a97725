"""Joining what was said one by one: spelled letters, and digits."""

from itertools import groupby

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SPOKEN = {word: str(value) for value, word in enumerate(DIGITS)} | {"oh": "0"}


def join_spelled(text: str) -> str:
    """ "four four seven" becomes "447", "a s r" becomes "ASR"; what stands alone stays.

    "oh" is a digit among digits only.
    """
    joined = []
    for kind, group in groupby(text.split(), kind_of):
        words = list(group)
        if len(words) > 1 and kind == "digit" and set(map(str.lower, words)) != {"oh"}:
            joined.append("".join(SPOKEN[word.lower()] for word in words))
        elif len(words) > 1 and kind == "letter":
            joined.append("".join(words).upper())
        else:
            joined += words
    return " ".join(joined)


def kind_of(word: str) -> str:
    if word.lower() in SPOKEN:
        return "digit"
    return "letter" if len(word) == 1 and word.isalpha() else "word"

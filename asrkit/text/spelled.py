"""Joining digits and letters that were spoken one by one: "a s r" to "ASR"."""

from itertools import groupby

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SPOKEN = {word: str(value) for value, word in enumerate(DIGITS)} | {"oh": "0"}


def join_spelled(text: str) -> str:
    """The text with runs of digits and of letters joined: "four four seven" to "447", "a s r" to
    "ASR". A single digit or letter stays as it is; "oh" counts as 0 beside another digit only.
    """
    joined = []
    for kind, group in groupby(text.split(), kind_of_word):
        words = list(group)
        if len(words) > 1 and kind == "digit" and set(map(str.lower, words)) != {"oh"}:
            joined.append("".join(SPOKEN[word.lower()] for word in words))
        elif len(words) > 1 and kind == "letter":
            joined.append("".join(words).upper())
        else:
            joined += words
    return " ".join(joined)


def kind_of_word(word: str) -> str:
    if word.lower() in SPOKEN:
        return "digit"
    return "letter" if len(word) == 1 and word.isalpha() else "word"

"""What hotwords add to a text, by definition."""


def worth(words: list[str], bonuses: dict[str, float]) -> float:
    """By definition: every phrase wherever its words stand."""
    return sum(
        bonus
        for phrase, bonus in bonuses.items()
        for i in range(len(words))
        if words[i : i + len(phrase.split())] == phrase.split()
    )


def advance(text: str, bonuses: dict[str, float]) -> float:
    """By definition: the largest part of a bonus that the end of a text has reached."""
    words = text.split()
    text = " ".join(["", *words, ""] if words and text.endswith(" ") else ["", *words])
    reached = [
        bonus * letters / len(phrase)
        for phrase, bonus in bonuses.items()
        for letters in range(1, len(phrase) + 1)
        if text.endswith(f" {phrase[:letters]}")
    ]
    return max(reached, default=0.0)

"""A word with its times."""

from typing import NamedTuple


class Word(NamedTuple):
    text: str
    start: float  # seconds from the start of the stream
    end: float
    confidence: float  # 0 to 1, the product of its tokens'

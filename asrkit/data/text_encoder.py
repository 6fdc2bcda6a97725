"""Texts to tokens that a network can learn."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from asrkit.audio import Fbank, Frontend
from asrkit.text import TextError, Tokenizer


class TextEncoder(NamedTuple):
    """A function from raw text to (normalised text, tokens)."""

    tokenizer: Tokenizer
    normalize: Callable[[str], str]
    num_frames: Callable[[int], int]  # encoder frames of a number of feature frames
    frames_needed: Callable[[Sequence[int]], int]  # fewest frames that the head needs for tokens
    frontend: Frontend = Fbank()  # of the network
    last: int | None = None  # label at the end of every training text

    def __call__(self, text: str) -> tuple[str, list[int]]:
        """Return the normalised text and its tokens. Raises TextError for an unknown symbol."""
        text = self.normalize(text)
        return text, self.tokenizer.encode(text)

    def learnable(self, text: str, num_samples: int) -> tuple[str, list[int]]:
        """Return the normalised text and its labels, if they fit the samples at 16 kHz.

        Raises:
            TextError: if the network cannot learn the text from `num_samples` samples.
        """
        if not text.strip():
            raise TextError("empty text")
        text, tokens = self(text)
        if self.last is not None:
            tokens = [*tokens, self.last]
        frames = self.num_frames(self.frontend.num_frames(num_samples))
        needed = self.frames_needed(tokens)
        if frames < needed:
            raise TextError(f"too short: {frames} encoder frames, but its labels need {needed}")
        return text, tokens

    def why_not(self, text: str, num_samples: int) -> str | None:
        """Return why the network cannot learn a text from `num_samples` samples, or None."""
        try:
            self.learnable(text, num_samples)
        except TextError as error:
            return str(error)
        return None

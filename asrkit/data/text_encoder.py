"""Texts to tokens that a network can learn."""

from collections.abc import Callable, Sequence

from asrkit import audio
from asrkit.text import TextError, Tokenizer


class TextEncoder:
    """A function from raw text to (normalised text, tokens).

    Args:
        num_frames: function that returns the encoder frames of a number of feature frames.
        frames_needed: function that returns the fewest frames which the head needs for tokens.
        frontend: the network's frontend; Kaldi's if None.
        last: label at the end of every training text; None for none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        normalize: Callable[[str], str],
        num_frames: Callable[[int], int],
        frames_needed: Callable[[Sequence[int]], int],
        frontend: audio.Frontend | None = None,
        last: int | None = None,
    ) -> None:
        self.tokenizer, self.normalize = tokenizer, normalize
        self.num_frames, self.frames_needed = num_frames, frames_needed
        self.frontend = frontend or audio.Fbank()
        self.last = [] if last is None else [last]

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
        tokens = tokens + self.last
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

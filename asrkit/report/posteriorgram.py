"""A picture of an utterance's posteriors and words over time."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from asrkit.evaluation import ReferenceRecording
from asrkit.evaluation.outcomes import aligned, traced
from asrkit.model import FULL_CONTEXT
from asrkit.report.html import Html, tag
from asrkit.runtime import Recognizer, Word

FAINT = 0.05  # lower posteriors are not drawn
ROWS = 36  # most tokens in a picture
LEFT, WAVE, ROW, LETTER = 84, 44, 18, 7.8  # pixels; text has 12; LETTER: width of a letter


class Example(NamedTuple):
    """The frames and words of a recognised utterance."""

    seconds: float
    samples: np.ndarray  # (n,) at 16 kHz
    posteriors: np.ndarray  # (E, V), in the recogniser's chunks
    pieces: list[str]  # text of each token; the blank's is ""
    frame_seconds: float  # length of an encoder frame
    chunk_seconds: float  # 0 for full context
    hypothesis: tuple[Word, ...]  # streaming result
    reference: tuple[Word, ...]  # forced alignment in full context; empty if impossible


def example_of(
    utterance: ReferenceRecording, recognizer: Recognizer, aligner: Recognizer
) -> Example:
    """Recognise an utterance, and align its reference."""
    ((result, trace),) = traced(recognizer, [utterance])
    alignment = aligned(aligner, utterance)
    tokenizer, frame_seconds = recognizer.tokenizer, recognizer.frame_ms / 1000
    whole = recognizer.chunk_size == FULL_CONTEXT
    with torch.inference_mode():
        posteriors = recognizer.backend.head.posteriors(trace.frames[None])
    return Example(
        seconds=utterance.seconds,
        samples=utterance.samples,
        posteriors=posteriors[0].float().cpu().numpy(),
        pieces=["", *(tokenizer.piece(token) for token in range(1, tokenizer.vocab_size))],
        frame_seconds=frame_seconds,
        chunk_seconds=0.0 if whole else recognizer.chunk_size * frame_seconds,
        hypothesis=result.words,
        reference=alignment.words if alignment else (),
    )


def picture(example: Example) -> Html:
    """Draw the recording, the tokens' posteriors, the words and the time, from top to bottom."""
    scale = min(220.0, max(90.0, 925.0 / max(0.1, example.seconds)))  # pixels a second
    width = LEFT + example.seconds * scale + 24
    top, drawn = 4.0, []
    for part, height in (
        wave(example, scale),
        heat(example, scale),
        lanes("recognised", example.hypothesis, scale, "hypothesis"),
        lanes("aligned", example.reference, scale, "reference"),
    ):
        drawn.append(tag("g", *part, transform=f"translate(0 {top:g})"))
        top += height + 8
    rules = [*time_axis(example, scale, top), *chunk_ends(example, scale, top)]
    playhead = tag("line", x1=LEFT, x2=LEFT, y1=0, y2=top, class_="playhead")
    return tag(
        "svg", *rules, *drawn, playhead, width=width, height=top + 34, role="img",
        viewBox=f"0 0 {width:.0f} {top + 34:.0f}", data_left=LEFT, data_scale=scale,
        aria_label="Posteriors of tokens over time, and the words under them",
    )  # fmt: skip


def wave(example: Example, scale: float) -> tuple[list[Html], float]:
    """Draw the envelope of the samples."""
    columns = max(1, int(example.seconds * scale / 2))
    peaks = [np.abs(part).max(initial=0.0) for part in np.array_split(example.samples, columns)]
    heights = np.array(peaks) / max(1e-9, max(peaks)) * WAVE / 2
    x = LEFT + (np.arange(columns) + 0.5) * example.seconds * scale / columns
    upper = [f"{at:.1f} {WAVE / 2 - h:.1f}" for at, h in zip(x, heights, strict=True)]
    lower = [f"{at:.1f} {WAVE / 2 + h:.1f}" for at, h in zip(x, heights, strict=True)]
    outline = "M" + "L".join(upper + lower[::-1]) + "Z"
    return [row_name("recording", WAVE / 2 + 4), tag("path", d=outline, class_="wave")], WAVE


def heat(example: Example, scale: float) -> tuple[list[Html], float]:
    """Draw a row for each token that is likely in some frame, in order of first occurrence."""
    posteriors, width = example.posteriors, scale * example.frame_seconds
    drawn = []
    tokens = likely(posteriors)
    for row, token in enumerate(tokens):
        name = shown(example.pieces[token])
        drawn.append(row_name(name, row * ROW + 13))
        for frame in np.flatnonzero(posteriors[:, token] >= FAINT).tolist():
            share = float(posteriors[frame, token])
            title = tag("title", f"{name} {share:.2f} at {frame * example.frame_seconds:.2f} s")
            drawn.append(
                tag(
                    "rect", title, x=LEFT + frame * width, y=row * ROW + 1, width=width - 0.5,
                    height=ROW - 2, fill_opacity=f"{share:.2f}", class_="cell",
                )
            )  # fmt: skip
    return drawn, float(ROW * len(tokens))


def likely(posteriors: np.ndarray) -> list[int]:
    """Return the tokens to show, in order of first occurrence."""
    strong = posteriors[:, 1:] >= 0.1
    tokens = 1 + np.flatnonzero(strong.any(axis=0))
    if not len(tokens):
        return []
    tokens = tokens[np.argsort(-posteriors[:, tokens].max(axis=0), kind="stable")][:ROWS]
    first = strong[:, tokens - 1].argmax(axis=0)
    return tokens[np.lexsort((tokens, first))].tolist()


def shown(piece: str) -> str:
    """Return a piece with visible spaces."""
    return piece.replace(" ", "␣")


def lanes(name: str, words: Sequence[Word], scale: float, style: str) -> tuple[list[Html], float]:
    """Draw words at their times, in several lanes if their texts would overlap."""
    drawn = [row_name(name, ROW - 5)]
    free: list[float] = [0.0]  # pixel at which each lane is free again
    for word in words:
        start, end = LEFT + word.start * scale, LEFT + word.end * scale
        reach = max(end - start, len(word.text) * LETTER + 6) / 2
        middle = max((start + end) / 2, LEFT + reach)
        lane = next((i for i, at in enumerate(free) if at <= middle - reach), len(free))
        free[lane : lane + 1] = [middle + reach]
        drawn.append(word_box(word, style, start, end, middle, lane * ROW))
    if not words:
        drawn.append(tag("text", "–", x=LEFT + 4, y=ROW - 5))
    return drawn, float(ROW * len(free))


def word_box(word: Word, style: str, start: float, end: float, middle: float, y: int) -> Html:
    """Draw a word, which may be wider than its duration."""
    times = f"{word.start:.2f} to {word.end:.2f} s, confidence {word.confidence:.2f}"
    box = tag("rect", x=start, y=y, width=max(2.0, end - start), height=ROW - 3, rx=2)
    text = tag("text", word.text, x=middle, y=y + 12, text_anchor="middle")
    return tag("g", tag("title", f"{word.text}: {times}"), box, text, class_=f"word {style}")


def time_axis(example: Example, scale: float, top: float) -> Iterator[Html]:
    end = LEFT + example.seconds * scale
    yield tag("line", x1=LEFT, x2=end, y1=top, y2=top, class_="axis")
    for tenth in range(0, int(example.seconds * 10) + 1, 5):
        at = LEFT + tenth / 10 * scale
        yield tag("line", x1=at, x2=at, y1=top, y2=top + 4, class_="axis")
        yield tag("text", f"{tenth / 10:g} s", x=at, y=top + 17, text_anchor="middle")


def chunk_ends(example: Example, scale: float, top: float) -> Iterator[Html]:
    """Draw the ends of chunks, when the recogniser writes the words of a chunk."""
    if example.chunk_seconds:
        for i in range(1, int(example.seconds / example.chunk_seconds) + 1):
            at = LEFT + i * example.chunk_seconds * scale
            yield tag("line", x1=at, x2=at, y1=0, y2=top, class_="chunk")


def row_name(name: str, y: float) -> Html:
    return tag("text", name, x=LEFT - 8, y=y, text_anchor="end", class_="label")

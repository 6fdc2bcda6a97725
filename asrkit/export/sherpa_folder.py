"""The files beside a model for sherpa-onnx, and a check with sherpa-onnx's Python package."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from asrkit.audio import SAMPLE_RATE
from asrkit.errors import UserError, shown
from asrkit.model import TransducerHead
from asrkit.model_file import ModelFile
from asrkit.runtime import Recognizer
from asrkit.search.base import NEVER
from asrkit.text.tokenizer import is_event

if TYPE_CHECKING:
    from sherpa_onnx import OnlineRecognizer


def features(file: ModelFile) -> tuple[float, float, bool]:
    """Return the lowest and the highest frequency, and whether all frames lie inside the stream."""
    options = file.config.model.frontend.model_dump()
    high = options["high_frequency"] or SAMPLE_RATE / 2
    return options["low_frequency"], high, options["snip_edges"]


def silence_events(file: ModelFile) -> None:
    """Change the head so that it writes no label that is not text: sherpa-onnx would print it."""
    numbers = range(1, file.tokenizer.vocab_size)
    events = [i for i in numbers if is_event(file.tokenizer.piece(i))]
    head = file.model.head
    for layer in (head.ctc_layer(), head.out if isinstance(head, TransducerHead) else None):
        if layer is not None and events:
            with torch.no_grad():
                layer.bias[events] = NEVER


def tokens(file: ModelFile, blank_last: bool = False) -> str:
    """Return tokens.txt: lines with a symbol and its number, with ▁ for a space."""
    numbers = range(1, file.tokenizer.vocab_size)
    symbols = [file.tokenizer.piece(i).replace(" ", "▁") for i in numbers]
    symbols.insert(len(symbols) if blank_last else 0, "<blk>")
    return "".join(f"{symbol} {i}\n" for i, symbol in enumerate(symbols))


def text_of(recognizer: "OnlineRecognizer", samples: np.ndarray) -> str:
    """Return sherpa-onnx's text for float32 samples at 16 kHz."""
    stream = recognizer.create_stream()
    stream.accept_waveform(SAMPLE_RATE, samples)
    stream.input_finished()
    while recognizer.is_ready(stream):
        recognizer.decode_stream(stream)
    return str(recognizer.get_result(stream))


def replay(
    theirs: "OnlineRecognizer", ours: Recognizer, recordings: list[np.ndarray], tail: int
) -> None:
    """Compare sherpa-onnx's texts with asrkit's, of whole chunks or of all samples.

    Args:
        ours: recogniser with greedy search, of the same network.
        recordings: samples at 16 kHz, float32.
        tail: number of zeros to append to each recording, for both.
    """
    for samples in recordings:
        whole = np.concatenate([samples, np.zeros(tail, np.float32)])
        found, session = text_of(theirs, whole), ours.start()
        chunks, expected = session.accept(whole).text, session.finish().text
        if found not in (chunks, expected):
            raise UserError(
                f"the export was not written: sherpa-onnx recognised {shown(found)}, asrkit "
                f"{shown(expected)}"
            )

"""Compare streaming with offline on your recordings: asrkit verify --model M x.wav"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from itertools import product
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from asrkit.cli.options import add_model_file
from asrkit.cli.parser import Parser

if TYPE_CHECKING:
    import numpy as np

    from asrkit.model import Context
    from asrkit.model_file import ModelFile
    from asrkit.runtime import Recognizer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit verify", __doc__,
        "asrkit verify --model MODEL x.wav\n"
        "  asrkit verify --model MODEL --chunk-ms 160,640 x.wav y.wav",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument(
        "--chunk-ms", metavar="MS,…",
        help="chunks in ms, with the model's contexts (default: those of the model's training)",
    )  # fmt: skip
    arguments.add_argument("files", nargs="+", metavar="FILE", help="recordings")
    return arguments.run(verify, argv)


class Row(NamedTuple):
    """Largest differences of one setting from offline recognition."""

    setting: str
    log_probs: float
    batch: float  # a row of a padded batch against the row alone
    same_text: bool

    @property
    def passed(self) -> bool:
        from asrkit.backends.check import TOLERANCE

        return max(self.log_probs, self.batch) <= TOLERANCE and self.same_text

    def cells(self) -> list[str]:
        text = ("equal" if self.same_text else "DIFFERS") + "  FAILED" * (not self.passed)
        return [self.setting, f"{self.log_probs:.1e}", f"{self.batch:.1e}", text]


def verify(options: argparse.Namespace) -> int:
    from asrkit import audio
    from asrkit.backends.check import TOLERANCE
    from asrkit.cli.recognizer import load_file
    from asrkit.evaluation.tables import table
    from asrkit.model import FULL
    from asrkit.runtime import recognizer_of
    from asrkit.runtime.long_audio import LONGEST_MS

    file = load_file(options)
    recognizers = [recognizer_of(file, context) for context in settings(options, file)]
    twice, full = recognizer_of(file, second_pass="full"), recognizer_of(file, FULL)
    passed = True
    for path in options.files:
        samples, rate = audio.read(path)
        samples = audio.mono(samples)
        print(f"{path}: {len(samples) / rate:.2f} s at {rate} Hz, packets of random sizes")
        rows = [compared(name_of(each), each, each, samples, rate) for each in recognizers]
        part = samples[: rate * LONGEST_MS // 1000]  # full context never sees more at once
        rows.append(compared(f"second pass ({twice.context})", twice, full, part, rate))
        titles = ("setting", "log-probs", "batch", "text")
        print(indent(table(titles, [row.cells() for row in rows]), "  "))
        passed &= all(row.passed for row in rows)
    print("streaming equals offline" if passed else f"FAILED: above {TOLERANCE:.0e}, or other text")
    return 0 if passed else 1


def settings(options: argparse.Namespace, file: ModelFile) -> list[Context]:
    """Return the model's own context, the chunks in each context of the training, and full."""
    from asrkit.model import FULL, Context

    rate, context = file.model.encoder.rate, file.config.context
    chunks = context.chunk_sizes
    if options.chunk_ms is not None:
        chunks = [rate.frames("--chunk-ms", each, 1) for each in options.chunk_ms.split(",")]
    rights = [context.right_context, *context.right_contexts]
    menu = (Context(*each) for each in product(chunks, context.left_contexts, rights))
    return [*dict.fromkeys([context.live, *menu, FULL])]


def name_of(recognizer: Recognizer) -> str:
    context = recognizer.engine.spec.context
    left = "" if context.full else f", left {context.left * recognizer.frame_ms} ms"
    return f"{recognizer.context}{left}"


def compared(
    name: str, live: Recognizer, offline: Recognizer, samples: np.ndarray, rate: int
) -> Row:
    """Compare a stream in packets with one step over everything, alone and beside a longer row."""
    import numpy as np

    from asrkit import audio
    from asrkit.backends.check import difference
    from asrkit.evaluation.recording_search import Trace

    whole, trace = audio.resample(samples, rate), Trace(offline.search)
    session = live.with_final_search(trace).start(rate)
    for packet in packets(samples):
        session.accept(packet)
    text = session.finish().text
    (alone,) = offline.emissions([whole])
    beside, _ = offline.emissions([whole, np.concatenate([whole, whole[::-1]])])
    streamed = trace.emissions if len(alone) else alone
    same_text = text == offline.transcribe_batch([whole])[0].text
    return Row(name, difference(alone, streamed), difference(alone, beside), same_text)


def packets(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Split the samples at random: often a few, sometimes none, sometimes a second."""
    draw = random.Random(0)
    start = 0
    while start < len(samples):
        size = draw.choice([0, 1, draw.randrange(1, 400), draw.randrange(400, 16000)])
        yield samples[start : start + size]
        start += size

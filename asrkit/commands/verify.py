"""Compare streaming with offline on your recordings: asrkit verify --model M x.wav"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from itertools import product
from textwrap import indent
from typing import TYPE_CHECKING

from asrkit.cli.options import add_model_file
from asrkit.cli.parser import Parser
from asrkit.extras import need

if TYPE_CHECKING:
    import numpy as np

    from asrkit.context import Context
    from asrkit.model_contents import RunnableModel
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


def verify(options: argparse.Namespace) -> int:
    from asrkit import audio
    from asrkit.backends.check import TOLERANCE
    from asrkit.context import FULL
    from asrkit.evaluation.tables import table
    from asrkit.runtime import recognizer_of
    from asrkit.runtime.load import load_runnable
    from asrkit.runtime.long_audio import LONGEST_MS

    need("torch")  # every context of the training is compared
    file = load_runnable(options.model)
    recognizers = [recognizer_of(file, context) for context in settings(options, file)]
    twice, full = recognizer_of(file, second_pass="full"), recognizer_of(file, FULL)
    failed = 0
    for path in options.files:
        samples, rate = audio.read(path)
        samples = audio.mono(samples)
        print(f"{path}: {len(samples) / rate:.2f} s at {rate} Hz, packets of random sizes")
        # Full context never sees more at once.
        begins = samples[: rate * LONGEST_MS // 1000]
        specs = [each.engine.spec for each in recognizers]
        names = [each.rate.name_with_left(each.context) for each in specs]
        pairs = [(name, each, each, samples) for name, each in zip(names, recognizers, strict=True)]
        pairs.append((f"second pass ({twice.context})", twice, full, begins))
        rows = []
        for name, live, offline, part in pairs:
            *differences, same_text = compared(live, offline, part, rate)
            passed = max(differences) <= TOLERANCE and same_text
            failed += not passed
            text = ("equal" if same_text else "DIFFERS") + "  FAILED" * (not passed)
            rows.append([name, *(f"{each:.1e}" for each in differences), text])
        print(indent(table(("setting", "log-probs", "batch", "text"), rows), "  "))
    print(f"FAILED: above {TOLERANCE:.0e}, or other text" if failed else "streaming equals offline")
    return 1 if failed else 0


def settings(options: argparse.Namespace, file: RunnableModel) -> list[Context]:
    """Return the model's own context, the chunks in each context of the training, and full."""
    from asrkit.context import FULL, Context

    rate, context = file.rate, file.config.context
    chunks = context.chunk_sizes
    if options.chunk_ms is not None:
        chunks = [rate.frames("--chunk-ms", each, 1) for each in options.chunk_ms.split(",")]
    rights = [context.right_context, *context.right_contexts]
    menu = (Context(*each) for each in product(chunks, context.left_contexts, rights))
    return [*dict.fromkeys([file.live, *menu, FULL])]


def compared(
    live: Recognizer, offline: Recognizer, samples: np.ndarray, rate: int
) -> tuple[float, float, bool]:
    """Compare a stream in packets with one step over everything, alone and beside a longer row.

    Returns:
        Largest differences of the stream and of the padded row, and whether the texts are equal.
    """
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
    return difference(alone, streamed), difference(alone, beside), same_text


def packets(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Split the samples at random: often a few, sometimes none, sometimes a second."""
    draw = random.Random(0)
    start = 0
    while start < len(samples):
        size = draw.choice([0, 1, draw.randrange(1, 400), draw.randrange(400, 16000)])
        yield samples[start : start + size]
        start += size

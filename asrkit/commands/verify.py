"""Compare streaming with offline, station by station: asrkit verify --model M x.wav"""

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
    from torch import Tensor

    from asrkit.model import Context, Network, Step
    from asrkit.model_file import ModelFile
    from asrkit.runtime import Recognizer, Result


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit verify", __doc__,
        "asrkit verify --model MODEL x.wav\n"
        "  asrkit verify --model MODEL --chunk-ms 160,640 --left-ms 2560 x.wav y.wav",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument(
        "--chunk-ms", default="160,320,640,1280", metavar="MS,…",
        help="chunks in ms (default 160,320,640,1280)",
    )  # fmt: skip
    arguments.add_argument(
        "--left-ms", default="0,1280,5120", metavar="MS,…",
        help="left contexts in ms (default 0,1280,5120)",
    )  # fmt: skip
    arguments.add_argument(
        "--right-ms", metavar="MS,…",
        help="right contexts in ms (default: the model's own, and those of its training)",
    )  # fmt: skip
    arguments.add_argument("--exported", metavar="FILE", help="file that asrkit export wrote")
    arguments.add_argument("files", nargs="+", metavar="FILE", help="recordings")
    return arguments.run(verify, argv)


PAUSE_MS = 400  # pause that ends a segment of the second pass
TITLES = ("setting", "subsampling", "worst block", "log-probs", "batch", "text")


class Row(NamedTuple):
    """Largest differences of one setting."""

    setting: str
    subsampling: float
    blocks: list[float]  # for each layer
    log_probs: float
    batch: float  # a row of a padded batch against the row alone
    same_text: bool

    @property
    def passed(self) -> bool:
        from asrkit.backends.check import TOLERANCE

        worst = max(self.subsampling, *self.blocks, self.log_probs, self.batch)
        return worst <= TOLERANCE and self.same_text

    def cells(self) -> list[str]:
        worst = max(self.blocks)
        block = f"{worst:.1e} (layer {self.blocks.index(worst) + 1})"
        numbers = f"{self.subsampling:.1e}", block, f"{self.log_probs:.1e}", f"{self.batch:.1e}"
        return [self.setting, *numbers, verdict(self.same_text, self.passed)]


def verdict(same_text: bool, passed: bool) -> str:
    return ("equal" if same_text else "DIFFERS") + "  FAILED" * (not passed)


def verify(options: argparse.Namespace) -> int:
    import torch

    from asrkit import audio
    from asrkit.backends.check import TOLERANCE
    from asrkit.cli.recognizer import load_file
    from asrkit.evaluation.tables import table

    file = load_file(options)
    contexts = settings(options, file)
    passed = True
    for path in options.files:
        samples, rate = audio.read(path)
        samples = audio.mono(samples)
        print(f"{path}: {len(samples) / rate:.2f} s at {rate} Hz, packets of random sizes")
        passed &= verify_frontend(file, samples, rate)
        with torch.inference_mode():
            rows = [verify_setting(file, samples, rate, context) for context in contexts]
            print(indent(table(TITLES, [row.cells() for row in rows]), "  "))
            passed &= all(row.passed for row in rows)
            passed &= verify_second_pass(file, samples, rate)
    if options.exported:
        passed &= verify_exported(file, options.exported, audio.load(options.files[0]))
    print("streaming equals offline" if passed else f"FAILED: above {TOLERANCE:.0e}, or other text")
    return 0 if passed else 1


def most_whole() -> int:
    """Return the number of samples that full context sees at once."""
    from asrkit import audio
    from asrkit.runtime.long_audio import LONGEST_MS

    return audio.SAMPLE_RATE * LONGEST_MS // 1000


def settings(options: argparse.Namespace, file: ModelFile) -> list[Context]:
    """Return the contexts that the options ask for, then the model's own and those of the training
    menu, then full context."""
    from asrkit.model import FULL, Context

    rate, context = file.model.encoder.rate, file.config.context
    chunks = [rate.frames("--chunk-ms", each, 1) for each in options.chunk_ms.split(",")]
    lefts = [rate.frames("--left-ms", each) for each in options.left_ms.split(",")]
    rights = [context.right_context, *context.right_contexts]
    if options.right_ms is not None:
        rights = [rate.frames("--right-ms", each) for each in options.right_ms.split(",")]
    menu = product(context.chunk_sizes, context.left_contexts, rights)
    triples = [*product(chunks, lefts, rights), context.live, *menu]
    return [*dict.fromkeys(Context(*each) for each in triples), FULL]


def verify_frontend(file: ModelFile, samples: np.ndarray, rate: int) -> bool:
    """Compare resampler and features in packets with all samples at once."""
    import numpy as np
    import torch

    from asrkit import audio
    from asrkit.backends.check import TOLERANCE, difference
    from asrkit.build import build_frontend

    resampler, pieces = audio.Resampler(rate), []
    unfinished = resampler.start()
    for packet in packets(samples):
        piece, unfinished = resampler.step(unfinished, packet)
        pieces.append(piece)
    streamed = np.concatenate([*pieces, resampler.step(unfinished, samples[:0], last=True)[0]])
    whole = audio.resample(samples, rate)
    resampling = difference(torch.from_numpy(whole), torch.from_numpy(streamed))
    frontend, row = build_frontend(file.config.model), torch.from_numpy(whole)[None]
    row = frontend.ended(row, torch.tensor([len(whole)]))
    past, feats = frontend.start(1), []
    for packet in packets(row[0].numpy()):
        new, past = frontend(torch.from_numpy(packet)[None], past)
        feats.append(new)
    features = difference(frontend(row, frontend.start(1))[0], torch.cat(feats, dim=1))
    print(f"  resampler {resampling:.1e}   frontend {features:.1e}")
    return max(resampling, features) <= TOLERANCE


def verify_setting(file: ModelFile, samples: np.ndarray, rate: int, context: Context) -> Row:
    """Compare single chunks with one step over everything, and a session with a batch."""
    import torch

    from asrkit import audio
    from asrkit.backends.check import difference
    from asrkit.model import Step
    from asrkit.model.context import fitted
    from asrkit.runtime import recognizer_of

    recognizer, frame_rate = recognizer_of(file, context), file.model.encoder.rate
    whole = audio.resample(samples, rate)
    # In full context the network never sees more than a window.
    row = torch.from_numpy(whole[: most_whole() if context.full else None])[None]
    feats, _ = audio.features(recognizer.engine.frontend, row, torch.tensor([row.size(1)]))
    name = "full"
    if context.full:
        context = fitted(context, frame_rate.num_frames(feats.size(1)))
    else:
        name = f"{frame_rate.name(context)}, left {context.left * frame_rate.frame_ms} ms"
    step = Step(file.model.encoder, None, context)
    offline = stations(file.model, step, feats, max(1, feats.size(1)))
    streamed = stations(file.model, step, feats, frame_rate.chunk_frames(context))
    subsampling, *blocks, log_probs = [
        difference(a, b) for a, b in zip(offline, streamed, strict=True)
    ]
    text = in_packets(recognizer, samples, rate).text
    texts = {text, recognizer.transcribe_batch([whole])[0].text}
    batch = verify_batch(recognizer, feats, offline[-1])
    return Row(name, subsampling, blocks, log_probs, batch, len(texts) == 1)


def stations(model: Network, step: Step, feats: Tensor, frames: int) -> list[Tensor]:
    """Return outputs of subsampling, layers and head, with `frames` feature frames per step."""
    import torch

    from asrkit.model.subsampling import split_steps

    encoder, context, state = step.encoder, step.context, step.init_state(1)
    outputs: list[list[Tensor]] = []
    layers, ahead = range(len(encoder.layers) + 1), encoder.rate.ahead_frames(context)
    for part, length in split_steps(feats, frames, encoder.rate.lookahead, ahead):
        lengths = torch.tensor([length])
        output, parts = encoder.run(part, lengths, state, context, step.tables(), [*layers])
        state = output.state
        parts.append(model.head.emissions(output.frames))
        outputs.append([x[:, : int(output.lengths)] for x in parts])
    return [torch.cat(pieces, dim=1) for pieces in zip(*outputs, strict=True)]


def verify_second_pass(file: ModelFile, samples: np.ndarray, rate: int) -> bool:
    """Compare the second pass of a stream with one step in full context, and its segments."""
    from asrkit import audio
    from asrkit.backends.check import TOLERANCE, difference
    from asrkit.evaluation.recording_search import Trace
    from asrkit.model import FULL
    from asrkit.runtime import Endpointer, recognizer_of

    live = recognizer_of(file, second_pass="full")
    whole = audio.resample(samples, rate)[: most_whole()]
    offline = recognizer_of(file, FULL)
    trace = Trace(offline.search)
    text = in_packets(live.with_final_search(trace), whole, audio.SAMPLE_RATE).text
    (expected,) = offline.emissions([whole])
    worst = difference(expected, trace.emissions if len(expected) else expected)
    pausing = recognizer_of(file, endpointer=Endpointer(PAUSE_MS), second_pass="full")
    results = in_packets(pausing, samples, rate), pausing.transcribe(samples, rate)
    segments, at_once = (
        [[(word.text, word.start, word.end) for word in each.words] for each in result.segments]
        for result in results
    )
    same = text == offline.transcribe_batch([whole])[0].text and segments == at_once
    passed = same and worst <= TOLERANCE
    print(
        f"  second pass ({live.context})   log-probs {worst:.1e}   {len(segments)} segments by "
        f"pauses of {PAUSE_MS} ms   text {verdict(same, passed)}"
    )
    return passed


def in_packets(recognizer: Recognizer, samples: np.ndarray, rate: int) -> Result:
    """Return the result of a session that gets packets of random sizes."""
    session = recognizer.start(rate)
    for packet in packets(samples):
        session.accept(packet)
    return session.finish()


def verify_batch(recognizer: Recognizer, feats: Tensor, alone: Tensor) -> float:
    """Compare the recording as the shorter row of a padded batch with the recording alone."""
    import torch

    from asrkit.backends.check import difference

    longer = torch.cat([feats, feats.flip(1)], dim=1)  # (1, 2T, F)
    batch = torch.cat([torch.nn.functional.pad(feats, (0, 0, 0, feats.size(1)), value=7.0), longer])
    batch = torch.nn.functional.pad(batch, (0, 0, 0, recognizer.engine.spec.ahead_frames))
    lengths = torch.tensor([feats.size(1), longer.size(1)])
    (shorter, _), _ = recognizer.engine.step(batch, lengths, recognizer.engine.init_state(2))
    return difference(alone, shorter[None])


def verify_exported(file: ModelFile, path: str, samples: np.ndarray) -> bool:
    """Compare an exported file with eager over the stream."""
    import torch

    from asrkit.backends import onnx
    from asrkit.export import torchscript
    from asrkit.export.verification import largest_difference, tolerance

    module, exported = (onnx if path.endswith(".onnx") else torchscript).read(path)
    stream = torch.from_numpy(samples)[None]
    worst = largest_difference(file, exported, module, stream)
    allowed = tolerance(file, exported, stream, worst)
    rate = file.model.encoder.rate
    context = "full context" if exported.context.full else rate.name(exported.context)
    print(f"{path}: {exported.what}, {context}, against eager {worst:.1e} (at most {allowed:.0e})")
    return worst <= allowed


def packets(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Split the samples at random: often a few, sometimes none, sometimes a second."""
    draw = random.Random(0)
    start = 0
    while start < len(samples):
        size = draw.choice([0, 1, draw.randrange(1, 400), draw.randrange(400, 16000)])
        yield samples[start : start + size]
        start += size

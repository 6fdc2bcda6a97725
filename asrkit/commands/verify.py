"""Compare streaming with offline, station by station: python -m asrkit.verify --model M x.wav"""

import argparse
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit import audio
from asrkit.backends import onnx, torchscript
from asrkit.backends.compare import TOLERANCE, difference
from asrkit.build import build_frontend
from asrkit.commands.arguments import whole
from asrkit.commands.kernels import device_of_kernels, verify_kernels
from asrkit.commands.options import MODEL, frames, parser, run_command
from asrkit.errors import UserError
from asrkit.export.replay import largest_difference, tolerance
from asrkit.model import FULL_CONTEXT, ConformerCTC, EncoderStep
from asrkit.model.subsampling import split_steps
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.runtime.second_pass import LONGEST_MS
from asrkit.runtime.threads import set_threads


class Row(NamedTuple):
    """Largest differences of one setting."""

    setting: str
    subsampling: float
    blocks: list[float]  # of each layer
    log_probs: float
    batch: float  # a row of a padded batch against the row alone
    same_text: bool

    @property
    def passed(self) -> bool:
        worst = max(self.subsampling, *self.blocks, self.log_probs, self.batch)
        return worst <= TOLERANCE and self.same_text


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit verify", __doc__,
        "python -m asrkit.verify --model MODEL x.wav\n"
        "  python -m asrkit.verify --model MODEL --chunk-ms 160,640 --left-ms 2560 x.wav y.wav\n"
        "  python -m asrkit.verify --kernels",
    )  # fmt: skip
    arguments.group("model").add_argument("--model", help=MODEL)
    arguments.add_argument(
        "--chunk-ms", default="160,320,640,1280", help="default 160,320,640,1280"
    )
    arguments.add_argument("--left-ms", default="0,1280,5120", help="default 0,1280,5120")
    arguments.add_argument("--exported", help="a file that asrkit export wrote")
    arguments.add_argument("--seed", type=whole(0, 2**63), default=0, help="of the packets' sizes")
    arguments.add_argument(
        "--kernels", action="store_true",
        help="compare the attention kernels on this machine's GPU with the plain attention; "
        "takes neither a model nor recordings",
    )  # fmt: skip
    arguments.add_argument("files", nargs="*", help="recordings")
    return run_command(verify, arguments, argv)


def verify(options: argparse.Namespace) -> int:
    if options.kernels:
        return verify_kernels(device_of_kernels())
    if options.model is None or not options.files:
        raise UserError("give --model and recordings, or --kernels")
    file = load_model(options.model)
    set_threads(None, file.num_parameters)
    passed = True
    for path in options.files:
        samples, rate = audio.read(path)
        samples = audio.mono(samples)
        print(f"{path}: {len(samples) / rate:.2f} s at {rate} Hz, packets of random sizes")
        passed &= verify_frontend(file, samples, rate, options.seed)
        rows = [
            verify_setting(file, samples, rate, c, m, options.seed)
            for c, m in settings(options, file)
        ]
        show(rows)
        passed &= all(row.passed for row in rows)
    if options.exported:
        passed &= verify_exported(file, options.exported, audio.load(options.files[0]))
    print("streaming equals offline" if passed else f"FAILED: above {TOLERANCE:.0e}, or other text")
    return 0 if passed else 1


def settings(options: argparse.Namespace, file: ModelFile) -> list[tuple[int, int]]:
    """The asked (chunk size, left context) pairs, then those of the training menu, then full."""
    frame_ms = file.model.encoder.frame_ms
    chunks = [frames("--chunk-ms", each, frame_ms, 1) or 0 for each in options.chunk_ms.split(",")]
    lefts = [frames("--left-ms", each, frame_ms) or 0 for each in options.left_ms.split(",")]
    context = file.config.context
    pairs = [(chunk, left) for chunk in chunks for left in lefts]
    menu = [(chunk, left) for chunk in context.chunk_sizes for left in context.left_contexts]
    return [*dict.fromkeys(pairs + menu), (FULL_CONTEXT, 0)]


def verify_frontend(file: ModelFile, samples: np.ndarray, rate: int, seed: int) -> bool:
    """Resampler and features, in packets against all at once."""
    resampler, pieces = audio.Resampler(rate), []
    unfinished = resampler.start()
    for packet in packets(samples, seed):
        piece, unfinished = resampler.step(unfinished, packet)
        pieces.append(piece)
    streamed = np.concatenate([*pieces, resampler.step(unfinished, samples[:0], last=True)[0]])
    whole = audio.resample(samples, rate)
    resampling = difference(torch.from_numpy(whole), torch.from_numpy(streamed))
    frontend, row = build_frontend(file.config.model), torch.from_numpy(whole)[None]
    row = frontend.ended(row, torch.tensor([len(whole)]))
    past, feats = frontend.start(1), []
    for packet in packets(row[0].numpy(), seed):
        new, past = frontend(torch.from_numpy(packet)[None], past)
        feats.append(new)
    features = difference(frontend(row, frontend.start(1))[0], torch.cat(feats, dim=1))
    print(f"  resampler {resampling:.1e}   frontend {features:.1e}")
    return max(resampling, features) <= TOLERANCE


@torch.inference_mode()
def verify_setting(
    file: ModelFile, samples: np.ndarray, rate: int, chunk_size: int, left_context: int, seed: int
) -> Row:
    """One chunk at a time against one step over everything; a session against a batch."""
    full = chunk_size == FULL_CONTEXT
    recognizer = recognizer_of(file, "full" if full else chunk_size, left_context)
    whole = audio.resample(samples, rate)
    # In full context the network never sees more than a window.
    most = audio.SAMPLE_RATE * LONGEST_MS // 1000 if full else len(whole)
    row = torch.from_numpy(whole[:most])[None]
    feats, _ = audio.features(recognizer.engine.frontend, row, torch.tensor([row.size(1)]))
    size = file.model.encoder.block_size(chunk_size, feats.size(1)) if full else chunk_size
    spec = recognizer.engine.spec
    step = EncoderStep(file.model.encoder, size, spec.left_context, spec.right_context)
    offline = stations(file.model, step, feats, max(1, feats.size(1)))
    streamed = stations(file.model, step, feats, file.model.encoder.factor * size)
    subsampling, *blocks, log_probs = [
        difference(a, b) for a, b in zip(offline, streamed, strict=True)
    ]
    session = recognizer.start(rate)
    for packet in packets(samples, seed):
        session.accept(packet)
    texts = {session.finish().text, recognizer.transcribe_batch([whole])[0].text}
    frame_ms = file.model.encoder.frame_ms
    name = "full" if full else f"{chunk_size * frame_ms} ms, left {left_context * frame_ms} ms"
    batch = verify_batch(recognizer, feats, offline[-1])
    return Row(name, subsampling, blocks, log_probs, batch, len(texts) == 1)


def stations(model: ConformerCTC, step: EncoderStep, feats: Tensor, frames: int) -> list[Tensor]:
    """Outputs of the subsampling, of every layer and of the head, `frames` features a step."""
    encoder, state = step.encoder, step.init_state(1)
    outputs: list[list[Tensor]] = []
    chunk_size, ahead = step.chunk_size, step.right_context
    for part, length in split_steps(feats, frames, encoder.lookahead, encoder.ahead_frames(ahead)):
        lengths = torch.tensor([length])
        normalized = encoder.normalize(part, lengths, state.position, chunk_size, ahead)
        subsampled, _, _ = encoder.subsampled(*normalized, state, ahead)
        layers, lengths, state = encoder.step(
            part, lengths, state, chunk_size, ahead, step.tables()
        )
        parts = [subsampled, *layers, model.log_probs(layers[-1])]
        outputs.append([x[:, : int(lengths)] for x in parts])
    return [torch.cat(pieces, dim=1) for pieces in zip(*outputs, strict=True)]


def verify_batch(recognizer: Recognizer, feats: Tensor, alone: Tensor) -> float:
    """The recording as the shorter row of a padded batch against itself alone."""
    longer = torch.cat([feats, feats.flip(1)], dim=1)  # (1, 2T, F)
    batch = torch.cat([torch.nn.functional.pad(feats, (0, 0, 0, feats.size(1)), value=7.0), longer])
    batch = torch.nn.functional.pad(batch, (0, 0, 0, recognizer.engine.spec.ahead_frames))
    lengths = torch.tensor([feats.size(1), longer.size(1)])
    output = recognizer.engine.step(batch, lengths, recognizer.engine.init_state(2))
    return difference(alone, output.log_probs[:1, : int(output.lengths[0])])


def verify_exported(file: ModelFile, path: str, samples: np.ndarray) -> bool:
    """An exported file against eager over the stream."""
    module, exported = (onnx if path.endswith(".onnx") else torchscript).read(path)
    stream = torch.from_numpy(samples)[None]
    worst, allowed = largest_difference(file, exported, module, stream), TOLERANCE
    if not worst <= allowed:
        allowed = tolerance(file, exported, stream)
    print(
        f"{path}: {exported.what}, {exported.context}, against eager {worst:.1e}"
        f" (at most {allowed:.0e})"
    )
    return worst <= allowed


def packets(samples: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """The samples cut at random: often a few, sometimes none, sometimes a second."""
    draw = random.Random(seed)
    start = 0
    while start < len(samples):
        size = draw.choice([0, 1, draw.randrange(1, 400), draw.randrange(400, 16000)])
        yield samples[start : start + size]
        start += size


def show(rows: list[Row]) -> None:
    """The table."""
    print("  setting                  subsampling         worst block  log-probs     batch  text")
    for row in rows:
        worst = max(row.blocks)
        block = f"{worst:.1e} (layer {row.blocks.index(worst) + 1})"
        print(
            f"  {row.setting:<24}{row.subsampling:>12.1e}{block:>20}{row.log_probs:>11.1e}"
            f"{row.batch:>10.1e}  {'equal' if row.same_text else 'DIFFERS'}"
            f"{'' if row.passed else '  FAILED'}"
        )

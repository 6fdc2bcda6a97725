"""Export the encoder or the whole model: python -m asrkit.export --model MODEL --output enc.ts"""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from asrkit import audio
from asrkit.checkpoint import ModelFile, load_model
from asrkit.cli import add_model_file, frames, parser, run_command
from asrkit.data.manifest import ManifestError, read_manifest
from asrkit.errors import UserError
from asrkit.export import torchscript
from asrkit.export.replay import TOLERANCE, Exported, eager_step, largest_difference
from asrkit.files import replacing
from asrkit.model import FRAME_MS


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit export", __doc__,
        "python -m asrkit.export --model MODEL --format torchscript --output enc.ts\n"
        "  python -m asrkit.export --model MODEL --what model --chunk-ms 320 --output model.ts",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument("--output", required=True, help="the file to write")
    arguments.add_argument("--format", choices=["torchscript"], default="torchscript")
    arguments.add_argument(
        "--what", choices=["encoder", "model"], default="encoder",
        help="encoder: log mels to encoder frames; model: samples to log-probabilities",
    )  # fmt: skip
    arguments.add_argument("--chunk-ms", help="chunk in ms (default: the model's)")
    arguments.add_argument("--left-ms", help="left context in ms (default: the model's)")
    arguments.add_argument("--audio", help="recording to replay (default: one of the dev set)")
    return run_command(export, arguments, argv)


def export(options: argparse.Namespace) -> int:
    file = load_model(options.model)
    context = file.config.context
    chunk_size = frames("--chunk-ms", options.chunk_ms)
    left_context = frames("--left-ms", options.left_ms)
    exported = Exported(
        options.what,
        context.chunk_size if chunk_size is None else chunk_size,
        context.left_context if left_context is None else left_context,
    )
    if exported.chunk_size < 1:
        raise UserError("--chunk-ms must be 40 or more: full context has no streaming step")
    samples, source = recording(options.audio, file)
    with replacing(options.output) as temporary:  # a file that fails replaces nothing
        torchscript.write(eager_step(file, exported), temporary, exported, file)
        module, _ = torchscript.read(temporary)
        difference = largest_difference(file, exported, module, samples)
        if not difference <= TOLERANCE:
            raise UserError(
                f"{options.output} not written: it differs from eager by {difference:.1e}, "
                f"more than {TOLERANCE:.0e}, over {source}"
            )
    print(
        f"{options.output}: {options.what}, {Path(options.output).stat().st_size / 1e6:.1f} MB, "
        f"chunks of {exported.chunk_size * FRAME_MS} ms, "
        f"left context {exported.left_context * FRAME_MS} ms\n"
        f"replayed {samples.size(1) / audio.SAMPLE_RATE:.1f} s of {source}: "
        f"largest difference from eager {difference:.1e} (at most {TOLERANCE:.0e})"
    )
    return 0


def recording(path: str | None, file: ModelFile) -> tuple[torch.Tensor, str]:
    """(1, N) samples to replay, and what they are."""
    if path is None:
        dev = Path(file.config.data.dev)
        with suppress(ManifestError):
            recordings = (u.audio for u in read_manifest(dev, []))
            path = next((each for each in recordings if Path(each).is_file()), None)
    if path is None:
        noise = np.random.default_rng(0).standard_normal(5 * audio.SAMPLE_RATE) * 0.1
        return torch.from_numpy(noise.astype(np.float32))[None], "noise (no --audio, no dev set)"
    samples = torch.from_numpy(audio.load(path))[None]
    if samples.size(1) < 400:
        raise UserError(f"{path} is shorter than one frame (25 ms): nothing to replay")
    return samples, path


if __name__ == "__main__":
    sys.exit(main())

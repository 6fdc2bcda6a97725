"""Store a model file's weights in half the bytes: asrkit pack --model M --output SMALL"""

import argparse
from pathlib import Path

from asrkit.cli.options import add_model_file, without_torch
from asrkit.cli.parser import Parser, Target


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit pack", __doc__,
        "asrkit pack --model exp/conformer/model.safetensors --output small.safetensors",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    return arguments.run(pack, argv)


def pack(options: argparse.Namespace) -> int:
    import torch

    from asrkit.model_file import load_model, save_model

    save_model(options.output, load_model(options.model), torch.float16)
    size = Path(options.output).stat().st_size
    print(f"{options.output}: {size / 1e6:.1f} MB, weights in float16")
    print(without_torch(options.output))
    return 0

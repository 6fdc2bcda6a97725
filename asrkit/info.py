"""Print what is in a model file: python -m asrkit.info MODEL"""

import argparse
import sys
from pathlib import Path

import yaml

from asrkit.checkpoint import FORMAT_VERSION, load_model
from asrkit.cli import parser, run_command
from asrkit.model import FRAME_MS


def main(argv: list[str] | None = None) -> int:
    arguments = parser("asrkit info", __doc__, "asrkit info exp/conformer/model.safetensors")
    arguments.add_argument("model", help="a .safetensors model file")
    return run_command(info, arguments, argv)


def info(options: argparse.Namespace) -> int:
    file = load_model(options.model)
    context = file.config.context
    parameters = sum(p.numel() for p in file.model.parameters())
    size = Path(options.model).stat().st_size
    chunks = ["full"] if context.full_share > 0 else []
    chunks += [f"{chunk * FRAME_MS} ms" for chunk in context.chunk_sizes]
    print(f"file        {options.model}, {size / 1e6:.1f} MB, format version {FORMAT_VERSION}")
    print(f"parameters  {parameters / 1e6:.2f} M")
    print(f"vocabulary  {file.tokenizer.vocab_size} with the blank, {file.config.text.tokenizer}")
    print(
        f"trained at  chunks of {', '.join(chunks)}; "
        f"left contexts of {', '.join(f'{m * FRAME_MS} ms' for m in context.left_contexts)}"
    )
    chunk, left = context.chunk_size * FRAME_MS, context.left_context * FRAME_MS
    print(f"decodes at  {chunk} ms with {left} ms before it")
    print("\ntraining")
    print(_indented(file.training))
    print("\nconfiguration")
    print(_indented(file.config.model_dump(mode="json")))
    return 0


def _indented(values: dict) -> str:
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None)
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


if __name__ == "__main__":
    sys.exit(main())

"""Store a model file's weights in half the bytes: python -m asrkit.pack --model M --output SMALL"""

import argparse
from pathlib import Path

import torch

from asrkit.cli.terms import changed_terms
from asrkit.model_file import load_model, save_model


def pack(options: argparse.Namespace) -> int:
    file = load_model(options.model)
    terms = changed_terms("asrkit pack", options, file.terms)
    save_model(options.output, file._replace(terms=terms), torch.float16)
    size = Path(options.output).stat().st_size
    print(f"{options.output}: {size / 1e6:.1f} MB, weights in float16")
    return 0

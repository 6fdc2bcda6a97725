"""The work of `asrkit adapters`: a model file with or without adapters, from the other one."""

import argparse

from asrkit.model_file import load_model, save_model
from asrkit.training.adapter_file import AFTER, BEFORE, changed, read_adapters


def run(options: argparse.Namespace) -> int:
    adapters = read_adapters(options.adapters)
    there = AFTER if options.action == "apply" else BEFORE
    save_model(options.output, changed(load_model(options.model), adapters, there))
    print(f"{options.output} written")
    return 0

"""Write the reference model of the benchmarks, with random weights, as a model file.

For `asrkit bench` and `asrkit export`: 80 mels, 64 channels in the subsampling, 12 layers, D 256, 4
heads, FFN 2048, K 15.
"""

import argparse

from benchmarks import QUICK_LAYERS, reference_file

from asrkit.model_file import save_model


def main() -> None:
    arguments = argparse.ArgumentParser(
        description="Write the reference model, with random weights.",
        epilog="example:\n  python tools/benchmarks/reference_model.py exp/model.safetensors",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--quick", action="store_true", help=f"{QUICK_LAYERS} layers")
    arguments.add_argument("output", help="the file to write")
    options = arguments.parse_args()
    save_model(options.output, reference_file(QUICK_LAYERS if options.quick else 12))


if __name__ == "__main__":
    main()

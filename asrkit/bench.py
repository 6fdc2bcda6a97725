"""Measure a model's speed on each backend here: python -m asrkit.bench --model MODEL"""

from asrkit.cli.choices import BACKENDS
from asrkit.cli.options import add_device, add_model_file, add_right_context, add_second_pass
from asrkit.cli.parser import Parser, Target, whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit bench", __doc__,
        "asrkit bench --model small-en-alnum --threads 1,2 --streams 1,8,32\n"
        "  asrkit bench --model exp/mine/model.safetensors --backends eager,onnx --json b.json\n"
        "  asrkit bench --model small-en-alnum --chunk-ms 320 --second-pass full",
    )  # fmt: skip
    add_model_file(arguments)
    add_device(arguments)
    arguments.add_argument("--chunk-ms", help="chunk in ms (default: the model's)")
    arguments.add_argument("--left-ms", help="left context in ms (default: the model's)")
    add_right_context(arguments)
    arguments.add_argument(
        "--backends", type=names,
        help=f"some of {', '.join(BACKENDS)} (default: all available ones except compiled)",
    )  # fmt: skip
    arguments.add_argument(
        "--threads", type=counts, default=[1], metavar="N,…",
        help="CPU threads, such as 1,2 (default 1)",
    )  # fmt: skip
    arguments.add_argument(
        "--streams", type=counts, default=[1, 8], metavar="N,…",
        help="numbers of streams (default 1,8)",
    )  # fmt: skip
    arguments.add_argument(
        "--batchers", type=whole(1, 1024), default=1, metavar="N",
        help="batchers that share the streams, each in its own thread with --threads threads"
        " (default 1; one per core with --threads 1 serves most streams)",
    )  # fmt: skip
    arguments.add_argument(
        "--chunks",
        type=whole(1, 10**9),
        default=100,
        metavar="N",
        help="chunks of each stream (default 100)",
    )
    add_second_pass(arguments, search=False)  # only the network is timed
    arguments.add_argument(
        "--json", type=Target, metavar="FILE", help="write the results there, too"
    )
    return arguments.run("bench:bench", argv)


def names(text: str) -> list[str]:
    return text.split(",")


def counts(text: str) -> list[int]:
    """Parse numbers separated by commas."""
    return [whole(1, 100_000)(part) for part in text.split(",")]


if __name__ == "__main__":
    raise SystemExit(main())

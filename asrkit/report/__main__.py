"""A training as one page to look at: python -m asrkit.report EXP"""

from asrkit.cli.options import MODEL, add_batch, add_context, add_search
from asrkit.cli.parser import Parser, Target, whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit report", __doc__,
        "python -m asrkit.report exp/conformer\n"
        "  python -m asrkit.report exp/conformer --manifest data/digits/test.jsonl --chunk-ms 320",
    )  # fmt: skip
    add_context(arguments)
    add_search(arguments)
    arguments.add_argument("--manifest", help="recordings with texts (default: the training's dev)")
    arguments.add_argument(
        "--output",
        type=Target,
        help="page to write (default: EXP/report.html, or NAME.html here for a model)",
    )
    arguments.add_argument(
        "--examples", type=whole(0, 1000), default=4, help="number of alignments (default 4)"
    )
    arguments.add_argument(
        "--worst", type=whole(0, 100_000), default=20,
        help="number of worst utterances (default 20)",
    )  # fmt: skip
    add_batch(arguments)
    arguments.add_argument(
        "--device", default="cpu", help="torch device: cpu, cuda, … (default cpu)"
    )
    arguments.add_argument("experiment", metavar="EXP", help=f"a training's output_dir, {MODEL}")
    return arguments.run("report:report", argv)


if __name__ == "__main__":
    raise SystemExit(main())

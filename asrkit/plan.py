"""Write a training configuration that fits a corpus: asrkit plan TRAIN DEV"""

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser, Target


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit plan", __doc__,
        "python -m asrkit.plan my/train.jsonl my/dev.jsonl --output mine.yaml\n"
        "  python -m asrkit.train --config mine.yaml\n\n"
        "exit status: 0 planned, 2 nothing was written",
    )  # fmt: skip
    arguments.add_argument("train", help="JSONL or lhotse manifest to train on")
    arguments.add_argument("dev", help="JSONL or lhotse manifest to measure with")
    arguments.add_argument(
        "--output", required=True, type=Target, metavar="FILE", help="configuration to write, YAML"
    )
    arguments.add_argument(
        "--start-from", metavar="MODEL",
        help=f"model to fine-tune: {MODEL}; or none (default: a ready model whose labels write "
        "these texts, if there is one)",
    )  # fmt: skip
    return arguments.run("plan:plan", argv)


if __name__ == "__main__":
    raise SystemExit(main())

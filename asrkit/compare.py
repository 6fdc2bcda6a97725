"""Compare two models on the same recordings: python -m asrkit.compare BASE OTHER dev.jsonl"""

from asrkit.cli.options import MODEL, add_batch, add_device, add_recognizer
from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit compare", __doc__,
        "python -m asrkit.compare exp/base/model.safetensors exp/new/model.safetensors dev.jsonl\n"
        "  asrkit compare BASE0,BASE1 NEW0,NEW1 --chunk-ms 320 dev.jsonl   # two seeds of each",
    )  # fmt: skip
    for name in ("base", "other"):
        arguments.add_argument(
            name, type=lambda text: text.split(","), metavar=name.upper(),
            help=f"{MODEL}; the seeds of one training are separated by commas",
        )  # fmt: skip
    arguments.add_argument("manifest", help="recordings with their texts")
    add_device(arguments)
    add_recognizer(arguments)
    add_batch(arguments)
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    return arguments.run("compare:compare", argv)


if __name__ == "__main__":
    raise SystemExit(main())

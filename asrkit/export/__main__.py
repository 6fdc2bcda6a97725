"""Export a model, or its encoder alone: python -m asrkit.export --model MODEL --output enc.ts"""

from asrkit.cli.choices import CONTENTS, EXPORTS
from asrkit.cli.options import add_context, add_model_file
from asrkit.cli.parser import Parser, Target


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit export", __doc__,
        "python -m asrkit.export --model MODEL --format torchscript --output encoder.ts\n"
        "  python -m asrkit.export --model MODEL --format onnx\n"
        "  python -m asrkit.export --model MODEL --format onnx-int8 --manifest dev.jsonl\n"
        "  python -m asrkit.export --model MODEL --format onnx --chunk-ms full\n"
        "  python -m asrkit.export --model MODEL --format onnx --what model --output m.onnx\n"
        "  python -m asrkit.export --model MODEL --format sherpa-onnx --output FOLDER",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument(
        "--output",
        type=Target,
        help="the file to write, for sherpa-onnx the folder (default: beside the model, where "
        "decode looks for it)",
    )
    arguments.add_argument("--format", choices=EXPORTS, default="torchscript")
    arguments.add_argument(
        "--what", choices=CONTENTS,
        help="; ".join(f"{what}: {contents}" for what, contents in CONTENTS.items())
        + " (default: encoder for torchscript, ctc for onnx)",
    )  # fmt: skip
    add_context(arguments)
    arguments.add_argument("--audio", help="recording to replay (default: one of the dev set)")
    arguments.add_argument(
        "--manifest", help="recordings with texts on which int8 is tried (default: the dev set)"
    )
    return arguments.run("export:export", argv)


if __name__ == "__main__":
    raise SystemExit(main())

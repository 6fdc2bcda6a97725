"""Align a known text with its audio: python -m asrkit.align --model M a.wav --text "no" """

from asrkit.cli.options import add_channel, add_context, add_model, add_output
from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit align", __doc__,
        'python -m asrkit.align --model MODEL a.wav --text "seven eight" --format ctm\n'
        "  python -m asrkit.align --model MODEL --manifest m.jsonl --format textgrid"
        " --output-dir aligned",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments, chunk_ms="full")
    arguments.add_argument("file", nargs="?", help="an audio file")
    source = arguments.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="the transcript of the file")
    source.add_argument("--text-file", help="a text file with the transcript")
    source.add_argument("--manifest", help="manifest, or lhotse's cuts, with texts")
    add_channel(arguments)
    add_output(arguments, "ctm")
    return arguments.run("align:align", argv)


if __name__ == "__main__":
    raise SystemExit(main())

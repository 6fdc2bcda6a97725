"""Stream a file, the microphone or raw samples: asrkit stream --model MODEL --mic"""

from asrkit.cli.options import add_model, add_recognizer
from asrkit.cli.parser import Parser
from asrkit.cli.source import add_live_output, add_source


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit stream", __doc__,
        "asrkit stream --model MODEL x.wav --simulate-realtime\n"
        "  asrkit stream --model MODEL --mic\n"
        "  asrkit stream --model MODEL x.wav --format jsonl\n"
        "  ffmpeg -i x.mp4 -f s16le -ac 1 -ar 16000 - | asrkit stream --model MODEL -",
        "--model MODEL [options] FILE | --mic | -",
    )  # fmt: skip
    arguments.add_argument(
        "source", nargs="*", metavar="FILE",
        help="an audio file, or - for standard input: raw 16-bit mono samples, 16-bit WAV, or what "
        "FFmpeg reads from a pipe",
    )  # fmt: skip
    add_model(arguments)
    add_recognizer(arguments, live=True)
    add_source(arguments)
    add_live_output(arguments)
    return arguments.run("stream:stream", argv)


if __name__ == "__main__":
    raise SystemExit(main())

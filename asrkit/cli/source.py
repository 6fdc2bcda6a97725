"""Options of live audio and its text, shared by stream and listen."""

import argparse
from typing import Any

from asrkit.cli.options import add_channel
from asrkit.cli.parser import Parser, complain, whole
from asrkit.errors import UserError


def add_source(arguments: Parser) -> None:
    """Add the options of live audio and of its text."""
    arguments.add_argument(
        "source", nargs="*", metavar="FILE",
        help="an audio file, or - for standard input: raw 16-bit mono samples, or 16-bit WAV",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--format", choices=["txt", "jsonl"], default="txt",
        help="txt: a segment per line; jsonl: a JSON object per line, of type partial (may change)"
        " or final (a segment), with text, start and end in seconds, and words (default txt)",
    )  # fmt: skip
    group = arguments.group("source")
    add_channel(arguments, split=True)
    group.add_argument(
        "--sample-rate", type=whole(1000, 768_000), metavar="HZ",
        help="rate of raw samples on standard input (default 16000)",
    )  # fmt: skip
    group.add_argument(
        "--simulate-realtime", action="store_true", help="read a file at the speed of its speech"
    )
    group = arguments.group("microphone")
    group.add_argument(
        "--mic", action="store_true", help="read the microphone; needs the extra mic"
    )
    group.add_argument(
        "--list-devices", action=ListDevices, nargs=0, help="show the microphones, and exit"
    )
    group.add_argument(
        "--mic-device", metavar="DEVICE", help="number or (part of the) name of the microphone"
    )
    group.add_argument(
        "--save-audio", metavar="FILE", help="record the audio into a new .wav or .flac file"
    )


class ListDevices(argparse.Action):
    """Prints the microphones and exits, like --help, with any other options."""

    def __call__(self, parser: argparse.ArgumentParser, *others: Any, **named: Any) -> None:
        from asrkit.audio.microphone import device_table

        try:
            print(device_table())
        except UserError as error:
            complain(parser.prog, error)
            parser.exit(2)
        parser.exit()

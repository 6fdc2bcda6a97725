"""Options of live audio and its text, shared by stream and listen."""

import argparse
from collections.abc import Sequence
from typing import Any

from asrkit.cli.choices import SAMPLE_RATE
from asrkit.cli.options import add_channel
from asrkit.cli.parser import Parser, complain, whole
from asrkit.errors import UserError

MAX_PACKET_MS = 60_000


def add_live_output(arguments: Parser) -> None:
    """Add the options of what is printed."""
    group = arguments.group("output")
    group.add_argument(
        "--format", choices=["txt", "jsonl"], default="txt",
        help="txt: a segment a line; jsonl: a JSON object a line, of type partial (may change) or "
        "final (a segment), with text, start and end in seconds, and words (default txt)",
    )  # fmt: skip
    group.add_argument(
        "--partials", action="store_true", help="in txt: every partial result on a line of its own"
    )


def add_source(arguments: Parser) -> None:
    """Add the options of the audio's source."""
    group = arguments.group("source")
    add_channel(arguments)
    group.add_argument("--file", help="as FILE")
    group.add_argument(
        "--sample-rate", type=whole(1000, 768_000), metavar="HZ",
        help=f"of raw samples on standard input (default {SAMPLE_RATE})",
    )  # fmt: skip
    group.add_argument(
        "--packet-ms", type=whole(1, MAX_PACKET_MS), default=100, metavar="MS",
        help="audio taken at once (default 100)",
    )  # fmt: skip
    group.add_argument(
        "--simulate-realtime", action="store_true", help="take a file at the speed it was spoken"
    )
    group = arguments.group("microphone")
    group.add_argument(
        "--mic", action="store_true", help="the microphone; the extra mic installs what this needs"
    )
    group.add_argument(
        "--list-devices", action=ListDevices, nargs=0, help="show the microphones, and exit"
    )
    group.add_argument(
        "--mic-device", metavar="DEVICE", help="number or (part of the) name of the microphone"
    )
    group.add_argument(
        "--no-meter", action="store_true", help="do not show how loud the microphone is"
    )
    group.add_argument(
        "--save-audio", metavar="FILE", help="record the audio into a new .wav or .flac file"
    )


class ListDevices(argparse.Action):
    """Prints the microphones and exits, like --help, whatever other options are given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        from asrkit.audio.microphone import device_table, input_devices

        try:
            print(device_table(input_devices()))
        except UserError as error:
            complain(parser.prog, error)
            parser.exit(2)
        parser.exit()

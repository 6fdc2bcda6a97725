"""Stream a file, the microphone or raw samples to a server: asrkit listen URL --mic"""

import argparse
import os
from contextlib import ExitStack, closing
from pathlib import Path

from asrkit.cli.options import add_hotwords, token_in
from asrkit.cli.parser import Parser
from asrkit.cli.source import add_source
from asrkit.errors import UserError


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit listen", __doc__,
        "asrkit listen http://127.0.0.1:8000 --mic\n"
        "  asrkit listen https://asr.example.org x.wav --token-file token.txt\n"
        "  asrkit listen http://127.0.0.1:8000 x.wav --simulate-realtime --format jsonl",
        "URL [options] FILE | --mic | -",
    )  # fmt: skip
    arguments.add_argument("url", metavar="URL", help="URL of asrkit serve: http, https, ws, wss")
    add_source(arguments)
    group = arguments.group("server")
    group.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="file with the token for the server (default: the variable ASRKIT_TOKEN, if set)",
    )  # fmt: skip
    add_hotwords(arguments)
    return arguments.run(listen, argv)


def listen(options: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from asrkit.cli.recognizer import hotwords_of
    from asrkit.commands.stream import check_source, run, screen_of
    from asrkit.serve.client import RemoteSession, address_of
    from asrkit.serve.dialects.messages import Start, problem

    check_source(options)
    address = address_of(options.url)
    token = token_in(options.token_file) or os.environ.get("ASRKIT_TOKEN") or None
    with ExitStack() as stack, screen_of(options) as screen:

        def start(sample_rate: int, channels: int) -> RemoteSession:
            try:
                first = Start(
                    type="start", sample_rate=sample_rate, channels=channels,
                    encoding="pcm_s16le" if options.mic else "pcm_f32le",  # the latter is exact
                    hotwords=hotwords_of(options) or {},
                )  # fmt: skip
            except ValidationError as error:  # an invalid hotword
                raise UserError(problem(error)) from None
            session = RemoteSession(address, first, token, screen.note)
            return stack.enter_context(closing(session))

        return run(options, start, screen)

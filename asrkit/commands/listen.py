"""Stream a file, the microphone or raw samples to a server: asrkit listen URL --mic"""

import argparse
import os
from contextlib import ExitStack, closing
from pathlib import Path

from asrkit.cli.options import add_hotwords, eagerness, given_token
from asrkit.cli.parser import Parser, one_of, whole
from asrkit.cli.source import add_live_output, add_source
from asrkit.errors import UserError
from asrkit.extras import need

ENCODINGS = ["pcm_s16le", "pcm_f32le"]


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit listen", __doc__,
        "asrkit listen http://127.0.0.1:8000 --mic\n"
        "  asrkit listen https://asr.example.org x.wav --token-file token.txt\n"
        "  asrkit listen http://127.0.0.1:8000 x.wav --simulate-realtime --format jsonl",
        "URL [options] FILE | --mic | -",
    )  # fmt: skip
    arguments.add_argument("url", metavar="URL", help="URL of asrkit serve: http, https, ws, wss")
    arguments.add_argument(
        "source", nargs="*", metavar="FILE",
        help="an audio file, or - for standard input: raw 16-bit mono samples, or 16-bit WAV",
    )  # fmt: skip
    add_source(arguments)
    group = arguments.group("server")
    group.add_argument("--token", help="token for the server (default: ASRKIT_TOKEN, if set)")
    group.add_argument("--token-file", type=Path, metavar="FILE", help="file with the token")
    group.add_argument(
        "--encoding", choices=ENCODINGS,
        help="encoding for the transfer (default: pcm_s16le for the microphone, else pcm_f32le,"
        " which is exact)",
    )  # fmt: skip
    group.add_argument(
        "--pause-ms", type=whole(0, 60_000), metavar="MS",
        help="pause that ends a segment; 0: none does (default: the server's)",
    )  # fmt: skip
    group.add_argument(
        "--end-of-turn", type=one_of(eagerness), metavar="EAGERNESS",
        help="eagerness to end a segment at the end of a turn, too: off, low, medium or high "
        "(default: the server's)",
    )  # fmt: skip
    add_hotwords(arguments)
    add_live_output(arguments)
    return arguments.run(listen, argv)


def listen(options: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from asrkit.cli.recognizer import hotwords_of
    from asrkit.commands.stream import check_source, run, screen_of

    need("websockets")
    from asrkit.serve.client import RemoteSession, address_of
    from asrkit.serve.dialects.messages import Start, problem

    check_source(options)
    if options.encoding is None:
        options.encoding = "pcm_s16le" if options.mic else "pcm_f32le"
    address = address_of(options.url)
    if options.token is None and options.token_file is None:
        options.token = os.environ.get("ASRKIT_TOKEN")
    token, hotwords = given_token(options), hotwords_of(options) or {}
    with ExitStack() as stack, screen_of(options) as screen:

        def start(sample_rate: int, channels: int) -> RemoteSession:
            try:
                first = Start(
                    type="start", sample_rate=sample_rate, encoding=options.encoding,
                    hotwords=hotwords, pause_ms=options.pause_ms, end_of_turn=options.end_of_turn,
                    channels=channels,
                )  # fmt: skip
            except ValidationError as error:  # an invalid hotword
                raise UserError(problem(error)) from None
            session = RemoteSession(address, first, token, screen.note)
            return stack.enter_context(closing(session))

        return run(options, start, screen)

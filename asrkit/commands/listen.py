"""Stream a file, the microphone or raw samples to a server: asrkit listen URL --mic"""

import argparse
import os
from contextlib import ExitStack, closing

from pydantic import ValidationError

from asrkit.audio.opus import RATE
from asrkit.cli.options import given_token
from asrkit.cli.recognizer import hotwords_of
from asrkit.commands.stream import check_source, run, screen_of
from asrkit.errors import UserError
from asrkit.extras import need


def listen(options: argparse.Namespace) -> int:
    need("websockets")
    from asrkit.serve.client import RemoteSession, address_of
    from asrkit.serve.protocols.messages import Start, problem

    check_source(options)
    if options.encoding is None:
        options.encoding = "pcm_s16le" if options.mic else "pcm_f32le"
    address = address_of(options.url)
    if options.token is None and options.token_file is None:
        options.token = os.environ.get("ASRKIT_TOKEN")
    token, hotwords = given_token(options), hotwords_of(options) or {}
    with ExitStack() as stack, screen_of(options) as screen:

        def start(sample_rate: int, channels: int) -> RemoteSession:
            rate = RATE if options.encoding == "opus" else sample_rate
            try:
                first = Start(
                    type="start", sample_rate=rate, encoding=options.encoding, hotwords=hotwords,
                    pause_ms=options.pause_ms, end_of_turn=options.end_of_turn, channels=channels,
                )  # fmt: skip
            except ValidationError as error:  # an invalid hotword
                raise UserError(problem(error)) from None
            session = RemoteSession(address, first, sample_rate, token, screen.note)
            return stack.enter_context(closing(session))

        return run(options, start, screen)

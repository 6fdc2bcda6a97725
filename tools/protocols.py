"""Protocols of servers, as callers.py speaks them: /v1/stream, and sherpa-onnx's own server's."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from websockets.frames import Frame, Opcode

RATE = 16_000
REACH = 240  # samples after a chunk's last frame begins that the frame needs


class Protocol(NamedTuple):
    """A server's protocol.

    Attributes:
        start: first message, which the server answers, or "".
        end: message after the audio.
        dtype: type of the samples; floats are -1 to 1.
        read: translates the nth message of the server into one of /v1/stream.
    """

    start: str
    end: str
    dtype: str
    read: Callable[[str, int], dict[str, Any]]


def read_stream(message: str, _number: int) -> dict[str, Any]:
    return json.loads(message)  # type: ignore[no-any-return]


STREAM = Protocol('{"type": "start"}', '{"type": "end"}', "<i2", read_stream)


def read_sherpa(message: str, number: int, reach: int) -> dict[str, Any]:
    """Translate a message of sherpa-onnx's server, which sends one for each chunk of 640 ms.

    "Done!" has no text, and may overtake the last one.

    Args:
        reach: samples that the network needs beside the chunks.
    """
    if message == "Done!":
        return {"type": "done"}
    got = json.loads(message)
    kind = "ended" if got["is_eof"] else "partial"
    recognized = number * 64 * RATE // 100 + reach - REACH
    return {"type": kind, "text": got["text"], "recognized": recognized}


# Frames that a step needs beside those of its chunk: of wenet-ctc 1, of zipformer2-ctc 13. A frame
# ends 280 samples after it begins, as half of the first one is mirrored.
WENET, ZIPFORMER = (
    Protocol("", "Done", "<f4", partial(read_sherpa, reach=160 * (frames - 1) + 280))
    for frames in (1, 13)
)


class Line(NamedTuple):
    """A server's address, its protocol, and the samples of a packet."""

    address: str
    protocol: Protocol = STREAM
    packet: int = RATE // 10

    def packets(self, samples: np.ndarray) -> list[bytes]:
        """Return int16 samples as masked binary messages."""
        values = samples.astype(self.protocol.dtype)
        if values.dtype.kind == "f":
            values /= 32768
        starts = range(0, len(values), self.packet)
        parts = (values[start : start + self.packet].tobytes() for start in starts)
        return [Frame(Opcode.BINARY, each).serialize(mask=True) for each in parts]

"""Deepgram's live WebSocket, /v1/listen: options in the address, binary audio, Results.

Each segment is a final result. Each channel of a multichannel request is a call of its own.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from starlette.websockets import WebSocket

from asrkit.audio import Mixer
from asrkit.errors import UserError, shown, whole_number
from asrkit.runtime import Word
from asrkit.serve.calls import Call, CallUpdate
from asrkit.serve.protocols.deepgram_messages import (
    About,
    LiveOptions,
    alternative,
    asked_of,
    options_of,
)
from asrkit.serve.protocols.parsing import object_of
from asrkit.serve.protocols.samples import append_channels, cut_off, samples_of
from asrkit.serve.protocols.websockets import all_ways, next_message, send, telling
from asrkit.serve.server import Server

KINDS = ("KeepAlive", "Finalize", "CloseStream", "Configure")
EXPECTED = f"audio, or an object whose type is one of {', '.join(KINDS)}"


def error(reason: str, message: str) -> str:
    return json.dumps({"type": "Error", "variant": reason, "description": message})


async def listen(websocket: WebSocket, server: Server) -> None:
    """Serve a connection: one request."""
    async with telling(websocket, server, error):
        options, warnings = options_of(LiveOptions, websocket.query_params)
        asked = await asked_of(options, warnings, server)
        count = options.channels if options.multichannel else 1
        with ExitStack() as stack:
            calls = [
                stack.enter_context(server.call(asked.model, options.sample_rate, asked.recognizer))
                for _ in range(count)
            ]
            about = About(asked.model)
            await Request(websocket, server, options, about, asked.warnings, calls).run()


class Channel:
    """A channel with its call, and what was reported of it.

    Attributes:
        index: number of the channel, and number of channels.
        call: call of the channel.
        start: end of the last segment, seconds.
        asked, commits: number of commits, and number of those that were reported.
        finalized: audio before the last commit, seconds.
        interim: text of the last interim result of the open segment.
        is_speaking: whether the start of the open segment's speech was reported.
        last_word_end: end of the last word, until the end of its utterance is reported.
    """

    def __init__(self, index: list[int], call: Call) -> None:
        self.index, self.call = index, call
        self.start, self.interim = 0.0, ""
        self.asked, self.commits, self.finalized = 0, 0, 0.0
        self.is_speaking, self.last_word_end = False, 0.0


class Request:
    """A connection with its calls.

    Args:
        websocket: connection to the client.
        server: server of the calls.
        options: options of the request.
        about: identity of the request.
        warnings: warnings for the client.
        calls: a call for each channel, or one for all.
    """

    def __init__(
        self,
        websocket: WebSocket,
        server: Server,
        options: LiveOptions,
        about: About,
        warnings: list[str],
        calls: Sequence[Call],
    ) -> None:
        self.websocket, self.server, self.options, self.about = websocket, server, options, about
        self.warnings, self.untold = warnings, [*warnings]
        self.channels = [Channel([i, len(calls)], call) for i, call in enumerate(calls)]
        self.hash = hashlib.sha256()

    async def tell(self, kind: str, **fields: object) -> None:
        await send(self.websocket, {"type": kind, **fields})

    async def run(self) -> None:
        """Serve the request to its end."""
        writers = [self.write(channel) for channel in self.channels]
        await all_ways(self.read(), writers, self.end())

    async def end(self) -> None:
        """Send the metadata after the results of all channels."""
        seconds = self.channels[0].call.seconds
        metadata = self.about.metadata(
            self.hash.hexdigest(), seconds, self.options.channels, self.warnings
        )
        await self.tell("Metadata", **metadata)

    async def read(self) -> None:
        """Receive audio and requests until the client closes the stream."""
        past, mixer = b"", Mixer("the audio")
        while True:
            message = await next_message(self.websocket, self.server)
            if isinstance(message, bytes) and message:
                self.hash.update(message)
                samples, past = self.samples_of(past, message)
                await self.append(samples, mixer)
            elif isinstance(message, bytes) or await self.follow(message):
                break
        said = (cut_off(past), *(f"the audio {each}" for each in mixer.problems()))
        self.warnings += filter(None, said)
        for channel in self.channels:
            channel.call.finish()

    def samples_of(self, past: bytes, data: bytes) -> tuple[np.ndarray, bytes]:
        """Return the samples of a message, and the bytes of an incomplete last one."""
        channels, table = self.options.channels, self.options.table
        if table is None:
            return samples_of(past, data, np.dtype("<i2"), channels)
        codes, past = samples_of(past, data, np.dtype("u1"), channels)
        return table[codes], past

    async def append(self, samples: np.ndarray, mixer: Mixer) -> None:
        """Append samples (n,) or (n, channels) to the calls."""
        rate = self.options.sample_rate
        calls = [channel.call for channel in self.channels]
        samples = mixer(samples) if len(calls) == 1 else samples
        await append_channels(calls, self.server, samples, rate)

    async def follow(self, text: str) -> bool:
        """Handle a text message; return whether it closes the stream."""
        try:
            kind, channels = self.request_of(text)
        except UserError as wrong:
            about = {"variant": "SchemaError", "description": str(wrong)}
            await self.tell("Error", **about, message=text[:200])
            return False
        if kind == "Finalize":
            for channel in channels:
                await self.finalize(channel)
        elif kind == "Configure":
            await self.tell(
                "ConfigureFailure", request_id=self.about.request_id,
                code="CONFIGURE_KEYTERMS_NOT_SUPPORTED",
                description="options cannot change: begin another stream",
            )  # fmt: skip
        return kind == "CloseStream"

    async def finalize(self, channel: Channel) -> None:
        """End the open segment of a channel, whose result answers the request.

        Without audio since the last request, its result answers both, or an empty one this one.
        """
        if channel.call.seconds > channel.finalized:
            channel.finalized = channel.call.seconds
            channel.asked += 1
            channel.call.commit()
        elif channel.commits == channel.asked:
            end = channel.start
            await self.result(channel, "", (), end, is_final=True, from_finalize=True)

    def request_of(self, text: str) -> tuple[str, Sequence[Channel]]:
        """Return the kind of a text message, and the channels that it is about.

        Raises:
            UserError: for another message.
        """
        value = object_of(text, EXPECTED)
        kind, number = value.get("type"), value.get("channel")
        if kind not in KINDS:
            raise UserError(f"expected {EXPECTED}, got {shown(text, 60)}")
        if kind != "Finalize" or number is None:
            return str(kind), self.channels
        if (whole := whole_number(number, 0, len(self.channels) - 1)) is None:
            last = len(self.channels) - 1
            raise UserError(f"Finalize: channel must be 0 to {last}, got {shown(number, 40)}")
        return str(kind), self.channels[whole : whole + 1]

    async def write(self, channel: Channel) -> None:
        """Send the updates of a channel until its call has ended."""
        while (update := await channel.call.next_update()) is not None:
            await self.report(channel, update)

    async def report(self, channel: Channel, update: CallUpdate) -> None:
        """Send the messages of an update."""
        finalized = update.commits > channel.commits
        channel.commits = update.commits
        for number, segment in enumerate(update.segments, 1):
            asked = finalized and number == len(update.segments)
            if segment.text or asked:
                await self.words(channel, segment.words)
                await self.result(
                    channel, segment.text, segment.words, segment.end, is_final=True,
                    from_finalize=asked,
                )  # fmt: skip
            channel.start, channel.interim, channel.is_speaking = segment.end, "", False
        if finalized and not update.segments:
            await self.result(channel, "", (), update.seconds, is_final=True, from_finalize=True)
        await self.words(channel, update.words)
        if self.options.interim_results and update.text != channel.interim:
            channel.interim = update.text
            await self.result(channel, update.text, update.words, update.seconds)
        silence_ms, last = self.options.utterance_end_ms, channel.last_word_end
        if silence_ms and last and 1000 * (update.seconds - last) >= silence_ms:
            channel.last_word_end = 0.0
            await self.tell("UtteranceEnd", channel=channel.index, last_word_end=last)

    async def words(self, channel: Channel, words: Sequence[Word]) -> None:
        """Note the last word of a segment, and send that its speech has started, once."""
        if not words:
            return
        channel.last_word_end = words[-1].end
        if self.options.vad_events and not channel.is_speaking:
            channel.is_speaking = True
            await self.tell("SpeechStarted", channel=channel.index, timestamp=words[0].start)

    async def result(
        self, channel: Channel, text: str, words: Sequence[Word], end: float,
        is_final: bool = False, from_finalize: bool = False,
    ) -> None:  # fmt: skip
        """Send a result of the audio from the end of the last segment to `end`."""
        metadata: dict[str, Any] = self.about.short
        if self.untold:
            metadata, self.untold = metadata | {"warnings": self.untold}, []
        await self.tell(
            "Results", channel_index=channel.index, start=channel.start,
            duration=round(max(0.0, end - channel.start), 3),
            is_final=is_final, speech_final=is_final, from_finalize=from_finalize,
            channel={"alternatives": [alternative(text, words)]}, metadata=metadata,
        )  # fmt: skip

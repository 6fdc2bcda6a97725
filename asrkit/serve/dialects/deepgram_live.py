"""Deepgram's live WebSocket, /v1/listen: options in the address, binary audio, Results.

Each segment is a final result. Each channel of a multichannel request is a call of its own.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from asrkit.errors import UserError, shown
from asrkit.runtime import Word
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Commit, Dialect, Finish
from asrkit.serve.dialects.audio import A_LAW, MU_LAW, SampleReader
from asrkit.serve.dialects.deepgram import About, LiveOptions, alternative, options_of
from asrkit.serve.dialects.parsing import object_of
from asrkit.serve.server import Grant

TABLES = {"mulaw": MU_LAW, "alaw": A_LAW}  # values of the codes of a byte
KINDS = ("KeepAlive", "Finalize", "CloseStream")
EXPECTED = f"audio, or an object whose type is one of {', '.join(KINDS)}"


@dataclass
class Channel:
    """The state of a channel."""

    index: list[int]  # number of the channel, and number of channels
    start: float = 0.0  # end of the last segment, seconds
    commits: int = 0  # number of commits that were reported
    interim: str = ""  # text of the last interim result of the open segment


class Deepgram(Dialect):
    """A live request.

    Args:
        query: options in the request's address.
    """

    options: LiveOptions
    about: About
    reader: SampleReader

    def __init__(self, query: QueryParams) -> None:
        self.query, self.warnings, self.unsent = query, list[str](), list[str]()
        self.channels: list[Channel] = []
        self.samples, self.hash = 0, hashlib.sha256()

    def open(self) -> Iterator[Begin]:
        self.options, self.warnings = options_of(LiveOptions, self.query)
        options, channels = self.options, self.options.channels
        count = channels if options.multichannel else 1
        self.channels = [Channel([number, count]) for number in range(count)]
        table = TABLES.get(options.encoding)
        self.reader = SampleReader(channels=channels, table=table, mixes=count == 1)
        yield Begin(options.wish(options.pause_ms), options.sample_rate, count)

    def begun(self, begin: Begin, grant: Grant) -> tuple[()]:
        self.about = About(grant.model)
        self.warnings = [*grant.warnings, *self.warnings]
        self.unsent = [*self.warnings]
        return ()

    def read(self, message: str | bytes) -> Iterator[Any]:
        if message and isinstance(message, bytes):
            self.hash.update(message)
            samples = self.reader.read(message)
            self.samples += len(samples)
            yield Append(samples)
            return
        value = {"type": "CloseStream"} if message == b"" else object_of(message, EXPECTED)
        kind = value.get("type")
        if kind not in KINDS:
            raise UserError(f"expected {EXPECTED}, got {shown(message, 60)}")
        if kind == "Finalize":
            yield Commit()
        elif kind == "CloseStream":
            self.warnings += self.reader.problems()
            yield Finish()

    def wrong(self, error: UserError) -> dict[str, Any]:
        return self.error("SchemaError", str(error))

    def error(self, reason: str, text: str) -> dict[str, Any]:
        return {"type": "Error", "variant": reason, "description": text}

    def write(self, channel: int, update: CallUpdate) -> Iterator[dict[str, Any]]:
        own = self.channels[channel]
        is_asked = update.commits > own.commits
        own.commits = update.commits
        for number, segment in enumerate(update.segments, 1):
            from_finalize = is_asked and number == len(update.segments)
            if segment.text or from_finalize:
                yield self.result(own, segment.words, segment.end, True, from_finalize)
            own.start, own.interim = segment.end, ""
        if is_asked and not update.segments:
            yield self.result(own, (), update.seconds, True, True)
        if self.options.interim_results and update.text != own.interim:
            own.interim = update.text
            yield self.result(own, update.words, update.seconds)

    def result(
        self, channel: Channel, words: Sequence[Word], end: float, is_final: bool = False,
        from_finalize: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Return a result of the audio from the end of the last segment to `end`."""
        metadata = self.about.short | ({"warnings": self.unsent} if self.unsent else {})
        self.unsent = []
        return {
            "type": "Results", "channel_index": channel.index, "start": channel.start,
            "duration": round(max(0.0, end - channel.start), 3), "is_final": is_final,
            "speech_final": is_final, "from_finalize": from_finalize,
            "channel": {"alternatives": [alternative(words)]}, "metadata": metadata,
        }  # fmt: skip

    def ended(self) -> Iterator[dict[str, Any]]:
        seconds, channels = self.samples / self.options.sample_rate, self.options.channels
        about = self.about.metadata(self.hash.hexdigest(), seconds, channels, self.warnings)
        yield {"type": "Metadata", **about}

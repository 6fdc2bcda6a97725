"""asrkit's own protocol, /v1/stream: a start message, binary audio, partial and final texts.

`asrkit.serve.dialects.messages` defines the messages. `asrkit.serve.resumable` has the calls, which
outlive their connections.
"""

from collections.abc import Iterator
from typing import Any

from asrkit.errors import UserError, shown
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Commit, Dialect, Finish
from asrkit.serve.dialects import messages
from asrkit.serve.dialects.audio import SampleReader
from asrkit.serve.resumption import SuspendedCall
from asrkit.serve.server import Grant, Wish


class AsrkitStream(Dialect):
    """A connection of a call: the whole call, or a part of it.

    Attributes:
        id, token: names of the call, with which its client resumes it.
        ack: samples that the client need not send again.
    """

    def __init__(self) -> None:
        self.id = self.token = self.warning = ""
        self.ack, self.reader = 0, SampleReader()
        self.start: messages.Start | None = None
        self.finals: list[int] = []  # segments of each channel that the client has already

    def read(self, message: str | bytes) -> Iterator[Any]:
        if self.start is None:
            first = messages.parsed(message) if isinstance(message, str) else None
            if not isinstance(first, messages.Start | messages.Resume):
                raise UserError("the first message must be a start or a resume")
            yield first
        elif isinstance(message, bytes):
            yield Append(self.reader.read(message))
        elif isinstance(asked := messages.parsed(message), messages.End):
            self.warning = "; ".join(self.reader.problems())
            yield Finish()
        elif isinstance(asked, messages.Commit):
            yield Commit()
        else:
            raise UserError("the call has started already")

    def begin(self, call: SuspendedCall, finals: int | list[int] = 0) -> Begin:
        """Return the item that begins or continues a call.

        Args:
            call: state of the call.
            finals: number of segments that the client has already, or those of each channel.
        """
        start = call.start
        counts = finals if isinstance(finals, list) else [finals]
        counts = counts * start.channels if counts == [0] else counts
        if len(counts) != start.channels:
            raise UserError(f"finals: expected {start.channels} numbers, got {shown(finals)}")
        self.reader = SampleReader(messages.ENCODINGS[start.encoding], start.channels)
        self.start, self.finals = start, counts
        wish = Wish(
            start.model, hotwords=start.hotwords, pause_ms=start.pause_ms,
            end_of_turn=start.end_of_turn,
        )  # fmt: skip
        return Begin(wish, start.sample_rate, start.channels, call.saved, settings=call)

    def begun(self, begin: Begin, grant: Grant) -> Iterator[str]:
        call: SuspendedCall = begin.settings
        yield messages.Started(
            model=grant.model.name, context=grant.recognizer.context, id=self.id, token=self.token,
            ack=call.first.received, commits=call.first.commits,
        ).model_dump_json()  # fmt: skip

    def write(self, channel: int, update: CallUpdate) -> Iterator[str]:
        """Return the messages of an update, except the segments that the client has already."""
        assert self.start is not None
        recognized = round(update.seconds * self.start.sample_rate)
        about: dict[str, Any] = {"ack": self.ack, "recognized": recognized}
        about |= {"channel": channel} if self.start.channels > 1 else {}
        for segment in update.segments:
            self.finals[channel] -= 1
            if self.finals[channel] < 0:
                yield messages.Final(
                    text=segment.text, start=segment.spoken, end=segment.spoken_end,
                    words=messages.timed(segment.words), context=segment.context, **about,
                ).model_dump_json(exclude_none=True)  # fmt: skip
        if not update.is_final:
            yield messages.Partial(
                text=update.text, stable=update.stable_text, words=messages.timed(update.words),
                **about,
            ).model_dump_json(exclude_none=True)  # fmt: skip

    def ended(self) -> Iterator[str]:
        ended = messages.Ended(ack=self.ack, warning=self.warning or None)
        yield ended.model_dump_json(exclude_none=True)

    def error(self, reason: str, text: str) -> str:
        return messages.Error(reason=reason, message=text).model_dump_json()

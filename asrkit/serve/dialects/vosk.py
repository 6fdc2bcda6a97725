"""Vosk's protocol, /vosk: 16-bit samples in, a JSON reply to each message except a config."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from asrkit.errors import UserError, shown
from asrkit.runtime import Segment
from asrkit.serve.calls import CallUpdate
from asrkit.serve.converse import Append, Begin, Dialect, Finish
from asrkit.serve.dialects.audio import SampleReader
from asrkit.serve.dialects.parsing import Rate, checked, object_of, unused, without_effect
from asrkit.serve.server import Grant, Wish

MOST_WARNINGS = 5  # in one reply
ONE_OF = "audio, or an object with one of config, eof and reset"


class VoskConfig(BaseModel):
    """A client's settings. `model` is the name of a model; in Vosk's own server it is a path."""

    model: str | None = None
    sample_rate: Rate = 8000
    words: bool = True
    phrase_list: list[str] = []


class Vosk(Dialect):
    """The calls of a client one after another; a reset begins the next call."""

    def __init__(self) -> None:
        self.config, self.warnings = VoskConfig(), list[str]()  # warnings: for the next reply
        self.has_call = False
        self.reader, self.text = SampleReader(), ""  # text: of the open segment
        self.waiting: list[Segment] = []  # for the next replies

    def read(self, message: str | bytes) -> Iterator[Any]:
        kind = "audio" if isinstance(message, bytes) else request_of(message)
        if kind == "config":
            self.config = self.changed(object_of(message, ONE_OF)["config"])
            return
        if not self.has_call:
            config = self.config
            yield Begin(Wish(config.model, phrases=config.phrase_list), config.sample_rate)
        if isinstance(message, bytes):
            yield Append(self.reader.read(message))
            first, self.waiting = self.waiting[:1], self.waiting[1:]
            yield self.reply(
                result_of(first, self.config.words) if first else {"partial": self.text}
            )
            return
        for problem in self.reader.problems():
            self.warn(problem)
        yield Finish(is_last=kind == "eof")

    def begun(self, begin: Begin, grant: Grant) -> tuple[()]:
        self.has_call, self.reader, self.text = True, SampleReader(), ""
        for warning in grant.warnings:
            self.warn(warning)
        return ()

    def write(self, channel: int, update: CallUpdate) -> tuple[()]:
        """Keep an update for the next reply."""
        self.waiting += update.segments
        self.text = update.text
        return ()

    def ended(self) -> Iterator[dict[str, Any]]:
        waiting, self.waiting, self.has_call = self.waiting, [], False
        yield self.reply(result_of(waiting, self.config.words))

    def changed(self, asked: object) -> VoskConfig:
        """Return the settings with a client's changes.

        Raises:
            UserError: for an invalid value, and for one that a call with audio cannot change.
        """
        if not isinstance(asked, dict):
            raise UserError(f"config: expected an object, got {shown(asked)}")
        config = checked(VoskConfig.model_validate, self.config.model_dump() | asked, "config.")
        self.warn(without_effect(unused(asked, config)))
        if self.has_call and config != self.config:
            raise UserError("config: the call has audio already; send a reset first")
        return config

    def warn(self, text: str) -> None:
        """Add a warning to the next reply."""
        if text and text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    def reply(self, value: dict[str, Any]) -> dict[str, Any]:
        warnings, self.warnings = self.warnings, []
        return value | ({"warning": "; ".join(warnings)} if warnings else {})

    def error(self, reason: str, text: str) -> dict[str, Any]:
        return {"error": text, "reason": reason}


def request_of(text: str) -> str:
    """Return the kind of a text message: config, eof or reset.

    Raises:
        UserError: for a message that does not have exactly one of these keys.
    """
    value = object_of(text, ONE_OF)
    kind = next(iter(value), "")
    is_set = kind == "config" or (kind in ("eof", "reset") and value[kind])
    if len(value) != 1 or not is_set:
        raise UserError(f"expected {ONE_OF}, got {shown(text)}")
    return kind


def result_of(segments: list[Segment], has_words: bool) -> dict[str, Any]:
    """Return segments as one result in Vosk's form."""
    text = " ".join(segment.text for segment in segments)
    words = [
        {"conf": word.confidence, "end": word.end, "start": word.start, "word": word.text}
        for segment in segments
        for word in segment.words
    ]
    return {"result": words, "text": text} if words and has_words else {"text": text}

"""The options and the results of Deepgram's protocol, live and for files."""

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

from pydantic import BaseModel, Field
from starlette.datastructures import QueryParams

from asrkit.audio.samples import MAX_RATE, MIN_RATE
from asrkit.errors import UserError
from asrkit.runtime import Word
from asrkit.runtime.words import confidence_of, joined
from asrkit.serve.calls import MOST_CHANNELS
from asrkit.serve.dialects.parsing import checked, without_effect
from asrkit.serve.server import Model, Wish
from asrkit.version import __version__

MODEL = re.compile(r"(nova|enhanced|base|general|whisper|flux)\b[\w.-]*")  # Deepgram's own
SHORTEST_MS = 200  # pause: a shorter one is also within words
REFUSED = {  # options that a client relies on, and why they cannot be had
    "callback": "the server calls no other address: read the response",
    "redact": "the server removes nothing from the text",
}
OFF = ("", "false", "0")


class Options(BaseModel):
    """The options of a request that have an effect."""

    model: Annotated[str, Field(max_length=200)] | None = None
    language: Annotated[str, Field(max_length=100)] = ""
    keyterm: list[Annotated[str, Field(max_length=1000)]] = []
    multichannel: bool = False
    """Whether each channel is recognised alone; otherwise channels are mixed."""

    @property
    def pause_ms(self) -> int | None:
        """Pause that ends a segment, ms; 0: none does; None: the server's."""
        return None

    def wish(self) -> Wish:
        pause_ms = self.pause_ms
        return Wish(self.model, MODEL, self.language, phrases=self.keyterm, pause_ms=pause_ms)


class LiveOptions(Options):
    encoding: Literal["linear16", "mulaw", "alaw"]
    sample_rate: Annotated[int, Field(ge=MIN_RATE, le=MAX_RATE)]
    channels: Annotated[int, Field(ge=1, le=MOST_CHANNELS)] = 1
    interim_results: bool = False
    endpointing: bool | Annotated[int, Field(ge=0, le=60_000)] = True
    """Pause that ends a segment, ms; true: the server's."""

    @property
    def pause_ms(self) -> int | None:
        if isinstance(self.endpointing, bool):
            return None if self.endpointing else 0
        return max(SHORTEST_MS, self.endpointing) if self.endpointing > 0 else 0


class FileOptions(Options):
    utterances: bool = False
    """Whether the result has a list of segments."""


Kind = TypeVar("Kind", bound=Options)


def options_of(kind: type[Kind], query: QueryParams) -> tuple[Kind, list[str]]:
    """Return the options of a request, and warnings about them.

    Raises:
        UserError: for an invalid value, and for an option that the client relies on.
    """
    given: dict[str, Any] = {**query, "keyterm": query.getlist("keyterm")}
    others = [name for name in query if name not in kind.model_fields and name != "token"]
    without = [name for name in others if query[name].lower() not in OFF]
    for name in REFUSED.keys() & without:
        raise UserError(f"{name}: {REFUSED[name]}")
    options = checked(kind.model_validate, given)
    warnings = [*filter(None, [without_effect(without)])]
    pause = given.get("endpointing", "") if kind is LiveOptions else ""
    if pause.isdigit() and 0 < int(pause) < (options.pause_ms or 0):
        warnings.append(f"endpointing {pause} is within words too: {SHORTEST_MS} is used")
    return options, warnings


class About:
    """The identity of a request, as its messages have it.

    Args:
        model: model of the request.
    """

    def __init__(self, model: Model) -> None:
        self.id, self.model_id = str(uuid4()), str(uuid5(NAMESPACE_OID, model.name))
        self.created = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        info = {"name": model.name, "version": __version__, "arch": "asrkit"}
        self.short: dict[str, Any] = {  # metadata of a live result
            "request_id": self.id, "model_info": info, "model_uuid": self.model_id,
        }  # fmt: skip

    def metadata(
        self, sha256: str, duration: float, channels: int, warnings: Sequence[str]
    ) -> dict[str, Any]:
        """Return the metadata of a whole request."""
        more = {"warnings": [*warnings]} if warnings else {}
        return {
            "transaction_key": "deprecated", "request_id": self.id, "sha256": sha256,
            "created": self.created, "duration": round(duration, 3), "channels": channels,
            "models": [self.model_id],
            "model_info": {self.model_id: self.short["model_info"]}, **more,
        }  # fmt: skip


def alternative(words: Sequence[Word]) -> dict[str, Any]:
    """Return the text of words, with each of them."""
    shown = [
        {
            "word": each.text, "start": each.start, "end": each.end,
            "confidence": each.confidence, "punctuated_word": each.text,
        }
        | ({} if each.spaced else {"spaced": False})
        for each in words
    ]  # fmt: skip
    return {"transcript": joined(words), "confidence": confidence_of(words), "words": shown}

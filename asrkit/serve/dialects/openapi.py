"""The OpenAPI description of all addresses except WebSockets, at /openapi.json."""

import re
from collections.abc import Collection
from typing import Any

from asrkit.serve.dialects.deepgram import FileOptions
from asrkit.serve.dialects.openai_files import (
    CHANNELS,
    FORMATS,
    GRANULARITIES,
    NAMES,
    REFERENCES,
)
from asrkit.serve.server import Server
from asrkit.version import __version__

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
PHRASES = TEXT | {"description": "phrases to prefer, separated by commas"}
REFUSALS = {
    400: "A field, a form or a file is invalid",
    404: "The server has no model of this name",
    413: "The file is too large or too long, or takes too long to decode",
    503: "The server is full: try again later",
}


def described(server: Server) -> Schema:
    """Return the description of a server, with the names of its models."""
    upload = {"multipart/form-data": {"schema": form(server)}}
    written = {"application/json": TRANSCRIPTION, "text/plain": TEXT, "text/event-stream": {}}
    options = FileOptions.model_json_schema()["properties"]
    paths: Schema = {
        path: {
            "get": {
                "summary": summary, "responses": responses({kind: schema}, refusals),
                "parameters": [
                    {"name": name, "in": "path", "required": True, "schema": TEXT}
                    for name in re.findall(r"{(\w+)}", path)
                ],
            }
        }
        for path, (summary, kind, schema, *refusals) in ADDRESSES.items()
    } | {
        "/v1/audio/transcriptions": {
            "post": {
                "summary": "The text of an audio file",
                "requestBody": {"required": True, "content": upload},
                "responses": responses(written, REFUSALS),
            }
        },
        "/v1/listen": {
            "post": {
                "summary": "The text of an audio file, as Deepgram's clients ask for it",
                "parameters": [
                    {"name": name, "in": "query", "schema": schema}
                    for name, schema in options.items()
                ],
                "requestBody": {"required": True, "content": {"application/octet-stream": {}}},
                "responses": responses({"application/json": LISTENED}, REFUSALS, LISTEN_ERROR),
            }
        },
    }  # fmt: skip
    description: Schema = {
        "openapi": "3.1.0", "info": {"title": "asrkit", "version": __version__}, "paths": paths,
    }  # fmt: skip
    if server.token is not None:
        description["components"] = {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
        description["security"] = [{"token": []}]
    return description


def responses(
    content: dict[str, Schema], refusals: Collection[int] = (), refused: Schema | None = None
) -> Schema:
    """Return the answers of an address, by status; `refused` is its own form of errors."""
    found: Schema = {
        "200": {
            "description": "Done",
            "content": {kind: {"schema": schema} for kind, schema in content.items()},
        }
    }
    for status in sorted({401, 403, *refusals}):
        what = REFUSALS.get(status, "The token is missing, or a page of another site asks")
        schema = ERROR if refused is None or status not in refusals else refused
        content = {"application/json": {"schema": schema}}
        found[str(status)] = {"description": what, "content": content}
    return found


def form(server: Server) -> Schema:
    """Return the schema of an upload's fields."""
    return record(
        ["file"],
        file={"type": "string", "format": "binary"},
        model={
            "enum": list(server.models),
            "description": "default: the first one, which also replaces OpenAI's models",
        },
        response_format={"enum": list(FORMATS), "default": FORMATS[0]},
        stream={"type": "boolean", "default": False},
        prompt=PHRASES,
        hotwords=PHRASES,
        language=TEXT,
        temperature=TEXT | {"description": "no effect, like the following fields"},
        chunking_strategy=TEXT,
        vad_filter=TEXT,
        **{
            "timestamp_granularities[]": array({"enum": list(GRANULARITIES)}),
            "include[]": array(TEXT),
            REFERENCES: array(TEXT) | {"description": "no effect"},
            "channels": {"enum": list(CHANNELS), "description": "split: each is a speaker"},
            NAMES: array(TEXT) | {"description": "names of the channels of channels=split"},
        },
    ) | {"additionalProperties": False}


def record(required: Collection[str], **properties: Schema) -> Schema:
    """Return the schema of an object with these properties."""
    return {"type": "object", "required": list(required), "properties": properties}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TIMES = {"start": NUMBER, "end": NUMBER}
ID = {"type": ["integer", "string"]}
SPEAKER: dict[str, Schema] = {"channel": {"type": "integer"}, "speaker": TEXT}
TRANSCRIPTION = record(
    ["text", "usage"],
    text=TEXT,
    usage=record(["type", "seconds"], type={"const": "duration"}, seconds={"type": "integer"}),
    task={"const": "transcribe"},
    language=TEXT,
    duration=NUMBER,
    words=array(record(["word", *TIMES], word=TEXT, **TIMES, **SPEAKER)),
    segments=array(record(["id", "text", *TIMES], id=ID, text=TEXT, **TIMES, **SPEAKER)),
    turns=array(record(["text", *TIMES], text=TEXT, **TIMES, **SPEAKER)),
)
VOCABULARY: Schema = {
    "type": ["array", "null"], "items": TEXT,
    "description": "complete list of words that the model can write; null if it writes any word",
}  # fmt: skip
MODEL = record(["id", "object"], id=TEXT, object={"const": "model"}, words=VOCABULARY)
MODELS = record(["object", "data"], object={"const": "list"}, data=array(MODEL))
ERROR = record(
    ["error"], error=record(["message", "type", "code"], message=TEXT, type=TEXT, code=TEXT)
)
WORDS = array(record(["word", *TIMES, "confidence"], word=TEXT, confidence=NUMBER, **TIMES))
HEARD = {"transcript": TEXT, "confidence": NUMBER, "words": WORDS}
LISTENED = record(
    ["metadata", "results"],
    metadata=record(
        ["request_id", "sha256", "created", "duration", "channels", "models"],
        request_id=TEXT, sha256=TEXT, created=TEXT, duration=NUMBER,
        channels={"type": "integer"}, models=array(TEXT), warnings=array(TEXT),
    ),
    results=record(
        ["channels"],
        channels=array(record(["alternatives"], alternatives=array(record([*HEARD], **HEARD)))),
        utterances=array(record([*TIMES, *HEARD], **TIMES, **HEARD)),
    ),
)  # fmt: skip
LISTEN_ERROR = record(["err_code", "err_msg"], err_code=TEXT, err_msg=TEXT)
JSON, PLAIN = "application/json", "text/plain"
# For GET: summary, media type and schema of the answer, and statuses of errors.
ADDRESSES: dict[str, tuple[Any, ...]] = {
    "/healthz": ("Whether the server runs", PLAIN, {}),
    "/readyz": ("Whether the server accepts calls", PLAIN, {}),
    "/metrics": ("Metrics for Prometheus", PLAIN, {}),
    "/schema.json": ("JSON schema of the messages at /v1/stream", JSON, {}),
    "/openapi.json": ("This description", JSON, {}),
    "/v1/models": ("The models that are served", JSON, MODELS),
    "/v1/models/{name}": ("A model that is served", JSON, MODEL, 404),
}

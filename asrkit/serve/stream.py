"""asrkit's own protocol, /v1/stream: a start message, binary audio, partial and final texts.

Messages are those of `asrkit.serve.messages`.
"""

from starlette.websockets import WebSocket

from asrkit.errors import UserError
from asrkit.serve import messages
from asrkit.serve.calls import Call, News
from asrkit.serve.messages import ENCODINGS, Commit, Ended, Error, Partial, Start, Started
from asrkit.serve.server import Server
from asrkit.serve.sockets import both_ways, next_message, put, samples_of, telling


def error(reason: str, message: str) -> str:
    return Error(reason=reason, message=message).model_dump_json()


async def stream(websocket: WebSocket, server: Server) -> None:
    """One call, from its first message to its last."""
    async with telling(websocket, server, error):
        start = await first_message(websocket, server)
        recognizer = await server.recognizer_for(start.hotwords, start.pause_ms)
        with server.call(start.sample_rate, recognizer) as call:
            started = Started(model=server.name, context=recognizer.context)
            await websocket.send_text(started.model_dump_json())
            await both_ways(
                read(websocket, server, call, start), write(websocket, call, start.sample_rate)
            )


async def first_message(websocket: WebSocket, server: Server) -> Start:
    message = await next_message(websocket, server)
    start = messages.parsed(message) if isinstance(message, str) else None
    if not isinstance(start, Start):
        raise UserError("the first message has to be a start")
    return start


async def read(websocket: WebSocket, server: Server, call: Call, start: Start) -> None:
    """Audio and requests of the client, until it ends the call."""
    past, dtype = b"", ENCODINGS[start.encoding]
    while True:
        message = await next_message(websocket, server)
        if isinstance(message, bytes):
            samples, past = samples_of(past, message, dtype)
            await put(call, server, samples, start.sample_rate)
            continue
        asked = messages.parsed(message)
        if isinstance(asked, Start):
            raise UserError("the call has started already")
        if not isinstance(asked, Commit):
            return call.end()
        call.commit()


async def write(websocket: WebSocket, call: Call, sample_rate: int) -> None:
    """What is new to the client, until the call has ended."""
    ack = 0
    while (news := await call.news()) is not None:
        ack = round(news.seconds * sample_rate)
        for message in of(news, ack):
            await websocket.send_text(message.model_dump_json())
    await websocket.send_text(Ended(ack=ack).model_dump_json())


def of(news: News, ack: int) -> list[messages.Message]:
    """The messages of what is new."""
    found: list[messages.Message] = [messages.final(each, ack) for each in news.segments]
    if not news.is_final:
        words = messages.timed(news.words)
        found.append(Partial(text=news.text, stable=news.stable_text, words=words, ack=ack))
    return found

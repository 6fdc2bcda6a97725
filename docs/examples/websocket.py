"""Serve live text to browsers and programs: pip install '.[serve]'; uvicorn websocket:app

A client sends float32 samples at 16 kHz, mono, in packets of any sizes, and an empty packet at the
end. It receives the text after each packet, and the final text.
"""

import asyncio

import numpy as np
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

import asrkit

recognizer = asrkit.load("small-en-alnum")  # shared by all connections


async def recognize(socket: WebSocket) -> None:
    await socket.accept()
    session = recognizer.start(sample_rate=16000)  # one per connection
    while packet := await socket.receive_bytes():
        samples = np.frombuffer(packet, dtype=np.float32)
        partial = await asyncio.to_thread(session.accept, samples)
        await socket.send_json({"text": partial.text, "final": False})
    final = await asyncio.to_thread(session.finish)
    await socket.send_json({"text": final.text, "final": True})
    await socket.close()


app = Starlette(routes=[WebSocketRoute("/", recognize)])

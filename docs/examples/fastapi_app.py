"""Transcribe uploads and live audio in FastAPI: pip install fastapi uvicorn websockets
python-multipart; uvicorn fastapi_app:app

    curl -F file=@a.wav http://127.0.0.1:8000/transcribe

A client of /live sends float32 samples at 16 kHz, mono, in packets of any sizes, and an empty
packet at the end.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

import numpy as np
from fastapi import FastAPI, HTTPException, UploadFile, WebSocket

import asrkit

app = FastAPI()
recognizer = asrkit.load("small-en-alnum")  # shared by all requests and connections


@app.post("/transcribe")
def transcribe(file: UploadFile) -> dict[str, str]:
    """FastAPI runs a `def` (not `async def`) in its thread pool, so the loop stays free."""
    try:
        return {"text": recognizer.transcribe(file.file).text}
    except asrkit.UserError as error:
        raise HTTPException(422, str(error)) from None


async def updates(
    session: asrkit.Session, packets: AsyncIterable[np.ndarray]
) -> AsyncIterator[tuple[str, bool]]:
    """Yield the text after each packet with False, and the final text with True."""
    async for samples in packets:
        yield (await asyncio.to_thread(session.accept, samples)).text, False
    yield (await asyncio.to_thread(session.finish)).text, True


async def packets_of(socket: WebSocket) -> AsyncIterator[np.ndarray]:
    while packet := await socket.receive_bytes():
        yield np.frombuffer(packet, dtype=np.float32)


@app.websocket("/live")
async def live(socket: WebSocket) -> None:
    await socket.accept()
    session = recognizer.start(sample_rate=16000)  # one per connection
    async for text, final in updates(session, packets_of(socket)):
        await socket.send_json({"text": text, "final": final})
    await socket.close()

"""sherpa-onnx behind the messages of /v1/stream, for tools/benchmarks/bench_serve.py.

    asrkit export --model MODEL --chunk-ms 640 --right-ms 0 --format sherpa-onnx --output FOLDER

The server works like the streaming server among sherpa-onnx's examples: it has an event loop and a
thread that decodes all ready streams in one call of `decode_streams`. sherpa-onnx runs wenet-ctc
models one stream at a time.
"""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import sherpa_onnx
from websockets.asyncio.server import ServerConnection, serve

CHUNK, LEFT, FRAME = 16, 4, 640  # as exported; samples of an encoder frame
MORE = 160  # samples: a step begins once a feature frame after its chunk is there
TAIL = np.zeros((CHUNK + 1) * FRAME, np.float32)


class Peer:
    def __init__(self, folder: Path) -> None:
        self.recognizer = sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
            tokens=str(folder / "tokens.txt"), model=str(folder / "model.onnx"),
            chunk_size=CHUNK, num_left_chunks=LEFT, num_threads=1,
        )  # fmt: skip
        features = self.recognizer.config.feat_config
        features.high_freq, features.snip_edges = 8000.0, True
        self.recognizer.recognizer = type(self.recognizer.recognizer)(self.recognizer.config)
        self.thread = ThreadPoolExecutor(1)
        self.ready: dict[Any, asyncio.Future[None]] = {}
        self.wake = asyncio.Event()

    async def decode(self) -> None:
        """Decode all that is ready, again and again."""
        loop = asyncio.get_running_loop()
        while True:
            await self.wake.wait()
            self.wake.clear()
            ready, self.ready = self.ready, {}
            await loop.run_in_executor(self.thread, self.recognizer.decode_streams, list(ready))
            for done in ready.values():
                done.set_result(None)

    async def decoded(self, stream: Any) -> int:
        """Chunks of a stream that were decoded now."""
        count = 0
        while self.recognizer.is_ready(stream):
            done = asyncio.get_running_loop().create_future()
            self.ready[stream] = done
            self.wake.set()
            await done
            count += 1
        return count

    async def call(self, websocket: ServerConnection) -> None:
        stream, chunks = self.recognizer.create_stream(), 0
        await websocket.recv()
        await websocket.send('{"type": "started"}')
        async for message in websocket:
            if isinstance(message, str):
                stream.accept_waveform(16000, TAIL)
                stream.input_finished()
            else:
                samples = np.frombuffer(message, np.int16).astype(np.float32) / 32768
                stream.accept_waveform(16000, samples)
            if count := await self.decoded(stream):
                chunks += count
                text = self.recognizer.get_result(stream)
                recognized = chunks * CHUNK * FRAME + MORE
                answer = {"type": "partial", "text": text, "recognized": recognized}
                await websocket.send(json.dumps(answer))
            if isinstance(message, str):
                break
        text = self.recognizer.get_result(stream)
        await websocket.send(json.dumps({"type": "final", "text": text}))
        await websocket.send('{"type": "ended"}')


async def main() -> None:
    peer = Peer(Path(sys.argv[1]))
    async with serve(peer.call, "127.0.0.1", 0, max_size=None, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"sherpa-onnx {sherpa_onnx.__version__}: http://127.0.0.1:{port}/", file=sys.stderr,
              flush=True)  # fmt: skip
        await peer.decode()


if __name__ == "__main__":
    asyncio.run(main())

"""A pipecat pipeline that recognises a recording with asrkit serve, as Deepgram's client sees it.

pip install 'pipecat-ai[deepgram]' soundfile
asrkit serve
python pipecat_stt.py a.wav
"""

import asyncio
import sys

import soundfile
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.workers.runner import WorkerRunner

SERVER = "http://127.0.0.1:8000"


class Printer(FrameProcessor):
    """Prints final texts; `done` is set by the one that Finalize has asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.done = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            print(frame.text)
            if frame.finalized:
                self.done.set()
        await self.push_frame(frame, direction)


async def recognize(path: str) -> None:
    samples, rate = soundfile.read(path, dtype="int16")
    stt = DeepgramSTTService(
        api_key="none",  # the server's token, if it has one
        base_url=SERVER,
        settings=DeepgramSTTService.Settings(endpointing=False),  # the pipeline ends turns
    )
    printer = Printer()
    worker = PipelineWorker(
        Pipeline([stt, printer]), params=PipelineParams(audio_in_sample_rate=rate)
    )
    runner = WorkerRunner()
    await runner.add_workers(worker)

    async def talk() -> None:
        for at in range(0, len(samples), rate // 50):
            packet = samples[at : at + rate // 50].tobytes()
            await worker.queue_frame(InputAudioRawFrame(packet, rate, 1))
        await worker.queue_frame(VADUserStoppedSpeakingFrame())  # the service sends Finalize
        await asyncio.wait([asyncio.ensure_future(printer.done.wait())], timeout=10.0)
        await worker.queue_frame(EndFrame())

    await asyncio.gather(runner.run(), talk())


if __name__ == "__main__":
    asyncio.run(recognize(sys.argv[1]))

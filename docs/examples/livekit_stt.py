"""LiveKit Agents' speech-to-text over a recording with asrkit serve, as Deepgram's client sees it.

pip install livekit-agents livekit-plugins-deepgram soundfile
asrkit serve
python livekit_stt.py a.wav
"""

import asyncio
import sys

import aiohttp
import soundfile
from livekit import rtc
from livekit.agents.stt import SpeechEventType, SpeechStream
from livekit.plugins import deepgram

SERVER = "http://127.0.0.1:8000/v1/listen"


async def talk(stream: SpeechStream, path: str) -> None:
    samples, rate = soundfile.read(path, dtype="int16")
    for at in range(0, len(samples), rate // 50):
        packet = samples[at : at + rate // 50]
        stream.push_frame(rtc.AudioFrame(packet.tobytes(), rate, 1, len(packet)))
    stream.end_input()


async def recognize(path: str) -> None:
    async with aiohttp.ClientSession() as session:
        stt = deepgram.STT(
            base_url=SERVER, api_key="none", http_session=session, endpointing_ms=600
        )  # api_key: the server's token, if it has one
        async with stt.stream() as stream:
            talking = asyncio.create_task(talk(stream, path))
            async for event in stream:
                if event.type == SpeechEventType.FINAL_TRANSCRIPT:
                    print(event.alternatives[0].text)
            await talking


if __name__ == "__main__":
    asyncio.run(recognize(sys.argv[1]))

"""Files whose channels are speakers, over HTTP: each channel as alone, in every format."""

import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

from asrkit.runtime import Recognizer, formats
from asrkit.serve.server import Limits, Server
from tests.serve.running import serving
from tests.serve.test_stream_channels import NAMES, call_of
from tests.serve.test_transcriptions import client_of

Recordings = list[tuple[Path, np.ndarray]]
SPLIT = {"channels": "split", "known_speaker_names": NAMES}


def file_of(samples: np.ndarray) -> tuple[str, bytes]:
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="wav")
    return "call.wav", file.getvalue()


def test_openai(address: str, served: Recognizer, recordings: Recordings) -> None:
    call = call_of(recordings, 1, 2)
    late = np.zeros((40_000, 1), np.int16)  # the first speaker begins later
    first, second = np.concatenate([late, call[:, :1]]), np.concatenate([call[:, 1:], late])
    call = np.concatenate([first, second], axis=1)
    client, alone = client_of(address), [served.transcribe(each) for each in call.T]
    seconds = len(call) / 16000
    written = [
        formats.Recording(result.words, "", seconds, {}, channel, name)
        for channel, (result, name) in enumerate(zip(alone, NAMES, strict=True))
    ]
    turns = formats.passages_as_json(written)

    def created(form: str, **more: Any) -> Any:
        create: Any = client.audio.transcriptions.create
        more |= {"response_format": form, "extra_body": SPLIT}
        return create(model="small-en-alnum", file=file_of(call), **more)

    for form in ("text", "srt", "vtt"):
        assert created(form) == formats.write("txt" if form == "text" else form, written)
    found = created("json")
    assert found.text == " ".join(turn["text"] for turn in turns)
    assert found.to_dict()["turns"] == turns
    verbose = created("verbose_json", timestamp_granularities=["word", "segment"]).to_dict()
    for channel, (result, name) in enumerate(zip(alone, NAMES, strict=True)):
        words = [each for each in verbose["words"] if each["speaker"] == name]
        assert [(w["word"], w["start"], w["end"]) for w in words] == [w[:3] for w in result.words]
        own = [each for each in verbose["segments"] if each["channel"] == channel]
        assert [(each["text"], each["start"], each["end"]) for each in own] == [
            (each.text, each.spoken, each.spoken_end) for each in result.segments
        ]
    starts = [each["start"] for each in verbose["segments"]]
    assert starts == sorted(starts)
    assert alone[0].segments[0].start == 0.0  # control: its audio begins before its words
    assert alone[0].segments[0].spoken > 2.5
    mixed = client.audio.transcriptions.create(model="small-en-alnum", file=file_of(call))
    assert mixed.text == served.transcribe(call).text  # control
    assert "turns" not in mixed.to_dict()


def test_deepgram(address: str, served: Recognizer, recordings: Recordings) -> None:
    call = call_of(recordings, 1, 2)
    url = f"http://{address}/v1/listen?utterances=true&multichannel="
    found = httpx.post(url + "true", content=file_of(call)[1]).json()
    assert found["metadata"]["channels"] == 2
    texts = [each["alternatives"][0]["transcript"] for each in found["results"]["channels"]]
    alone = [served.transcribe(each) for each in call.T]
    assert texts == [result.text for result in alone]
    said = found["results"]["utterances"]
    for channel, result in enumerate(alone):
        own = [(u["transcript"], u["start"], u["end"]) for u in said if u["channel"] == channel]
        assert own == [
            (each.text, each.spoken, each.spoken_end) for each in result.segments if each.text
        ]
    mixed = httpx.post(url + "false", content=file_of(call)[1]).json()  # control
    assert len(mixed["results"]["channels"]) == 1


def test_channels_are_streams(served: Recognizer) -> None:
    """A file with more of them than the server or a client may have is refused."""
    server = Server({"m": served}, Limits(streams=2))
    with serving(server) as address:
        url = f"http://{address}/v1/audio/transcriptions"
        for channels, status in ((2, 200), (3, 503), (9, 400)):
            files = {"file": file_of(np.zeros((1600, channels), np.int16))}
            answer = httpx.post(url, data={"channels": "split"}, files=files)
            assert answer.status_code == status, answer.text
        assert "at most 8 channels can be split, the file has 9" in answer.text
        assert server.streams == 0

"""Ends of turns in calls: semantic_vad of /v1/realtime, end_of_turn of /v1/stream."""

import json

import numpy as np

import asrkit
from asrkit.model import CTCHead, Network
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import recognizer_of
from asrkit.serve.server import Server
from asrkit.text import END_OF_TURN
from tests.serve.running import serving
from tests.serve.test_realtime import Recordings, completed, talk
from tests.serve.test_stream import answers, converse, in_bytes, start


def eager_to_end() -> ModelFile:
    """small-en-alnum with a label for ends of turns, which has half of the blank's probability."""
    file = load_model("small-en-alnum")
    head = CTCHead(file.model.encoder.dim, file.tokenizer.vocab_size + 1)
    head.copy_labels(file.model.head, *2 * [list(range(file.tokenizer.vocab_size))])
    head.copy_labels(file.model.head, [0], [file.tokenizer.vocab_size])
    network = Network(file.model.encoder, head).eval()
    return file._replace(tokenizer=file.tokenizer.with_label(END_OF_TURN), model=network)


def test_semantic_vad_ends_segments_at_ends_of_turns(recordings: Recordings) -> None:
    parts = [each for _, samples in recordings[:3] for each in (samples, np.zeros(8_000, np.int16))]
    samples = np.concatenate([*parts, np.zeros(40_000, np.int16)])
    model = recognizer_of(eager_to_end(), endpointer=asrkit.Endpointer(1500))
    audio = {"format": {"type": "audio/pcm", "rate": 16000}}
    counts = []
    with serving(Server({"m": model})) as address:
        for vad, options in (
            ({"type": "semantic_vad"}, {"pause_ms": 4000, "end_of_turn": "medium"}),
            (
                {"type": "semantic_vad", "eagerness": "high"},
                {"pause_ms": 2000, "end_of_turn": "high"},
            ),
            ({"type": "server_vad"}, {"pause_ms": 1500}),
        ):
            own = model.decoding._replace(endpointer=asrkit.Endpointer(**options))
            segments = model.with_decoding(own).transcribe(samples).segments
            expected = [each.text for each in segments if each.text]
            sent = [samples.tobytes()] + [b""] * (len(expected) - 1)
            session = {**audio, "turn_detection": vad}
            events = talk(address, session, sent, commit=False)
            assert completed(events) == expected
            assert "eou" not in json.dumps(events)
            counts.append(len(expected))
    assert counts[0] > counts[2]
    assert counts[1] > counts[2]  # the control


def test_ends_of_turns_of_the_callers_own(address: str, recordings: Recordings) -> None:
    """small-en-alnum has no label for them."""
    _, samples = recordings[0]
    messages = answers(start(address, end_of_turn="low"))
    assert messages[-1]["type"] == "error"
    assert "end_of_turn low: this model has no label" in messages[-1]["message"]
    messages = converse(start(address, end_of_turn="off"), list(in_bytes(samples, 0)))
    assert messages[-1]["type"] == "ended"

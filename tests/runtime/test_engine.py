"""Times of frames and of speech where streams begin early."""

from typing import Any

import numpy as np
import pytest
import torch

from asrkit import Endpointer, audio
from asrkit.backends.pytorch import eager
from asrkit.model import Context
from asrkit.runtime import Recognizer
from asrkit.runtime.engine import SpeechDetector, build_engine
from asrkit.search import GreedySearch
from asrkit.text import WordTokenizer
from tests.conftest import PADDED, speech, tiny_model

LETTERS = WordTokenizer(list("abcdefghijk"))


def recognizer_of(subsampling: Any = "conv4", endpointer: Endpointer | None = None) -> Recognizer:
    model = tiny_model(subsampling=subsampling)
    return Recognizer(eager(model, Context(4, 16)), LETTERS, GreedySearch(), endpointer=endpointer)


def packets(samples: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    return np.split(samples, np.cumsum(sizes))


@pytest.mark.parametrize("kind", ["kaldi", "slaney"])
def test_a_sound_has_its_time_where_streams_begin_early(kind: str) -> None:
    """The first encoder frame that a click changes begins before it, and ends after it."""
    model = tiny_model(subsampling=PADDED)
    frontend = audio.build_frontend(kind, 80, 7)
    engine = build_engine(eager(model, Context(1, 0)), frontend, vad=False)
    samples = np.repeat(0.1 * np.random.default_rng(0).normal(size=(1, 32000)), 2, axis=0)
    samples[1, 16000] += 0.5  # at 1 s
    rows, _ = audio.features(engine.frontend, samples, np.array([32000, 32000]))
    feats, past = torch.from_numpy(rows[:, :192]), model.encoder.init_state(2, 0)
    lengths = torch.tensor([192, 192])
    normal = model.encoder.normalize(feats, lengths, past.position, Context(24))
    quiet, click = model.encoder.subsampling(*normal, past.feats, past.hidden)[0]
    first = int((quiet - click).abs().amax(dim=1).gt(1e-9).nonzero()[0])
    begins = (80 * first - engine.frontend.lead_ms) / 1000
    assert begins <= 1.0 < begins + 0.08 + 0.025  # its last window is 25 ms long


@pytest.mark.parametrize("kind", sorted(audio.KINDS))
def test_a_stream_ends_with_the_last_frame_of_its_recording(kind: str) -> None:
    """Some frontends pad the end, so a recording has a frame or two more."""
    backend, frontend = eager(tiny_model(), Context(4, 16)), audio.build_frontend(kind, 80)
    recognizer = Recognizer(backend, LETTERS, GreedySearch(), frontend=frontend)
    stream, samples = recognizer.start().stream, speech(1.0)
    for packet in packets(samples, [700, 3000]):
        stream.append(packet)
    stream.finish()
    whole = samples.astype(np.float64)[None]
    feats, _ = audio.features(stream.engine.frontend, whole, np.array([whole.shape[1]]))
    assert np.array_equal(stream.feats(stream.due), feats[0])


def test_the_speech_detector_is_in_step_where_streams_begin_early() -> None:
    pytest.importorskip("silero_vad")
    recognizer, samples = recognizer_of(PADDED, Endpointer(160, vad=True)), speech(4.0)
    session, found = recognizer.start(), []
    transcript = session.stream.transcript
    append = transcript.append
    transcript.append = lambda *x: found.extend(x[2]) or append(*x)  # type: ignore[method-assign, func-returns-value]
    for packet in packets(samples, [100, 20_000, 7, 12_345]):
        session.accept(packet)
    session.finish()
    detector = SpeechDetector(80)
    _, expected = detector.step(detector.start(), samples)
    assert found == [False, *expected]
    assert any(expected)

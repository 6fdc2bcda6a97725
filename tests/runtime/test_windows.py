"""Full context of long recordings: windows are a function of the samples alone."""

import random

import numpy as np
import pytest

from asrkit import audio
from asrkit.backends.check import difference
from asrkit.config.running import parse_search
from asrkit.model import FULL
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Recognizer, long_audio, recognizer_of
from asrkit.runtime.long_audio import Divider
from tests.conftest import speech, timed
from tests.laws.test_streaming import Recorder, packets
from tests.running import talkative_model

LEFT, LONGEST = 10, 50  # encoder frames of 40 ms


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two seconds, so that seconds of audio have several."""
    monkeypatch.setattr(long_audio, "LEFT_MS", 40 * LEFT)
    monkeypatch.setattr(long_audio, "LONGEST_MS", 40 * LONGEST)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return load_model(talkative_model(tmp_path_factory.mktemp("model") / "m.safetensors", 1.0))


@pytest.fixture(params=["greedy", "prefix_beam"])
def recognizer(request: pytest.FixtureRequest, file: ModelFile) -> Recognizer:
    return recognizer_of(file, FULL, search=parse_search(request.param))


@pytest.fixture
def samples() -> np.ndarray:
    return speech(9.3, seed=3)


def features_of(recognizer: Recognizer, samples: np.ndarray) -> np.ndarray:
    sizes = np.array([len(samples)])
    return audio.features(recognizer.engine.frontend, samples[None], sizes)[0][0]


def by_hand(recognizer: Recognizer, samples: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Log-probabilities and the places of the cuts, by the definition."""
    feats, engine = features_of(recognizer, samples), recognizer.engine
    spec = engine.spec
    total, start, parts, cuts = spec.rate.num_frames(len(feats)), 0, [], []
    while True:
        first, end = max(0, start - LEFT), min(total, start + LONGEST)
        last = len(feats) if end == total else 4 * end + spec.rate.lookahead
        seen = feats[4 * first : last]
        output = engine.step_of([seen], engine.init_state(1))[0][0][start - first :]
        if end == total:
            return np.concatenate([*parts, output]), cuts
        size = Divider(40).size((output.argmax(axis=1) == 0).tolist())
        assert LONGEST // 2 <= size <= LONGEST - LEFT
        parts.append(output[:size])
        start += size
        cuts.append(start)


def test_windows_are_those_of_the_definition(recognizer: Recognizer, samples: np.ndarray) -> None:
    expected, cuts = by_hand(recognizer, samples)
    assert len(cuts) >= 4
    (found,) = recognizer.emissions([samples])
    assert np.array_equal(found, expected)
    feats = features_of(recognizer, samples)  # control: one step over everything is another thing
    engine = recognizer.engine
    assert difference(engine.step_of([feats], engine.init_state(1))[0][0], expected) > 1e-2


@pytest.mark.parametrize("seed", range(3))
def test_streaming_equals_offline_beyond_a_window(
    recognizer: Recognizer, samples: np.ndarray, seed: int
) -> None:
    """In packets, at once, as a row of a batch, and saved and restored in between."""
    expected = timed(recognizer.transcribe(samples))
    assert timed(recognizer.transcribe_batch([samples[:20000], samples])[1]) == expected
    session, draw, early = recognizer.start(), random.Random(seed), 0
    for packet in packets(samples, seed):
        early = max(early, len(session.accept(packet).text))
        if draw.random() < 0.2:
            session = recognizer.restore(session.save())
    final = session.finish()
    assert timed(final) == expected
    assert len(final.text) > early > 0  # text comes a window at a time


@pytest.mark.parametrize("length", [31999, 32000, 32240, 32879, 32880, 33520, 33521, 64000, 7])
def test_recordings_around_the_length_of_a_window(file: ModelFile, length: int) -> None:
    samples, search = speech(6.0)[:length], Recorder()
    session = recognizer_of(file, FULL).with_search(search).start()
    for packet in packets(samples, length):
        session.accept(packet)
    session.finish()
    (offline,) = recognizer_of(file, FULL).emissions([samples])
    streamed = np.concatenate([*search.frames, offline[:0]])
    assert streamed.shape == offline.shape
    assert np.array_equal(streamed, offline)


def test_what_waits_does_not_grow_with_the_recording(file: ModelFile) -> None:
    session = recognizer_of(file, FULL).start()
    stream, most = session.stream, 0
    for _ in range(30):
        session.accept(speech(1.0))
        most = max(most, stream._pending)
    assert 0 < most < 4 * (LONGEST + LEFT) + 200

"""Law 9: a stream that is saved and restored anywhere goes on as if it had not been."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asrkit import Batcher, Endpointer, Recognizer, Result
from asrkit import load as load_recognizer
from asrkit.model import FULL_CONTEXT, EncoderState
from asrkit.runtime import Session
from asrkit.runtime.serialization import SavedStreamError
from tests.conftest import speech
from tests.laws.test_any_configuration import FAST, case
from tests.laws.test_streaming import drain, packets
from tests.running import python, talkative_model


def results(session: Session, parts: list[np.ndarray]) -> Iterator[Result]:
    for part in parts:
        yield session.accept(part)
    yield session.finish()


def batched(batcher: Batcher, parts: list[np.ndarray], rate: int, cut: int | None) -> Result:
    """The result of a stream that is saved and restored before the packet `cut`, or the end."""
    session = batcher.start(rate)
    for i in range(len(parts) + 2):
        if i == cut:
            data = session.save()
            batcher.cancel(session)
            session = batcher.restore(data)
        if i < len(parts):
            session.accept(parts[i])
        elif i == len(parts):
            session.finish()
        if i % 3 == 0:
            batcher.step()
    drain(batcher)
    return session.result


@pytest.mark.parametrize("seed", FAST)
def test_any_configuration_goes_on(seed: int, tmp_path: Path) -> None:
    """Cut anywhere, restored on another recogniser, with every further result the same; and in a
    batcher with what waits there."""
    recognizer, samples, rate, what = case(seed, tmp_path)
    twin = case(seed, tmp_path).recognizer
    print(what)
    parts, draw = list(packets(samples, seed)), random.Random(seed)
    expected = list(results(recognizer.start(rate), parts))
    for cut in sorted({0, *draw.sample(range(len(parts) + 1), min(4, len(parts)))}):
        session = recognizer.start(rate)
        for part in parts[:cut]:
            session.accept(part)
        restored = twin.restore(session.save())
        assert list(results(restored, parts[cut:])) == expected[cut:]
    if recognizer.chunk_size != FULL_CONTEXT:
        whole = batched(Batcher(recognizer), parts, rate, None)
        for cut in {draw.randrange(len(parts) + 1), len(parts) + 1}:
            assert batched(Batcher(recognizer), parts, rate, cut) == whole


SAME: dict[str, Any] = {
    "search": {"kind": "prefix_beam", "beam": 4}, "second_pass": "full",
    "endpointer": Endpointer(300),
}  # fmt: skip


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return load_recognizer("small-en-alnum", **SAME)


def words() -> np.ndarray:
    pause = np.zeros(12000, np.float32)
    return np.concatenate([speech(1.5), pause, speech(1.0, 1), pause])


def test_another_process_goes_on(recognizer: Recognizer, tmp_path: Path) -> None:
    samples = words()
    expected = recognizer.transcribe(samples, hotwords=["seven"])
    session = recognizer.start(hotwords=["seven"])
    session.accept(samples[:40000])
    (tmp_path / "stream").write_bytes(session.save())
    np.save(tmp_path / "rest.npy", samples[40000:])
    program = """
import numpy, torch, asrkit
torch.set_num_threads(1)
recognizer = asrkit.load(
    "small-en-alnum", search={"kind": "prefix_beam", "beam": 4}, second_pass="full",
    endpointer=asrkit.Endpointer(300))
session = recognizer.restore(open("stream", "rb").read())
session.accept(numpy.load("rest.npy"))
print(repr(session.finish()))
"""
    done = python(program, cwd=tmp_path)
    assert done.stdout.strip() == repr(expected), done.stderr


@pytest.mark.parametrize("backend", ["eager", "onnx"])
def test_control_a_number_that_was_changed_is_noticed(backend: str) -> None:
    samples, recognizer = words(), load_recognizer("small-en-alnum", backend=backend)
    session = recognizer.start()
    session.accept(samples[:30000])
    data = session.save()
    state = recognizer.restore(data).stream.state
    for field in map(EncoderState._fields.index, ("keys", "conv", "hidden")):
        restored = recognizer.restore(data)
        other = state[field] + 0.0
        other.reshape(-1)[-7:] += 3.0
        restored.stream.state = (*state[:field], other, *state[field + 1 :])
        same = recognizer.restore(data)
        feats = np.full((64, 80), 15.0, np.float32)
        log_probs = [
            each.stream.engine.step_of([feats], each.stream.state)[0][0]
            for each in (restored, same)
        ]
        assert not np.array_equal(*log_probs)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunk_size": 16}, "chunk_size 8, and this one has 16"),
        ({"left_context": 3}, "left_context"),
        ({"search": "greedy"}, "search"),
        ({"search": {"kind": "prefix_beam", "beam": 5}}, "search.beam '4', and this one has '5'"),
        ({"endpointer": Endpointer(400)}, "endpointer"),
        ({"second_pass": None}, "second_pass"),
        ({"postprocess": "spelled"}, "postprocess"),
    ],
)
def test_another_recogniser_refuses(
    recognizer: Recognizer, options: dict[str, object], named: str
) -> None:
    other = load_recognizer("small-en-alnum", **(SAME | options))
    with pytest.raises(SavedStreamError, match=f"another recogniser, with .*{named}"):
        other.restore(recognizer.start().save())


def test_another_language_model_refuses(tmp_path: Path) -> None:
    """Also where the first 512 words of both have the same scores, and with another weight."""
    model = str(talkative_model(tmp_path / "m.safetensors"))
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefgh"]

    def recognizer(weight: float, last: str, name: str) -> Recognizer:
        path = tmp_path / name
        lines = [f"-3\t{word}" for word in words] + [f"{last}\tja"]
        count = len(lines) + 3
        head = f"\\data\\\nngram 1={count}\n\n\\1-grams:\n-99\t<s>\n-1\t</s>\n-5\t<unk>\n"
        path.write_text(head + "\n".join(lines) + "\n\\end\\\n")
        lm = {"path": str(path), "weight": weight}
        return load_recognizer(model, search="prefix_beam", lm=lm)

    data = recognizer(0.5, "-2", "a.arpa").start().save()
    recognizer(0.5, "-2", "b.arpa").restore(data)  # the same model in another file
    for other in (recognizer(0.5, "-4", "c.arpa"), recognizer(0.6, "-2", "d.arpa")):
        with pytest.raises(SavedStreamError, match=r"another search\.fusion"):
            other.restore(data)


def test_hotwords_of_the_recogniser_are_part_of_it(recognizer: Recognizer) -> None:
    data = recognizer.with_hotwords(["b seven"]).start().save()
    recognizer.with_hotwords(["b seven"]).restore(data)
    for other in (recognizer, recognizer.with_hotwords(["b eight"])):
        with pytest.raises(SavedStreamError, match=r"another search\.fusion"):
            other.restore(data)


def test_changed_bytes_are_refused(recognizer: Recognizer) -> None:
    """Flips and cuts, but not the bytes as they were. `tests/torture` forges the checksum, too."""
    session = recognizer.start(44100, hotwords=["seven"])
    session.accept(speech(2.0, rate=44100))
    data, draw = session.save(), random.Random(0)
    expected = recognizer.restore(data).finish()
    for i in range(80):
        flipped = bytearray(data)
        flipped[draw.randrange(len(data) if i % 2 else 4000)] ^= 1 << draw.randrange(8)
        for bad in (bytes(flipped), data[: draw.randrange(len(data))]):
            with pytest.raises(SavedStreamError, match=r"not a saved|bytes have changed"):
                recognizer.restore(bad)
    assert recognizer.restore(data).finish() == expected


def test_a_saved_call_does_not_grow_but_by_its_text(recognizer: Recognizer) -> None:
    session, sizes = recognizer.start(), []
    for _ in range(12):
        session.accept(words())
        sizes.append(len(session.save()))
    text = [len(repr(session.accept(np.zeros(0, np.float32))))]
    assert max(sizes[6:]) < min(sizes[:6]) + 60_000 + 10 * text[0]
    assert max(sizes) < 900_000

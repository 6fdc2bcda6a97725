"""What a backend says of its network, and what exports say of their frames."""

import json
from typing import Any

import numpy as np
import pytest

from asrkit.audio import Fbank
from asrkit.backends import Backend
from asrkit.backends.backend import Output, Spec, of_step
from asrkit.backends.check import aged, check, probe
from asrkit.backends.export_metadata import Exported, described
from asrkit.backends.pytorch import eager
from asrkit.errors import UserError
from asrkit.export.description import describe
from asrkit.model import FULL, FULL_CONTEXT, Context, FrameRate
from tests.conftest import tiny_model
from tests.test_model_file import a_file


def checked(backend: Backend, plain: Backend) -> None:
    """Check the numbers of a backend against those of another one."""
    frontend = Fbank(80)
    check(backend, probe(plain, frontend), frontend)


@pytest.mark.parametrize(("kind", "factor", "ms"), [("conv4", 4, 40), ("conv8", 8, 80)])
def test_a_spec_is_the_network_in_numbers(kind: str, factor: int, ms: int) -> None:
    model = tiny_model(vocab_size=7, subsampling=kind)
    spec = eager(model, Context(4, 16)).spec
    rate, context = FrameRate(factor), Context(4, 16)
    assert spec == (80, rate, 7, "cpu", "float64", context)
    assert (spec.rate.frame_ms, spec.chunk_frames) == (ms, 4 * factor)
    assert eager(model, Context(FULL_CONTEXT, 16)).spec.context == FULL
    checked(eager(model, Context(4, 16)), eager(model, Context(4, 16)))
    state = eager(model, Context(4, 16)).init_state(2)
    assert aged(state, spec.rate.frame_ms)[-1].tolist() == [0, 3_600_000 // ms]


def test_a_network_in_bfloat16_is_refused() -> None:
    """Its arrays could not be NumPy's; the other half precision runs."""
    model = tiny_model()
    assert eager(model.half(), Context(4, 16)).spec.dtype == "float16"
    with pytest.raises(UserError, match=r"NumPy has no bfloat16: convert the network with model\."):
        eager(model.bfloat16(), Context(4, 16))


@pytest.mark.parametrize(("lookahead", "whole"), [(0, (4, 12, 16)), (5, (9, 9, 13))])
def test_a_recording_is_whole_encoder_frames_in_full_context(
    lookahead: int, whole: tuple[int, ...]
) -> None:
    """Without look-ahead, zeros fill the last frame; with it, frames that fill none are dropped."""
    spec = Spec(80, FrameRate(4, lookahead), 7, "cpu", "float32", FULL)
    sizes = []

    def step(feats: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(feats.shape[1])
        return feats, lengths

    _, run = of_step(step, spec)
    for frames in (1, 12, 16):
        run(np.ones((1, frames, 80), np.float32), np.array([frames]), ())
    assert tuple(sizes) == whole


@pytest.mark.parametrize(
    ("exported", "name", "wrong"),
    [(Exported("ctc", Context(4, 16), 80), "frame_ms", [0, -80, 10**9, "80", None]),
     (Exported("ctc", Context(4, 0)), "left_context", [10**9, -1, True, "4"]),
     (Exported("ctc", FULL), "left_context", [1]),
     (Exported("ctc", FULL), "what", ["encoder"]),
     (Exported("ctc", FULL), "chunk_size", [FULL_CONTEXT + 1])],
)  # fmt: skip
def test_a_description_that_lies(exported: Exported, name: str, wrong: list[object]) -> None:
    values = json.loads(describe(exported, a_file()))
    assert described(json.dumps(values)).exported == exported
    for value in wrong:
        with pytest.raises(ValueError, match=r"damaged|beyond a second|beyond 3000 frames"):
            described(json.dumps(values | {name: value}))


@pytest.mark.parametrize("chunk", [1, 4, 8, 16])
def test_control_a_backend_that_is_wrong_is_noticed(chunk: int) -> None:
    plain = eager(tiny_model(), Context(chunk, 16))

    def wrong_for_32_rows(*given: Any) -> Output:  # as ONNX Runtime before 1.25 with AMX
        output = plain.step(*given)
        rows = output.frames.shape[0] * output.frames.shape[1]
        return output._replace(frames=output.frames + rows // 32)

    def other_lengths(*given: Any) -> Output:  # though frames and states are right
        output = plain.step(*given)
        return output._replace(lengths=output.lengths.clip(max=chunk - 1))

    checked(plain, plain)
    with pytest.raises(UserError, match=r"differs from eager by [1-3]"):
        checked(plain._replace(step=wrong_for_32_rows), plain)
    with pytest.raises(UserError, match="differs from eager by"):
        checked(plain._replace(step=other_lengths), plain)
    eight = eager(tiny_model(subsampling="conv8"), Context(chunk, 16))
    with pytest.raises(UserError, match="differs from eager by inf"):
        checked(eight._replace(spec=plain.spec), plain)

"""The laws of an encoder, measured for one position encoding or another change of its parts.

`test_positions` and `test_shapes` assert the bounds. The measures of streaming have right context,
too.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.backends.check import difference
from asrkit.model import FULL, ConformerEncoder, Context, EncoderState, FrameRate, Step
from asrkit.model.positions import KINDS, FramePosition
from asrkit.model.positions.absolute_keys import AbsoluteKeysPosition
from tests.conftest import tiny_encoder

CHUNKS, LEFT_CONTEXTS = (1, 4, 16, 25), (0, 7, 64)
Steps = tuple[Context, int]  # and the chunks of a step
EVERY_STEP: list[Steps] = [
    (Context(*numbers), at_once)
    for *numbers, at_once in itertools.product(CHUNKS, LEFT_CONTEXTS, (0, 3, 9), (1, 3))
]
STEPS: list[Steps] = [  # every chunk size, left context and step, at a sixth of the cost of all
    (Context(*numbers), at_once)
    for *numbers, at_once in (
        (1, 7, 1), (1, 64, 3), (4, 7, 1), (4, 64, 3), (16, 0, 1), (16, 7, 3), (25, 64, 1),
        (25, 0, 3), (1, 7, 3, 3), (4, 16, 3, 1), (4, 7, 9, 3), (16, 7, 1, 1),
    )
]  # fmt: skip
HOUR = 360_000  # frames; of the encoder it is four of them
# Every kind as it comes, and with distances, periods and shares that bite within the tests' audio.
ABSOLUTE = (FramePosition, AbsoluteKeysPosition)
FLOW = {"kind": "flow"}  # solves its equation in 64 steps at each call: for the slow tests
CHEAPER = {"flow": {"step": 512}}  # two steps for the same period
CASES: list[dict[str, Any]] = [{"kind": kind} | CHEAPER.get(kind, {}) for kind in KINDS] + [
    {"kind": "relative", "max_distance": 5},
    {"kind": "relative_learned", "max_distance": 5},
    {"kind": "shaw", "max_distance": 5},
    {"kind": "shaw", "max_distance": 5, "values": False},
    {"kind": "t5", "num_buckets": 8, "max_distance": 9, "bidirectional": False},
    {"kind": "deberta", "max_distance": 5},
    *({"kind": "urpe", "base": base, "max_distance": 5}
      for base in ("relative_learned", "t5", "alibi", "compact")),
    {"kind": "rotary", "share": 0.4},
    {"kind": "compact", "position_dim": 6, "query_dim": 3, "length_factor": 2.0},
    {"kind": "sinusoidal", "layout": "sep", "embedding_scale": False, "learned_scale": True},
    {"kind": "sinusoidal", "layout": "tensor2tensor", "period": 10},
    {"kind": "learned", "period": 10},
    {"kind": "flow", "hidden_dim": 5, "period": 10, "step": 4},
    FLOW,
]  # fmt: skip


class Law(NamedTuple):
    name: str
    measure: Callable[[dict[str, Any]], float]
    bound: float
    of_absolute: bool = True  # it binds absolute kinds, too
    every_option: bool = True  # it is measured with other options than the defaults, too

    def binds(self, kind: str) -> bool:
        return self.of_absolute or not issubclass(KINDS[kind], ABSOLUTE)

    def cases(self) -> list[dict[str, Any]]:
        return [
            c
            for c in (CASES if self.every_option else CASES[: len(KINDS)])
            if self.binds(c["kind"])
        ]


def changes(case: dict[str, Any]) -> dict[str, Any]:
    """What a case changes of the small encoder."""
    return {"position": case} if "kind" in case else case


def encoder(case: dict[str, Any], dtype: torch.dtype = torch.float64) -> ConformerEncoder:
    return tiny_encoder(num_layers=2, **changes(case)).to(dtype)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, 20, generator=torch.Generator().manual_seed(1), dtype=dtype)


def split_steps(
    feats: Tensor, frames: int, lookahead: int, ahead_frames: int | None = None
) -> Iterator[tuple[Tensor, int]]:
    """Yield the part of (B, T, …) that each step reads, and its number of real frames.

    A part begins `frames` after the part before. The last parts reach beyond the end of the
    stream, so that every frame that was only seen ahead is also returned.

    Args:
        lookahead: feature frames that an encoder frame sees beyond its own.
        ahead_frames: feature frames that a step reads beyond its chunks; `lookahead` if None.
    """
    ahead, total = lookahead if ahead_frames is None else ahead_frames, feats.size(1)
    feats = functional.pad(feats, [0, 0] * (feats.dim() - 2) + [0, ahead - lookahead])
    for start in range(0, max(1, total - lookahead), frames):
        part = feats[:, start : start + frames + ahead]
        yield part, min(part.size(1), total - start)


def stream(encoder: ConformerEncoder, feats: Tensor, context: Context, at_once: int) -> Tensor:
    """Encoder output of steps of `at_once` chunks."""
    chunk_size, left, right = context
    state, outputs = encoder.init_state(len(feats), left), []
    size, ahead = encoder.rate.factor * chunk_size * at_once, encoder.rate.ahead_frames(context)
    for part, length in split_steps(feats, size, encoder.rate.lookahead, ahead):
        lengths = torch.full((len(feats),), length)
        encoded, frames, state = encoder(part, lengths, state, chunk_size, right)
        outputs.append(encoded[:, : int(frames[0])])
    return torch.cat(outputs, dim=1)


def offline(encoder: ConformerEncoder, feats: Tensor, context: Context) -> Tensor:
    """Encoder output of one step, which has as many frames more as are seen ahead."""
    chunk_size, left, right = context
    lengths = torch.full((len(feats),), feats.size(1))
    feats = functional.pad(feats, (0, 0, 0, encoder.rate.factor * right), value=9.0)
    state = encoder.init_state(len(feats), left)
    encoded, frames, _ = encoder(feats, lengths, state, chunk_size, right)
    return encoded[:, : int(frames[0])]


def count(length: int, rate: FrameRate) -> int:
    """Encoder frames of a stream: every group that begins, or every one that is seen whole."""
    if rate.lookahead:
        return max(0, length - rate.lookahead) // rate.factor
    return -(-length // rate.factor)


@torch.no_grad()
def streaming(case: dict[str, Any], dtype: torch.dtype, steps: list[Steps] = STEPS) -> float:
    """Steps of one and of three chunks against one step; 313 frames fill and empty every past.

    101 frames do for steps of a frame and a past of 7.
    """
    module, largest = encoder(case, dtype), 0.0
    for context, at_once in steps:
        for length in (313 if context[:2] != (1, 7) else 101, 5):
            feats = draw(1, length, dtype=dtype)
            expected = offline(module, feats, context)
            assert expected.shape == (1, count(length, module.rate), 24)
            streamed = stream(module, feats, context, at_once)
            largest = max(largest, difference(expected, streamed))
    return largest


@torch.no_grad()
def rows_of_a_batch(case: dict[str, Any]) -> float:
    """Streams at different places step together as they do alone, one of them ends."""
    module, largest = encoder(case), 0.0
    for context in map(Context, (1, 4, 16, 25, 4), (0, 7, 24, 64, 16), (0, 0, 0, 0, 3)):
        chunk, left, right = context
        size, window = module.rate.chunk_frames(context), module.rate.step_frames(context)
        feats, alone, states = draw(2, 2 * size + window), [], []
        ends = torch.tensor([window, window - chunk])
        for row in range(2):
            state = module.init_state(1, left)
            for start in range(0, (row + 1) * size, size):  # row r takes r + 1 chunks
                part = feats[row : row + 1, start : start + window]
                state = module(part, ends[:1], state, chunk, right).state
            states.append(state)
            last = feats[row : row + 1, 2 * size :].clone()
            last[:, ends[row] :] = 0.0
            alone.append(module(last, ends[row : row + 1], state, chunk, right))
        joined = EncoderState(*map(torch.cat, zip(*states, strict=True)))
        together = module(feats[:, 2 * size :], ends, joined, chunk, right)
        for row, output in enumerate(alone):
            frames = int(output.lengths)
            assert int(together.lengths[row]) == frames
            pairs = [(together.frames[row, :frames], output.frames[0, :frames])]
            if row == 0:  # the state of a stream that has ended is not used
                pairs += [(a[0], b[0]) for a, b in zip(together.state, output.state, strict=True)]
            largest = max(largest, *(difference(a, b) for a, b in pairs))
    return largest


REACH = {  # features of a frame, and those before and after its first one that it sees
    "conv4": (4, 3, 3), "conv8": (8, 7, 7), "conv4_valid": (4, 0, 6), "conv6_valid": (6, 0, 10),
    "conv8_valid": (8, 0, 14), "whisper": (2, 2, 2),
}  # fmt: skip
SEEING = [  # contexts, and the frame whose gradient is taken
    (Context(1), 50), (Context(1, 3), 99), (Context(4), 40), (Context(4, 7), 43),
    (Context(16, 5), 64), (Context(25, 10), 99), (Context(4, 16, 2), 41), (FULL, 3),
]  # fmt: skip


def reach(case: dict[str, Any], seen: int = 0) -> float:
    """The gradient of a frame by features that it must not see; infinite if it sees fewer.

    From the output down, in each layer: the convolution looks 4 frames back from the attention's
    output; attention from a frame's chunk to M frames before it, and R after it.

    Args:
        seen: left context beyond that of the formula, for the control.
    """
    module, largest = encoder(case), 0.0
    kind = case.get("subsampling", "conv4")
    options = kind if isinstance(kind, dict) else {"kind": kind}
    factor, before, after = REACH[options["kind"]]
    if "stride" in options:
        factor, before, after = options["stride"], 2, options["stride"]
    back = 0 if case.get("layer") == "transformer" else 4
    length = 100 * factor + module.rate.lookahead
    for (chunk, left, right), frame in SEEING:
        feats = draw(1, length).requires_grad_()
        state = module.init_state(1, left + seen)
        encoded = module(feats, torch.tensor([length]), state, chunk, right).frames
        (encoded[0, frame] * torch.randn(24, dtype=torch.float64)).sum().backward()
        assert feats.grad is not None
        first = frame
        for _ in module.layers:
            first = max(0, first - back)
            first = max(0, first - first % chunk - left)
        last = frame - frame % chunk + chunk - 1 + right
        slopes = feats.grad[0].abs().amax(dim=1)
        inside = slice(
            max(module.rate.lead_frames, factor * first - before), factor * last + after + 1
        )
        if not slopes[inside].min() > 0:
            return math.inf
        slopes[inside] = 0.0
        largest = max(largest, float(slopes.max()))
    return largest


def gradients(case: dict[str, Any]) -> float:
    """0 if derivatives of random directions are central differences, else infinite.

    For the features and all weights with `relative` as it comes; with other encodings, whose
    further layers are the same, for the features and the weights of attention. In a long step a
    ReLU may turn over, a short one has few digits.
    """
    module, lengths = encoder(case), torch.tensor([90, 41])
    feats, weights = draw(2, 90), torch.randn(2, 23, 24, dtype=torch.float64)

    def value(*_: Tensor) -> Tensor:
        encoded = module(feats, lengths, module.init_state(2, 7), 4).frames
        return (encoded * weights)[0].sum() + (encoded * weights)[1, :11].sum()

    every = case.get("kind", "relative") == "relative" and len(case) == 1
    named = module.named_parameters()
    weights_of = [p for name, p in named if every or "attention" in name or "position" in name]
    same = all(
        any(
            torch.autograd.gradcheck(
                value, parameter, eps=step, atol=3e-10, rtol=1e-6, fast_mode=True,
                raise_exception=False, check_undefined_grad=False, nondet_tol=1e-9,
            )
            for step in (1e-5, 1e-4, 1e-6)
        )
        for parameter in (feats.requires_grad_(), *weights_of)
    )  # fmt: skip
    return 0.0 if same else math.inf


def torchscript(case: dict[str, Any]) -> float:
    step = Step(tiny_encoder(num_layers=1, **changes(case)), None, Context(16, 24))
    return replayed(step, torch.jit.script(step))


@torch.no_grad()
def replayed(step: Step, other: Callable[..., Any]) -> float:
    """Largest difference of outputs and states over three steps of two streams."""
    feats, lengths = draw(2, 192), torch.tensor([64, 64])
    ours, theirs, largest = step.init_state(2), step.init_state(2), 0.0
    for part in feats.split(64, dim=1):
        encoded, _, ours = step(part, lengths, ours)
        again, _, theirs = other(part, lengths, theirs)
        theirs = EncoderState(*theirs)
        pairs = zip([encoded, *ours], [again, *theirs], strict=True)
        largest = max(largest, *(difference(a, b) for a, b in pairs))
    return largest


def half_precision(case: dict[str, Any]) -> float:
    """0 if float16, bfloat16 and autocast stay finite, also in a row of which nothing is real."""
    kinds = [(torch.float16, False), (torch.bfloat16, False), (torch.float32, True)]
    for (dtype, cast), (chunk, left) in itertools.product(kinds, [(4, 7), FULL[:2]]):
        module, feats = encoder(case, dtype), draw(2, 128, dtype=dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            state = module.init_state(2, left)
            encoded = module(feats, torch.tensor([128, 0]), state, chunk).frames
        if cast:
            encoded.float().square().sum().backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        if not all(torch.isfinite(x).all() for x in [encoded, *grads]):
            return math.inf
    return 0.0


def padded_rows(case: dict[str, Any]) -> float:
    """Rows of all lengths, with padding of any value, against each row alone.

    Infinite if a number, its gradient included, is not finite.
    """
    module, largest = encoder(case), 0.0
    lengths = torch.tensor([213, 200, 64, 5, 1, 0])
    for context in (Context(4, 7), Context(16, 5, 3), FULL):
        chunk, left, right = context
        feats = draw(6, 213 + right * module.rate.factor)
        for row, length in zip(feats, lengths.tolist(), strict=True):
            row[length:] = 1e4
        output = module(feats.requires_grad_(), lengths, module.init_state(6, left), chunk, right)
        assert output.lengths.tolist() == [count(each, module.rate) for each in lengths.tolist()]
        output.frames.sum().backward()
        grads = [p.grad for p in (feats, *module.parameters()) if p.grad is not None]
        if not all(torch.isfinite(each).all() for each in [output.frames, *grads]):
            return math.inf
        for row, length in enumerate(lengths.tolist()):
            with torch.no_grad():
                alone = offline(module, feats[row : row + 1, :length], context)[0]
            if len(alone):
                largest = max(largest, difference(output.frames[row, : len(alone)].detach(), alone))
    return largest


@torch.no_grad()
def hour_later(case: dict[str, Any]) -> float:
    """The same chunk with the same past, now and an hour later, in float32."""
    module, feats = encoder(case, torch.float32), draw(1, 192, dtype=torch.float32)
    state, lengths = module.init_state(1, 24), torch.tensor([128])
    state = module(feats[:, :128], lengths, state, 16).state
    later = state._replace(position=state.position + HOUR)
    now, then = (module(feats[:, 128:], lengths // 2, s, 16).frames for s in (state, later))
    return difference(now, then)


LAWS = [
    Law("streaming, float64", partial(streaming, dtype=torch.float64), 1e-9),
    Law("streaming, float32", partial(streaming, dtype=torch.float32), 1e-4, every_option=False),
    Law("rows of a batch", rows_of_a_batch, 1e-9),
    Law("reach", reach, 0.0, every_option=False),
    Law("gradients", gradients, 1e-6),
    Law("TorchScript", torchscript, 1e-9),
    Law("half precision", half_precision, 0.0),
    Law("padded rows", padded_rows, 1e-9),
    Law("an hour later", hour_later, 1e-5, of_absolute=False),
]

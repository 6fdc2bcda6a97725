"""What the laws measure on an encoder with one position encoding; `test_positions` bounds it.

`test_shapes` bounds it for other changes of the encoder, which are cases without a "kind".
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrkit import audio
from asrkit.backends import eager
from asrkit.backends.check import difference
from asrkit.model import FULL_CONTEXT, ConformerEncoder, Context, EncoderState, Step
from asrkit.model.positions import KINDS, FramePosition
from asrkit.model.positions.absolute_keys import AbsoluteKeysPosition
from asrkit.runtime import Recognizer
from asrkit.text import CharTokenizer
from tests.conftest import fitted, speech, timed, tiny_encoder, tiny_model
from tests.laws.test_streaming import CHUNKS, LEFT_CONTEXTS, Recorder, offline, packets, stream

Steps = tuple[int, int, int]  # chunk size, left context, chunks of a step
EVERY_STEP: list[Steps] = list(itertools.product(CHUNKS, LEFT_CONTEXTS, (1, 3)))
STEPS: list[Steps] = [  # every chunk size, left context and step, at a sixth of the cost of all
    (1, 7, 1), (1, 64, 3), (4, 7, 1), (4, 64, 3), (16, 0, 1), (16, 7, 3), (25, 64, 1), (25, 0, 3),
]  # fmt: skip
EXPORTED = ("shaw", "rotary")  # torch.export of each takes 1.5 s; test_backends has `relative`

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
    {"kind": "sinusoidal", "layout": "sep", "embedding_scale": False, "learned_scale": True,
     "embedding_layernorm": True},
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
    fast_kinds: tuple[str, ...] = tuple(KINDS)  # others, and options, are left to the slow tests

    def binds(self, kind: str) -> bool:
        return self.of_absolute or not issubclass(KINDS[kind], ABSOLUTE)

    def cases(self) -> list[dict[str, Any]]:
        return [
            c
            for c in (CASES if self.every_option else CASES[: len(KINDS)])
            if self.binds(c["kind"])
        ]

    def is_slow(self, case: dict[str, Any]) -> bool:
        if self.fast_kinds == tuple(KINDS):
            return case == FLOW
        return case["kind"] not in self.fast_kinds or case not in CASES[: len(KINDS)]


def changes(case: dict[str, Any]) -> dict[str, Any]:
    """What a case changes of the small encoder."""
    return {"position": case} if "kind" in case else case


def encoder(case: dict[str, Any], dtype: torch.dtype = torch.float64) -> ConformerEncoder:
    return tiny_encoder(num_layers=2, **changes(case)).to(dtype)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, 20, generator=torch.Generator().manual_seed(1), dtype=dtype)


@torch.no_grad()
def streaming(case: dict[str, Any], dtype: torch.dtype, steps: list[Steps] = STEPS) -> float:
    """Steps of one and of three chunks against one step; 79 frames fill and empty every past.

    25 frames do for steps of a frame and a past of 7.
    """
    module, largest = encoder(case, dtype), 0.0
    for chunk, left, several in steps:
        feats = draw(1, 313 if (chunk, left) != (1, 7) else 101, dtype=dtype)
        streamed = stream(module, feats, chunk, left, several)
        largest = max(largest, difference(offline(module, feats, chunk, left), streamed))
    return largest


def streaming_float64(case: dict[str, Any]) -> float:
    return streaming(case, torch.float64)


def streaming_float32(case: dict[str, Any]) -> float:
    return streaming(case, torch.float32)


def samples_to_text(case: dict[str, Any]) -> float:
    """Packets of random sizes against all samples at once; infinite if the text differs."""
    samples, largest = speech(3.21), 0.0
    whole = torch.from_numpy(samples).double()[None]
    feats = audio.Fbank().double()(whole, whole[:, :0])[0]
    for seed, (chunk, left) in enumerate([(1, 0), (4, 7), (16, 64), (FULL_CONTEXT, 0)]):
        model = fitted(tiny_model(**changes(case)), feats, chunk, left)
        results, log_probs = [], []
        for given in ([samples], packets(samples, seed)):
            search = Recorder()
            tokenizer = CharTokenizer(list("abcdefghij "))
            session = Recognizer(eager(model, Context(chunk, left)), tokenizer, search).start()
            for packet in given:
                session.accept(packet)
            results.append(timed(session.finish()))
            log_probs.append(torch.cat(search.frames))
        same = results[0] == results[1] and len(results[0][0]) > 4
        largest = max(largest, difference(*log_probs) if same else math.inf)
    return largest


@torch.no_grad()
def rows_of_a_batch(case: dict[str, Any]) -> float:
    """Streams at different places step together as they do alone, one of them ends."""
    module, largest = encoder(case), 0.0
    for chunk, left in ((1, 0), (4, 7), (16, 24), (25, 64)):
        feats, lengths = draw(2, 12 * chunk), torch.tensor([4 * chunk])
        alone, states = [], []
        for row in range(2):
            state = module.init_state(1, left)
            for part in feats[row : row + 1].split(4 * chunk, dim=1)[: row + 1]:
                state = module(part, lengths, state, chunk).state  # row r takes r + 1 chunks
            states.append(state)
            last = feats[row : row + 1, 8 * chunk : (12 - row) * chunk]
            alone.append(module(last, torch.tensor([last.size(1)]), state, chunk).frames[0])
        joined = EncoderState(*map(torch.cat, zip(*states, strict=True)))
        ends = torch.tensor([4 * chunk, 3 * chunk])
        together = module(feats[:, 8 * chunk :], ends, joined, chunk).frames
        pairs = zip(together, alone, strict=True)
        largest = max(largest, *(difference(row[: len(one)], one) for row, one in pairs))
    return largest


def reach(case: dict[str, Any]) -> float:
    """The gradient of a frame with respect to features beyond its chunk or before its reach."""
    module, feats = encoder(case), draw(1, 400).requires_grad_()
    encoded = module(feats, torch.tensor([400]), module.init_state(1, 5), 4).frames
    (encoded[0, 62] * torch.randn(24, dtype=torch.float64)).sum().backward()
    assert feats.grad is not None
    first = 62
    for _ in range(2):  # layers: the convolution's 4 frames, then chunk and left context
        first = (first - 4) - (first - 4) % 4 - 5
    outside = torch.cat([feats.grad[0, : 4 * first - 3], feats.grad[0, 4 * 63 + 4 :]])
    assert feats.grad[0, 4 * first - 3 : 4 * 63 + 4].abs().amax(dim=1).min() > 0
    return float(outside.abs().max())


def gradients(case: dict[str, Any]) -> float:
    """Derivatives of random directions against central differences, relative.

    For the features and all weights with `relative` as it comes; with other encodings, whose
    further layers are the same, for the features and the weights of attention.
    """
    module, lengths = encoder(case), torch.tensor([90, 41])
    feats, weights = draw(2, 90), torch.randn(2, 23, 24, dtype=torch.float64)

    def value() -> Tensor:
        encoded = module(feats, lengths, module.init_state(2, 7), 4).frames
        return (encoded * weights)[0].sum() + (encoded * weights)[1, :11].sum()

    every = case.get("kind", "relative") == "relative" and len(case) == 1
    named = module.named_parameters()
    weights_of = [p for name, p in named if every or "attention" in name or "position" in name]
    parameters = [feats.requires_grad_(), *weights_of]
    grads = torch.autograd.grad(value(), parameters, allow_unused=True)
    return max(
        best(slope_error(value, p, grad, step) for step in (1e-7, 1e-6, 1e-8))
        for p, grad in zip(parameters, grads, strict=True)
    )


def best(errors: Iterator[float]) -> float:
    """The smallest, or the first that is small enough.

    In a long step a ReLU may turn over, a short one has few digits.
    """
    smallest = math.inf
    for error in errors:
        smallest = min(smallest, error)
        if smallest < 1e-7:
            break
    return smallest


@torch.no_grad()
def slope_error(
    value: Callable[[], Tensor], parameter: Tensor, grad: Tensor | None, step: float
) -> float:
    direction = torch.randn(
        parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    parameter.add_(step * direction)
    above = value()
    parameter.sub_(2 * step * direction)
    numeric = (above - value()) / (2 * step)
    parameter.add_(step * direction)
    analytic = torch.zeros(()) if grad is None else (grad * direction).sum()
    return float((analytic - numeric).abs() / (1.0 + numeric.abs()))


def torchscript(case: dict[str, Any]) -> float:
    step = Step(tiny_encoder(num_layers=1, **changes(case)), None, Context(16, 24))
    return replayed(step, torch.jit.script(step))


def torch_export(case: dict[str, Any]) -> float:
    """Exported with a batch of three and any batch allowed, run with two."""
    step = Step(tiny_encoder(num_layers=1, **changes(case)), None, Context(16, 24))
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    state = step.init_state(3)
    shapes = (batch, batch, EncoderState(*[batch] * len(state)))
    arguments = (draw(3, 64), torch.tensor([64, 64, 9]), state)
    return replayed(step, torch.export.export(step, arguments, dynamic_shapes=shapes).module())


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
    for (dtype, cast), (chunk, left) in itertools.product(kinds, [(4, 7), (FULL_CONTEXT, 0)]):
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
    """0 if forward and backward stay finite where rows are short or empty."""
    module, feats = encoder(case), draw(3, 128).requires_grad_()
    state = module.init_state(3, 7)
    encoded = module(feats, torch.tensor([128, 33, 0]), state, 4).frames
    encoded.sum().backward()
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    finite = all(torch.isfinite(x).all() for x in [encoded, feats.grad, *grads])  # type: ignore[arg-type]
    return 0.0 if finite else math.inf


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
    Law("streaming, float64", streaming_float64, 1e-9),
    Law("streaming, float32", streaming_float32, 1e-4, every_option=False),
    Law("samples to text", samples_to_text, 1e-9, every_option=False),
    Law("rows of a batch", rows_of_a_batch, 1e-9),
    Law("reach", reach, 0.0, every_option=False),
    Law("gradients", gradients, 1e-6),
    Law("TorchScript", torchscript, 1e-9),
    Law("torch.export", torch_export, 1e-9, fast_kinds=EXPORTED),
    Law("half precision", half_precision, 0.0),
    Law("padded rows", padded_rows, 0.0),
    Law("an hour later", hour_later, 1e-5, of_absolute=False),
]

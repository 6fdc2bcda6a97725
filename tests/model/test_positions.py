"""Position encodings against the loops of `reference`; what is particular to a kind, or refused."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asrkit.model import Context
from asrkit.model.attention import ChunkAttention, LayerStep
from asrkit.model.chunks import valid_keys
from asrkit.model.positions import KINDS, build_positions
from asrkit.model.positions.bias import ALiBiPosition, T5Position
from tests.model import reference

DIM, FRAMES = 12, 16
SHAPES = [(1, 0), (1, 5), (4, 0), (4, 3), (4, 9), (FRAMES, 0)]  # chunk, left
NEAR = {"max_distance": 3}  # near enough that distances are clipped

Case = tuple[str, dict[str, Any], int]  # kind, options, heads
ATTENTION: list[Case] = [
    ("none", {}, 2),
    ("relative", {}, 2), ("relative", NEAR, 3), ("relative_learned", NEAR, 2),
    ("shaw", NEAR, 2), ("shaw", NEAR | {"values": False}, 3),
    ("t5", {}, 2), ("t5", {"num_buckets": 8, "max_distance": 9}, 3),
    ("t5", {"num_buckets": 6, "max_distance": 5}, 2),
    ("t5", {"num_buckets": 5, "max_distance": 8, "bidirectional": False}, 2),
    ("t5", {"num_buckets": 2, "max_distance": 3, "bidirectional": False}, 2),
    ("alibi", {}, 3), ("alibi", {}, 4),
    ("deberta", NEAR, 2), ("deberta", {}, 3),
    *(("urpe", NEAR | {"base": base}, 2)
      for base in ("relative", "relative_learned", "t5", "alibi", "compact")),
    ("rotary", {}, 2), ("rotary", {"share": 0.5, "base": 100.0}, 3),
    ("compact", {}, 2),
    ("compact", {"position_dim": 6, "query_dim": 3, "length_factor": 2.0}, 3),
    ("absolute_keys", {}, 2),
]  # fmt: skip
ON_FRAMES: list[tuple[str, dict[str, Any]]] = [
    ("sinusoidal", {}),
    ("sinusoidal", {"layout": "sep", "embedding_scale": False, "initial_scale": 0.7}),
    ("sinusoidal", {"learned_scale": True}),
    ("learned", {"period": 5}),
    ("flow", {"hidden_dim": 5, "period": 8, "step": 3}),
    ("flow", {"hidden_dim": 5, "period": 7, "step": 16}),
    ("complex", {}),
]


def each(cases: list) -> pytest.MarkDecorator:
    def label(case: tuple) -> str:
        return " ".join(str(part) for part in case if not callable(part))

    return pytest.mark.parametrize("case", cases, ids=label)


def drawn(module: nn.Module) -> Any:
    """In float64, with every learned number away from where it begins."""
    for parameter in module.double().eval().parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.5)
    return module


def attention(kind: str, given: dict[str, Any], heads: int, dim: int = DIM) -> ChunkAttention:
    torch.manual_seed(0)
    _, [position] = build_positions({"kind": kind} | given, dim, heads, 1)
    return drawn(ChunkAttention(dim, heads, 0.0, position))


def on_frames(kind: str, given: dict[str, Any], dim: int = DIM) -> Any:
    torch.manual_seed(0)
    return drawn(build_positions({"kind": kind} | given, dim, 2, 1)[0])


def frames(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, requires_grad=True)


def blocks(module: ChunkAttention, x: Tensor, chunk: int, left: int) -> Tensor:
    heads, length = module.num_heads, torch.tensor([x.size(0)])
    position, size = module.position, x.size(1) // heads
    past = torch.zeros(1, heads, left, size + position.extra_key_dim, dtype=torch.float64)
    of_frames, start = position.on_frames(x.size(1)), torch.zeros(1, dtype=torch.int64)
    vectors = of_frames.vectors(x[None], start, of_frames.table(x))
    valid = valid_keys(start, length, Context(chunk, left), x.size(0))
    table = position.table(left, chunk, x)
    step = LayerStep(valid, vectors, 0)
    return module(x[None], step, table, past, past[..., :size])[0][0]


def marked(position: Any, x: Tensor, starts: list[int]) -> Tensor:
    return position(x, torch.tensor(starts), position.table(x))


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def gradients(module: nn.Module, x: Tensor, output: Tensor) -> dict[str, Tensor]:
    """Of one fixed linear function of the output."""
    weights = torch.arange(output.numel(), dtype=torch.float64).sin().view(output.shape)
    learned = {"x": x} | {name: p for name, p in module.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad((output * weights).sum(), list(learned.values()))
    return dict(zip(learned, grads, strict=True))


def compare(module: nn.Module, x: Tensor, output: Tensor, expected: Tensor) -> dict[str, Tensor]:
    """Output and gradients are the same; the latter are given back."""
    assert distance(output, expected) < 1e-9
    grads, expected_grads = gradients(module, x, output), gradients(module, x, expected)
    errors = {name: distance(grads[name], wanted) for name, wanted in expected_grads.items()}
    assert errors == pytest.approx(dict.fromkeys(errors, 0.0), abs=1e-9)
    return grads


def test_every_kind_is_here() -> None:
    assert {kind for kind, *_ in ATTENTION} | {kind for kind, _ in ON_FRAMES} == KINDS.keys()


@pytest.mark.parametrize(("chunk", "left"), SHAPES)
@each(ATTENTION)
def test_attention(case: Case, chunk: int, left: int) -> None:
    module, x = attention(*case), frames(FRAMES, DIM)
    expected = reference.attend(module, x, chunk, left)
    grads = compare(module, x, blocks(module, x, chunk, left), expected)
    if chunk > 1:  # a single key has all of the weight
        assert all(g.abs().max() > 1e-4 for name, g in grads.items() if "position" in name)


@each(ON_FRAMES)
def test_frames(case: tuple) -> None:
    position, x = on_frames(*case), frames(2, FRAMES, DIM)
    before = x.detach().clone()
    output = marked(position, x, [0, 7])
    compare(position, x, output, reference.mark(position, x, [0, 7]))
    assert torch.equal(x, before)
    assert output.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@each(ATTENTION)
def test_tiles(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = attention(*case), frames(FRAMES, DIM)
    whole = [blocks(module, x, chunk, left) for chunk, left in SHAPES]
    monkeypatch.setattr(module, "max_rows", 3)
    if case[0] == "deberta":
        monkeypatch.setattr(module.position, "max_keys", 2)
    for (chunk, left), expected in zip(SHAPES, whole, strict=True):
        compare(module, x, blocks(module, x, chunk, left), expected)


# Controls: what a wrong implementation would do has to be noticed.
PLACES: dict[str, reference.Place] = {
    "no shift": lambda i, j, begin: (begin, j),
    "one off": lambda i, j, begin: (i + 1, j),
    "exchanged": lambda i, j, begin: (j, i),
    "unsigned": lambda i, j, begin: (abs(i - j), 0),
}


@pytest.mark.parametrize("place", PLACES)
@each(ATTENTION[1:])
def test_control_place(case: Case, place: str) -> None:
    module, x = attention(*case), frames(12, DIM)
    error = distance(blocks(module, x, 4, 3), reference.attend(module, x, 4, 3, PLACES[place]))
    same = {"alibi": ("exchanged", "unsigned"), "absolute_keys": ("no shift", "one off")}
    assert error < 1e-9 if place in same.get(case[0], ()) else error > 1e-3


HALVES = [0, 3, 1, 4, 2, 5]
FORMULAS: list[tuple[str, str, Any, Any]] = [  # kind, what is wrong, score, value
    ("deberta", "δ(i, j) in the last term too", lambda p, q, k, i, j, head:
     reference.deberta(p, q, k, i, j, head) - reference.deberta(p, 0 * q, k, i, j, head)
     + reference.deberta(p, 0 * q, k, j, i, head), None),
    ("urpe", "the factor on the scores", lambda p, q, k, *at:
     reference.urpe_value(p, reference.urpe(p, q, k, *at), *at), lambda p, v, *at: v),
    ("shaw", "no value term", reference.shaw, lambda p, v, *at: v),
    ("shaw", "values the other way round", reference.shaw, lambda p, v, i, j, head:
     reference.shaw_value(p, v, j, i, head)),
    ("alibi", "by the key's place", lambda p, q, k, i, j, head:
     reference.none(p, q, k, i, j, head) + p.slopes[head] * j, None),
    ("rotary", "pairs half a head apart", lambda p, q, k, *at:
     reference.rotary(p, q[HALVES], k[HALVES], *at), None),
    ("absolute_keys", "by the distance", lambda p, q, k, i, j, head:
     reference.absolute_keys(p, q, k, i, i - j, head), None),
    ("compact", "the position's score divided too", lambda p, q, k, *at:
     reference.compact(p, torch.cat([q[:6], q[6:] / 6**0.5]), k, *at), None),
]  # fmt: skip


@each(FORMULAS)
def test_control_formula(case: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, _, score, value = case
    module, x = attention(kind, {}, 2), frames(12, DIM)
    assert distance(blocks(module, x, 4, 3), reference.attend(module, x, 4, 3)) < 1e-9
    monkeypatch.setitem(reference.SCORES, kind, score)
    if value is not None:
        monkeypatch.setitem(reference.VALUES, kind, value)
    assert distance(blocks(module, x, 4, 3), reference.attend(module, x, 4, 3)) > 1e-3


WRONG_FRAMES: list[tuple[str, dict[str, Any], Any]] = [
    ("sinusoidal", {"embedding_scale": False}, lambda p, x, t:
     x + p.scale * reference.sinusoid(t, DIM).flip(0)),
    ("learned", {"period": 5}, lambda p, x, t: x + p.embeddings[min(t, 4)]),
    ("flow", {"period": 8}, lambda p, x, t: x + p.start),
    ("complex", {}, lambda p, x, t: reference.complex_order(p, x, -t)),
]  # fmt: skip


@each(WRONG_FRAMES)
def test_control_frames(case: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, given, wrong = case
    position, x = on_frames(kind, given), frames(2, 12, DIM)
    output = marked(position, x, [0, 7])
    assert distance(output, reference.mark(position, x, [0, 7])) < 1e-9
    for starts in ([0, 0], [1, 8]):  # no counter; one off
        assert distance(output, reference.mark(position, x, starts)) > 1e-3
    monkeypatch.setitem(reference.FRAMES, kind, wrong)
    assert distance(output, reference.mark(position, x, [0, 7])) > 1e-3


BUCKETS = [
    (32, 128, True), (34, 27, True), (38, 49, True), (64, 81, True), (8, 9, True), (6, 5, True),
    (4, 2, True), (32, 128, False), (12, 81, False), (5, 8, False), (2, 3, False),
]  # fmt: skip


@each(BUCKETS)
def test_t5_buckets(case: tuple) -> None:
    """With (34, 27, True), logs in float32 put distance 18 into bucket 13."""
    ahead = range(-300, 301)
    buckets = T5Position(DIM, 2, *case).buckets(torch.tensor(ahead)).tolist()
    assert buckets == [reference.t5_bucket(d, *case) for d in ahead]
    assert len(set(buckets)) == case[0] - case[2]  # no key ahead is 0 ahead


@pytest.mark.parametrize("heads", reference.ALIBI_EXPONENTS)
def test_alibi_slopes(heads: int) -> None:
    expected = [2**-exponent for exponent in reference.ALIBI_EXPONENTS[heads]]
    assert ALiBiPosition(DIM, heads).slopes == pytest.approx(expected, rel=1e-15)


@each(ON_FRAMES)
def test_a_million_frames_later(case: tuple) -> None:
    position, x, starts = on_frames(*case).float(), torch.randn(2, 3, DIM), [10**6, 10**6 + 12345]
    expected = reference.mark(copy.deepcopy(position).double(), x.double(), starts)
    assert distance(marked(position, x, starts), expected) < 1e-5


REFUSALS = [  # kind, options, message
    ("rotory", {}, f"position must be one of {', '.join(KINDS)}, got 'rotory'; did .* 'rotary'"),
    ("xyz", {}, "position must .*, got 'xyz'$"),
    *(("t5", {"num_buckets": number}, f".* must be an even number of 4 or more, got {number}$")
      for number in (2, 7)),
    ("t5", {"num_buckets": 1, "bidirectional": False}, "num_buckets must be 2 or more, got 1$"),
    ("t5", {"max_distance": 8}, "max_distance must be above 8, the distances .*, got 8$"),
    *(("rotary", {"share": share}, f"share must be above 0 and at most 1, got {share}$")
      for share in (0.0, 1.1, float("nan"))),
    ("rotary", {"share": 0.2}, "share must leave a pair .* got 0.2 of a head's .* = 6 dimensions$"),
    (["shaw"], {}, r"position must be one of .*, got \['shaw'\]$"),
    ("rotary", {"base": 1.0}, "base must be above 1, got 1.0$"),
    *(("compact", {"position_dim": size}, f".* must be even and at least 2, got {size}$")
      for size in (0, 7)),
    ("compact", {"length_factor": 0.0}, "length_factor must be above 0, got 0.0$"),
    ("sinusoidal", {"layout": "max"}, "layout must be one of mix, sep, tensor2tensor, got 'max'"),
]  # fmt: skip


@each(REFUSALS)
def test_refusals(case: tuple) -> None:
    kind, given, message = case
    with pytest.raises(ValueError, match="^" + message):
        build_positions({"kind": kind} | given, DIM, 2, 1)

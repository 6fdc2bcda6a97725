"""Relative attention against the paper's formula, written with explicit loops in float64."""

import math

import pytest
import torch

from asrkit.model.attention import ChunkAttention
from asrkit.model.conformer import valid_keys
from asrkit.model.positions import RelativePosition
from asrkit.model.positions.distances import shift, sinusoid

HEADS, DIM = 2, 12


def attention() -> ChunkAttention:
    torch.manual_seed(0)
    position = RelativePosition(DIM, HEADS)
    torch.nn.init.normal_(position.content_bias)
    torch.nn.init.normal_(position.position_bias)
    return ChunkAttention(DIM, HEADS, 0.0, position).double().eval()


def reference(module: ChunkAttention, x: torch.Tensor, chunk: int, left: int) -> torch.Tensor:
    """softmax_j(((q_i + u)·k_j + (q_i + v)·W r_{i-j}) / sqrt(Dh)) v_j over absolute frames i, j."""
    frames, size = x.size(0), DIM // HEADS
    q, k, v = module.qkv(x).view(frames, 3, HEADS, size).unbind(1)
    position, context = module.position, torch.zeros(frames, HEADS, size, dtype=torch.float64)
    for head in range(HEADS):
        u, w = position.content_bias[head, 0, 0], position.position_bias[head, 0, 0]
        for i in range(frames):
            begin = i - i % chunk
            visible = range(max(0, begin - left), min(frames, begin + chunk))
            scores = []
            for j in visible:
                r = torch.zeros(DIM, dtype=torch.float64)
                for c in range(0, DIM, 2):
                    angle = (i - j) / 10000 ** (c / DIM)
                    r[c], r[c + 1] = math.sin(angle), math.cos(angle)
                projected = (position.projection.weight @ r).view(HEADS, size)[head]
                score = (q[i, head] + u) @ k[j, head] + (q[i, head] + w) @ projected
                scores.append(score / math.sqrt(size))
            weights = torch.stack(scores).softmax(0)
            context[i, head] = sum(a * v[j, head] for a, j in zip(weights, visible, strict=True))
    return module.out(context.flatten(1))


def blocks(module: ChunkAttention, x: torch.Tensor, chunk: int, left: int) -> torch.Tensor:
    past = torch.zeros(1, HEADS, left, DIM // HEADS, dtype=torch.float64)
    frames = torch.tensor([x.size(0)])
    valid = valid_keys(torch.zeros(1, dtype=torch.int64), frames, left, chunk, x.size(0))
    table = module.position.table(left, chunk, x)
    return module(x[None], valid, table, past, past)[0][0]


@pytest.mark.parametrize(("chunk", "left"), [(1, 0), (1, 5), (4, 0), (4, 3), (4, 9), (24, 0)])
def test_equals_the_formula(chunk: int, left: int) -> None:
    module = attention()
    x = torch.randn(24, DIM, dtype=torch.float64)
    assert (blocks(module, x, chunk, left) - reference(module, x, chunk, left)).abs().max() < 1e-9


def test_control_an_unsigned_distance_is_noticed() -> None:
    module = attention()
    x = torch.randn(24, DIM, dtype=torch.float64)
    expected = reference(module, x, 4, 3)
    table = module.position.table
    module.position.table = lambda left, chunk, like: table(left, chunk, like).flip(2)  # type: ignore[method-assign]
    assert (blocks(module, x, 4, 3) - expected).abs().max() > 1e-3


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 4), (3, 3), (3, 7)])
def test_shift_is_a_gather(rows: int, keys: int) -> None:
    scores = torch.randn(2, rows, keys + rows)
    shifted = shift(scores, keys)
    for i in range(rows):
        for j in range(keys):
            assert torch.equal(shifted[:, i, j], scores[:, i, j + rows - 1 - i])


def test_the_sine_keeps_the_sign() -> None:
    ahead, behind = sinusoid(torch.tensor([3, -3]), 8)
    assert torch.equal(ahead[0::2], -behind[0::2])
    assert torch.equal(ahead[1::2], behind[1::2])
    assert not torch.equal(ahead, behind)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite(dtype: torch.dtype) -> None:
    """Also for a row of which no key is valid."""
    module = attention().to(dtype)
    x = torch.randn(2, 8, DIM, dtype=dtype)
    past = torch.zeros(2, HEADS, 4, DIM // HEADS, dtype=dtype)
    valid = valid_keys(torch.tensor([0, 0]), torch.tensor([8, 0]), 4, 4, 8)
    assert not valid[1].any()
    output, _, _ = module(x, valid, module.position.table(4, 4, x), past, past)
    assert torch.isfinite(output).all()


def test_gradients_of_padded_rows_are_finite() -> None:
    module = attention()
    x = torch.randn(2, 8, DIM, dtype=torch.float64, requires_grad=True)
    past = torch.zeros(2, HEADS, 4, DIM // HEADS, dtype=torch.float64)
    valid = valid_keys(torch.tensor([0, 0]), torch.tensor([8, 0]), 4, 4, 8)
    module(x, valid, module.position.table(4, 4, x), past, past)[0].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters() if p.grad is not None)
    assert torch.isfinite(x.grad).all()  # type: ignore[arg-type]

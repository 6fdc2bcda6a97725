"""The GPU's kernels, run by Triton's interpreter: the same numbers as attention block by block."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from asrkit.model import ConformerEncoder, EncoderState
from asrkit.model.attention import ChunkAttention
from asrkit.model.kernels import triton_attention as fused_attention
from asrkit.model.positions import KINDS
from tests.conftest import skip, tiny_encoder
from tests.running import python

# Chunk, left context, chunks: windows shorter and longer than a tile of 16, chunks that are no
# multiple of it, many in a tile, and full context.
BLOCKS = [(5, 7, 4), (20, 0, 1), (2, 64, 5)]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
OF_FRAMES = {"sinusoidal", "learned", "flow", "complex"}  # in attention they are `none`
FUSED = {"relative", "relative_learned", "t5", "alibi", "compact", "none"} | OF_FRAMES


@pytest.fixture(scope="module", autouse=True)
def _interpreted() -> Iterator[None]:
    try:
        from triton.runtime import interpreter
    except ImportError:
        skip("triton is not installed")
    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        """As before, and ranges of NumPy's arrays of one number, which Triton 3.6 does not take."""
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    with pytest.MonkeyPatch.context() as change:
        change.setattr(interpreter, "_patch_lang_tensor", patch)
        yield


def on_kernels(change: pytest.MonkeyPatch) -> None:
    """As on a GPU, in every precision."""
    change.setattr(fused_attention, "serves", lambda position, queries: position.fused)


def step(
    encoder: ConformerEncoder, chunk_size: int, left_context: int, num_chunks: int
) -> tuple[Tensor, EncoderState]:
    """A later step of two streams at different points, the second of which ends in it."""
    dtype = encoder.mean.dtype
    draw = torch.Generator().manual_seed(0)
    feats = torch.randn(2, 4 * chunk_size * num_chunks, 20, generator=draw, dtype=dtype)
    state = encoder.init_state(2, left_context)
    past = [torch.randn(x.shape, generator=draw, dtype=dtype) for x in (state.keys, state.values)]
    state = state._replace(keys=past[0], values=past[1], position=torch.tensor([3, 1000]))
    lengths = torch.tensor([feats.size(1), feats.size(1) - 6])
    encoded, lengths, state = encoder(feats, lengths, state, chunk_size)
    real = torch.arange(encoded.size(1)) < lengths[:, None]
    return encoded * real.unsqueeze(2), state


def gradients(encoder: ConformerEncoder, encoded: Tensor) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    loss = (encoded * torch.randn(encoded.shape, generator=draw, dtype=encoded.dtype)).sum()
    found = torch.autograd.grad(loss, list(encoder.parameters()), allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def largest(first: Tensor, second: Tensor) -> float:
    return float((first - second).detach().abs().max())


def test_kinds_that_are_fused() -> None:
    for kind in KINDS:
        for layer in tiny_encoder(position=kind).layers:
            position = layer.attention.position
            assert position.fused == (kind in FUSED), kind
            assert (type(position) is KINDS["none"]) == (kind in OF_FRAMES | {"none"}), kind


def test_which_attention_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a GPU, in half precision, with heads that fit, where kernels can be built."""

    def serves(kind: str = "relative", on_gpu: bool = True, **changes: Any) -> bool:
        dtype = changes.pop("dtype", torch.float16)
        position = tiny_encoder(position=kind, **changes).layers[0].attention.position
        queries = SimpleNamespace(is_cuda=on_gpu, dtype=dtype)
        return fused_attention.serves(position, queries)  # type: ignore[arg-type]

    monkeypatch.setattr(fused_attention, "HAS_TRITON", True)
    assert serves()
    assert serves(dtype=torch.bfloat16)
    assert not serves(on_gpu=False)
    assert not serves(dtype=torch.float32)
    assert not serves(dtype=torch.float64)
    assert not serves("shaw")
    assert not serves(dim=2 * fused_attention.LARGEST_HEAD, num_heads=1)
    monkeypatch.setattr(fused_attention, "HAS_TRITON", False)
    assert not serves()


@pytest.mark.parametrize("kind", ["relative", "compact"])
def test_under_autocast(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernels compute in is the precision that autocast gave the queries."""
    encoder, seen = tiny_encoder(num_layers=1, position=kind, kernels=True).float(), []

    def attend(*inputs: Tensor, **_: object) -> Tensor:
        seen.extend(x.dtype for x in inputs[:2])
        return torch.zeros_like(inputs[0])

    on_kernels(monkeypatch)
    monkeypatch.setattr(fused_attention, "attend", attend)
    with torch.autocast("cpu", torch.bfloat16):
        step(encoder, 5, 0, 1)
    assert set(seen) == {torch.bfloat16}


SLOW = pytest.mark.slow
CASES = [
    (BLOCKS[0], "relative", torch.float64),
    (BLOCKS[1], "relative", torch.float32),
    ((5, 7, 2), "compact", torch.float64),  # its queries have a width of their own
    *(pytest.param(blocks, "relative", torch.float64, marks=SLOW) for blocks in BLOCKS[1:]),
    *(pytest.param((5, 7, 2), kind, torch.float64, marks=SLOW) for kind in sorted(FUSED)),
]


@pytest.mark.parametrize(("blocks", "kind", "dtype"), CASES)
def test_encoder_and_gradients(
    blocks: tuple[int, int, int], kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernels only where the encoder is told to use them."""
    calls, by_kernels = [], ChunkAttention.by_kernels
    on_kernels(monkeypatch)
    monkeypatch.setattr(
        ChunkAttention, "by_kernels", lambda *inputs: calls.append(1) or by_kernels(*inputs)
    )
    outputs, states, grads = [], [], []
    for told in (False, True):
        encoder = tiny_encoder(num_layers=1, num_heads=2, position=kind, kernels=told).to(dtype)
        encoded, state = step(encoder, *blocks)
        assert len(calls) == told
        outputs.append(encoded)
        states.append(state.conv)  # of what attention gave
        grads.append(gradients(encoder, encoded))
    assert largest(*outputs) < TOLERANCE[dtype]
    assert largest(*states) < TOLERANCE[dtype]
    for right, found in zip(*grads, strict=True):
        assert largest(found, right) < TOLERANCE[dtype] * max(1.0, float(right.abs().max()))


@pytest.mark.parametrize("what", ["keys", "values", "table", "valid"])
def test_control(what: str) -> None:
    """What the kernels are given matters: any of it changed, and the context is another."""
    draw = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(shape, generator=draw, dtype=torch.float64)
        for name, shape in (
            ("content", (1, 2, 10, 6)), ("positions", (1, 2, 10, 6)), ("keys", (1, 2, 17, 6)),
            ("values", (1, 2, 17, 6)), ("table", (2, 6, 17)),
        )
    }  # fmt: skip
    inputs["valid"] = torch.ones(1, 1, 2, 1, 12, dtype=torch.bool)
    expected = fused_attention.attend(**inputs)
    index = (..., 3) if what == "valid" else (slice(None), slice(None), 8)
    inputs[what] = inputs[what].clone()
    inputs[what][index] = False if what == "valid" else inputs[what][index] + 1.0
    assert largest(fused_attention.attend(**inputs), expected) > 1e-3


def test_half_precision() -> None:
    """Larger tiles: as the same numbers in float64, but for rounding."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(1, 1, 70, 8), (1, 1, 70, 8), (1, 1, 75, 8), (1, 1, 75, 8), (1, 8, 75)]
    halves = [torch.randn(shape, generator=draw).half() * 0.7 for shape in shapes]
    valid = torch.rand(1, 1, 2, 1, 40, generator=draw) < 0.9
    found = []
    for dtype in (torch.float16, torch.float64):
        inputs = [x.to(dtype).requires_grad_() for x in halves]
        out = fused_attention.attend(*inputs, valid)
        found.append([out, *torch.autograd.grad(out.float().pow(2).sum(), inputs)])
    for half, exact in zip(*found, strict=True):
        assert largest(half.double(), exact) < 5e-3 * max(1.0, float(exact.detach().abs().max()))


def test_dropout_and_its_gradient() -> None:
    """Values that are unit vectors show the weights; each is dropped, or scaled up."""
    draw = torch.Generator().manual_seed(0)
    size, chance = 24, 0.25
    shapes = [(2, 2, 20, size), (2, 2, 20, size), (2, 2, 24, size), (2, size, 44)]
    q, p, k, table = (torch.randn(s, generator=draw, dtype=torch.float64) * 0.4 for s in shapes)
    v = torch.eye(size, dtype=torch.float64).expand(2, 2, -1, -1)
    valid = torch.ones(2, 1, 1, 1, 24, dtype=torch.bool)
    whole = fused_attention.attend(q, p, k, v, table, valid)
    dropped = []
    for _ in range(2):
        torch.manual_seed(5)
        tensors = [x.clone().requires_grad_() for x in (q, p, k, v, table)]
        dropped.append(fused_attention.attend(*tensors, valid, chance))
    torch.testing.assert_close(dropped[0], dropped[1], rtol=0, atol=0)  # a function of the seed
    factors = (dropped[1] / whole).detach()
    kept = factors > 0.5
    assert abs(float(kept.double().mean()) - (1 - chance)) < 0.04
    assert largest(factors, kept / (1 - chance)) < 1e-9
    assert not torch.equal(kept[0], kept[1])  # rows draw apart

    grad = torch.randn(dropped[1].shape, generator=draw, dtype=torch.float64)
    found = torch.autograd.grad(dropped[1], tensors, grad)
    again = [x.clone().requires_grad_() for x in (q, p, k, v, table)]
    expected = torch.autograd.grad(by_hand(*again, factors), again, grad)
    for one, other in zip(found, expected, strict=True):
        assert largest(one, other) < 1e-9


def by_hand(q: Tensor, p: Tensor, k: Tensor, v: Tensor, table: Tensor, factors: Tensor) -> Tensor:
    """One block of 20 queries and 24 keys, with a matrix of scores."""
    query, key = torch.arange(20)[:, None], torch.arange(24)
    by_key = (p @ table).gather(3, (key - query + 19).expand(2, 2, 20, 24))
    return ((q @ k.mT + by_key).softmax(dim=3) * factors) @ v


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])  # A100, H100
def test_compiles_for_gpus(architecture: int) -> None:
    """To machine code, which needs no GPU; in float32 and bfloat16, with and without dropout."""
    code = COMPILE.replace("ARCHITECTURE", str(architecture))
    done = python(code, TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["cubin"] * 12


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from asrkit.model.kernels import triton_kernels as kernels

sums = {"log_total", "delta", "dtable"}
sizes = {"num_heads", "num_queries", "chunk_size", "window", "dim", "extra", "seed"}
for kernel in (kernels.attend, kernels.attend_backward_queries, kernels.attend_backward_keys):
    for element, size in (("fp32", 16), ("bf16", 32)):
        for dropout in (0.0, 0.1):
            fixed = {"SIZE": size, "DIM": 64, "EXTRA": 64, "DROPOUT": dropout}
            types = {
                name: "constexpr" if name in fixed else "i32" if name in sizes
                else "*i1" if name == "valid" else "*fp32" if name in sums else "*" + element
                for name in kernel.arg_names
            }
            target = GPUTarget("cuda", ARCHITECTURE, 32)
            compiled = triton.compile(ASTSource(kernel, types, fixed), target=target)
            print("cubin" if compiled.asm["cubin"] else "nothing")
"""

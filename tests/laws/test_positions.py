"""Every law holds for every position encoding, and docs/positions.md says so.

python -m tests.laws.test_positions    # writes the table of the docs anew
"""

import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from asrkit import audio
from asrkit.export.replay import difference
from asrkit.model import FULL_CONTEXT, ConformerEncoder, EncoderState, EncoderStep
from asrkit.model.positions import KINDS, FramePosition, options
from asrkit.runtime import Recognizer
from asrkit.text import CharTokenizer
from tests.conftest import PROJECT, fitted, speech, timed, tiny_encoder, tiny_model
from tests.laws.test_streaming import CHUNKS, LEFT_CONTEXTS, Recorder, offline, packets, stream

HOUR = 360_000  # feature frames
DOCS = PROJECT / "docs" / "positions.md"
RELATIVE = tuple(kind for kind, cls in KINDS.items() if not issubclass(cls, FramePosition))


def encoder(kind: str, dtype: torch.dtype = torch.float64) -> ConformerEncoder:
    return tiny_encoder(position=kind, num_layers=2).to(dtype)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, 20, generator=torch.Generator().manual_seed(1), dtype=dtype)


@torch.no_grad()
def streaming(kind: str, dtype: torch.dtype) -> float:
    """Steps of one and of three chunks against one step, over all chunks and left contexts."""
    module, feats = encoder(kind, dtype), draw(2, 213, dtype=dtype)
    return max(
        difference(offline(module, feats, chunk, left), stream(module, feats, chunk, left, several))
        for chunk in CHUNKS
        for left in LEFT_CONTEXTS
        for several in (1, 3)
    )


def streaming_float64(kind: str) -> float:
    return streaming(kind, torch.float64)


def streaming_float32(kind: str) -> float:
    return streaming(kind, torch.float32)


def samples_to_text(kind: str) -> float:
    """Samples in packets of random sizes against all at once; infinite if the text differs."""
    samples = speech(2.3)
    whole = torch.from_numpy(samples).double()[None]
    feats = audio.Fbank().double()(whole, whole[:, :0])[0]
    results, log_probs = [], []
    for seed in (None, 1):
        model, search = fitted(tiny_model(position=kind), feats), Recorder()
        recognizer = Recognizer(model, CharTokenizer(list("abcdefghij ")), search, 4, 7)
        session = recognizer.start()
        for packet in [samples] if seed is None else packets(samples, seed):
            session.accept(packet)
        results.append(timed(session.finish()))
        log_probs.append(torch.cat(search.frames))
    return difference(*log_probs) if results[0] == results[1] else math.inf


@torch.no_grad()
def rows_of_a_batch(kind: str) -> float:
    """Two streams at different places step together as they do alone, one of them ends."""
    module, feats = encoder(kind), draw(2, 192)
    lengths, largest = torch.tensor([64]), 0.0
    alone, states = [], []
    for row in range(2):
        state = module.init_state(1, 24)
        for number in range(row + 1):  # row r has taken r + 1 chunks
            part = feats[row : row + 1, 64 * number : 64 * number + 64]
            state = module(part, lengths, state, 16).state
        states.append(state)
        last = feats[row : row + 1, 128 : 128 + 64 - 40 * row]
        alone.append(module(last, torch.tensor([last.size(1)]), state, 16).encoded)
    joined = EncoderState(*map(torch.cat, zip(*states, strict=True)))
    together = module(feats[:, 128:], torch.tensor([64, 24]), joined, 16).encoded
    for row in range(2):
        largest = max(largest, difference(together[row, : alone[row].size(1)], alone[row][0]))
    return largest


def reach(kind: str) -> float:
    """The gradient of a frame with respect to features beyond its chunk or before its reach."""
    module, feats = encoder(kind), draw(1, 400).requires_grad_()
    encoded = module(feats, torch.tensor([400]), module.init_state(1, 5), 4).encoded
    (encoded[0, 62] * torch.randn(24, dtype=torch.float64)).sum().backward()
    assert feats.grad is not None
    first = 62
    for _ in range(2):  # layers: the convolution's 4 frames, then chunk and left context
        first = (first - 4) - (first - 4) % 4 - 5
    outside = torch.cat([feats.grad[0, : 4 * first - 3], feats.grad[0, 4 * 63 + 4 :]])
    assert feats.grad[0, 4 * first - 3 : 4 * 63 + 4].abs().amax(dim=1).min() > 0
    return float(outside.abs().max())


def gradients(kind: str) -> float:
    """Derivatives of random directions against central differences, relative, for all weights."""
    module = encoder(kind)
    feats, lengths = draw(2, 90), torch.tensor([90, 41])
    weights = torch.randn(2, 23, 24, dtype=torch.float64)

    def value() -> Tensor:
        encoded = module(feats, lengths, module.init_state(2, 7), 4).encoded
        return (encoded * weights)[0].sum() + (encoded * weights)[1, :11].sum()

    parameters = [feats.requires_grad_(), *(p for p in module.parameters() if p.requires_grad)]
    grads = torch.autograd.grad(value(), parameters, allow_unused=True)
    worst, step = 0.0, 1e-7  # so small that no ReLU turns over
    for parameter, grad in zip(parameters, grads, strict=True):
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            parameter.add_(step * direction)
            above = value()
            parameter.sub_(2 * step * direction)
            numeric = (above - value()) / (2 * step)
            parameter.add_(step * direction)
            analytic = torch.zeros(()) if grad is None else (grad * direction).sum()
            worst = max(worst, float((analytic - numeric).abs() / (1.0 + numeric.abs())))
    return worst


def torchscript(kind: str) -> float:
    step = EncoderStep(encoder(kind), 16, 24)
    return replayed(step, torch.jit.script(step))


def torch_export(kind: str) -> float:
    """Exported with a batch of three and any batch allowed, run with two."""
    step = EncoderStep(encoder(kind), 16, 24)
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    state = step.init_state(3)
    shapes = (batch, batch, EncoderState(*[batch] * len(state)))
    arguments = (draw(3, 64), torch.tensor([64, 64, 9]), state)
    return replayed(step, torch.export.export(step, arguments, dynamic_shapes=shapes).module())


@torch.no_grad()
def replayed(step: EncoderStep, other: Callable) -> float:  # type: ignore[type-arg]
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


@torch.no_grad()
def half_precision(kind: str) -> float:
    """0 if float16 and bfloat16 stay finite, also in a row of which nothing is real."""
    for dtype in (torch.float16, torch.bfloat16):
        module, feats = encoder(kind, dtype), draw(2, 128, dtype=dtype)
        for chunk, left in ((4, 7), (FULL_CONTEXT, 0)):
            state = module.init_state(2, left)
            encoded = module(feats, torch.tensor([128, 0]), state, chunk).encoded
            if not torch.isfinite(encoded).all():
                return math.inf
    return 0.0


def padded_rows(kind: str) -> float:
    """0 if forward and backward stay finite where rows are short or empty."""
    module, feats = encoder(kind), draw(3, 128).requires_grad_()
    state = module.init_state(3, 7)
    encoded = module(feats, torch.tensor([128, 33, 0]), state, 4).encoded
    encoded.sum().backward()
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    finite = all(torch.isfinite(x).all() for x in [encoded, feats.grad, *grads])  # type: ignore[arg-type]
    return 0.0 if finite else math.inf


@torch.no_grad()
def hour_later(kind: str) -> float:
    """The same chunk with the same past, now and an hour later, in float32."""
    module, feats = encoder(kind, torch.float32), draw(1, 192, dtype=torch.float32)
    state, lengths = module.init_state(1, 24), torch.tensor([128])
    state = module(feats[:, :128], lengths, state, 16).state
    later = state._replace(position=state.position + HOUR)
    now, then = (module(feats[:, 128:], lengths // 2, s, 16).encoded for s in (state, later))
    return difference(now, then)


class Law(NamedTuple):
    name: str
    measure: Callable[[str], float]
    bound: float
    kinds: tuple[str, ...] = tuple(KINDS)


LAWS = [
    Law("streaming, float64", streaming_float64, 1e-9),
    Law("streaming, float32", streaming_float32, 1e-4),
    Law("samples to text", samples_to_text, 1e-9),
    Law("rows of a batch", rows_of_a_batch, 1e-9),
    Law("reach", reach, 0.0),
    Law("gradients", gradients, 1e-6),
    Law("TorchScript", torchscript, 1e-9),
    Law("torch.export", torch_export, 1e-9),
    Law("half precision", half_precision, 0.0),
    Law("padded rows", padded_rows, 0.0),
    Law("an hour later", hour_later, 1e-5, RELATIVE),
]
CELLS = [pytest.param(law, kind, id=f"{law.name}-{kind}") for law in LAWS for kind in law.kinds]


@pytest.mark.parametrize(("law", "kind"), CELLS)
def test_law(law: Law, kind: str) -> None:
    torch.manual_seed(3)
    assert law.measure(kind) <= law.bound


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_control_a_tampered_cache_is_noticed(kind: str) -> None:
    module, feats = encoder(kind), draw(1, 128)
    expected = offline(module, feats, 16, 32)[:, 16:]
    lengths = torch.tensor([64])
    state = module(feats[:, :64], lengths, module.init_state(1, 32), 16).state
    tampered = state._replace(keys=state.keys.roll(1, dims=3))  # each key a frame late
    encoded = module(feats[:, 64:], lengths, tampered, 16).encoded
    assert difference(encoded, expected) > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in RELATIVE])
def test_control_an_hour_later_is_noticed(kind: str) -> None:
    """The measure of `hour_later` is not blind: it tells absolute kinds from relative ones."""
    assert hour_later(kind) > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
@torch.no_grad()
def test_control_every_kind_matters(kind: str) -> None:
    """With the same other weights, no kind is `none`."""
    module, plain, feats = encoder(kind), encoder("none"), draw(1, 100)
    weights = module.state_dict()
    for layer in range(2):  # a kind's own queries stand behind each head's
        for name in (f"layers.{layer}.attention.qkv.{end}" for end in ("weight", "bias")):
            queries, rest = weights[name][:-48], weights[name][-48:]
            weights[name] = torch.cat([queries.unflatten(0, (4, -1))[:, :6].flatten(0, 1), rest])
    plain.load_state_dict({name: weights[name] for name in plain.state_dict()})
    assert difference(offline(module, feats, 4, 7), offline(plain, feats, 4, 7)) > 1e-3


def law_table() -> str:
    """The table of the docs: the bound that a test asserts, for each kind and law."""
    lines = [
        "| kind | " + " | ".join(law.name for law in LAWS) + " |",
        "|---" * (len(LAWS) + 1) + "|",
    ]
    for kind in KINDS:
        cells = [cell(law) if kind in law.kinds else "–" for law in LAWS]
        lines.append(f"| `{kind}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cell(law: Law) -> str:
    return f"{law.bound:.0e}".replace("e-0", "e-") if law.bound else "✓"


def options_table() -> str:
    """The table of the docs: each kind's class and options."""
    lines = ["| kind | class | options and their defaults |", "|---|---|---|"]
    for kind, cls in KINDS.items():
        listed = ", ".join(f"`{name}: {yaml(p)}`" for name, p in options(kind).items())
        path = inspect.getfile(cls).rpartition("/asrkit/")[2]
        lines.append(f"| `{kind}` | [{cls.__name__}](../asrkit/{path}) | {listed or '–'} |")
    return "\n".join(lines) + "\n"


def yaml(option: inspect.Parameter) -> str:
    if option.default is None or isinstance(option.default, bool):
        return {None: "null", True: "true", False: "false"}[option.default]
    return str(option.default)


TABLES = {"laws": law_table, "options": options_table}


def filled(text: str) -> str:
    """The docs with their tables made anew."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + make() + end + rest.partition(end)[2]
    return text


def test_the_docs_hold_the_tables() -> None:
    assert filled(DOCS.read_text()) == DOCS.read_text(), "run python -m tests.laws.test_positions"


if __name__ == "__main__":
    DOCS.write_text(filled(DOCS.read_text()))

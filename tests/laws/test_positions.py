"""Every law holds for every position encoding, and docs/positions.md says so.

python -m tests.laws.test_positions    # writes the table of the docs anew
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from asrkit.backends.check import difference
from asrkit.cli.table import markdown
from asrkit.model import FULL_CONTEXT, ConformerEncoder, Context, Step, conformer
from asrkit.model.attention import MAX_ROWS, ChunkAttention
from asrkit.model.positions import KINDS
from asrkit.model.positions.relative import RelativePosition
from tests.conftest import PROJECT
from tests.laws.encoder_laws import (
    CASES,
    EVERY_STEP,
    FLOW,
    LAWS,
    Law,
    draw,
    encoder,
    hour_later,
    offline,
    reach,
    replayed,
    streaming,
)

DOCS = PROJECT / "docs" / "positions.md"
CELLS = [(law, case) for law in LAWS for case in law.cases()]
PARAMETERS = [
    pytest.param(
        law, case,
        id=f"{law.name}-{' '.join(str(value) for value in case.values())}",
        marks=[pytest.mark.slow] if case == FLOW else [],
    )
    for law, case in CELLS
]  # fmt: skip


@pytest.mark.parametrize(("law", "case"), PARAMETERS)
def test_law(law: Law, case: dict[str, Any]) -> None:
    torch.manual_seed(3)
    assert law.measure(case) <= law.bound


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_streaming_in_every_context(case: dict[str, Any]) -> None:
    assert streaming(case, torch.float64, EVERY_STEP) <= 1e-9


def forget(patch: pytest.MonkeyPatch) -> None:
    """A state that is dropped between steps."""
    run = ConformerEncoder.run

    def forgetful(self, *given):  # type: ignore[no-untyped-def]
        output, layers = run(self, *given)
        state = output.state._replace(values=output.state.values * 0)
        return output._replace(state=state), layers

    patch.setattr(ConformerEncoder, "run", forgetful)


def one_position(patch: pytest.MonkeyPatch) -> None:
    """All rows stand where the first one does."""
    keys = conformer.valid_keys
    patch.setattr(conformer, "valid_keys", lambda at, *rest: keys(at[:1].expand_as(at), *rest))


def whole_rows(patch: pytest.MonkeyPatch) -> None:
    """All rows are as long as the longest."""
    keys = conformer.valid_keys
    patch.setattr(
        conformer, "valid_keys", lambda at, n, *rest: keys(at, n.max().expand_as(n), *rest)
    )


def look_ahead(patch: pytest.MonkeyPatch) -> None:
    """Every feature frame hears a little of the one that is as far from the end."""
    normalize = ConformerEncoder.normalize

    def leaky(self, *rest):  # type: ignore[no-untyped-def]
        feats, real = normalize(self, *rest)
        return feats + 1e-3 * feats.flip(1), real

    patch.setattr(ConformerEncoder, "normalize", leaky)


def lose_gradient(patch: pytest.MonkeyPatch) -> None:
    """A bias that does not learn: it is small, and each of its numbers is compared then."""
    terms = RelativePosition.terms

    def lossy(self, queries):  # type: ignore[no-untyped-def]
        fixed = queries - self.position_bias + self.position_bias.detach()
        return terms(self, queries)[0], terms(self, fixed)[1]

    patch.setattr(RelativePosition, "terms", lossy)


def mask_with_infinity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChunkAttention, "masked", -math.inf)


SABOTAGE: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("streaming, float64", forget),
    ("streaming, float32", forget),
    ("rows of a batch", one_position),
    ("reach", look_ahead),
    ("gradients", lose_gradient),
    ("half precision", mask_with_infinity),
    ("padded rows", mask_with_infinity),
    ("padded rows", whole_rows),
]


@pytest.mark.parametrize(("name", "sabotage"), SABOTAGE)
def test_control_a_broken_encoder_is_noticed(
    name: str, sabotage: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    sabotage(monkeypatch)
    (law,) = (law for law in LAWS if law.name == name)
    assert law.measure({"kind": "relative"}) > 100 * law.bound


def test_control_more_context_is_seen() -> None:
    """One more frame of left context than the definition has."""
    assert reach({}, seen=1) > 0.0


def test_control_another_export_is_noticed() -> None:
    step, other = (Step(encoder({"kind": "relative"}), None, Context(16, 24)) for _ in range(2))
    with torch.no_grad():
        other.encoder.layers[1].attention.position.content_bias.add_(0.5)
    assert replayed(step, other) > 1e-3


def test_control_an_hour_later_is_noticed() -> None:
    """The measure tells absolute kinds from relative ones."""
    absolute = [kind for kind in KINDS if not LAWS[-1].binds(kind)]
    assert min(hour_later({"kind": kind}) for kind in absolute) > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
@torch.no_grad()
def test_control_every_kind_matters(kind: str) -> None:
    """With the same other weights, no kind is `none`."""
    module, plain, feats = encoder({"kind": kind}), encoder({"kind": "none"}), draw(1, 100)
    weights = module.state_dict()
    for layer in range(2):  # a kind's own queries stand behind each head's
        for name in (f"layers.{layer}.attention.qkv.{end}" for end in ("weight", "bias")):
            queries, rest = weights[name][:-48], weights[name][-48:]
            weights[name] = torch.cat([queries.unflatten(0, (4, -1))[:, :6].flatten(0, 1), rest])
    plain.load_state_dict({name: weights[name] for name in plain.state_dict()})
    assert difference(*(offline(each, feats, Context(4, 7)) for each in (module, plain))) > 1e-3


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that anything makes."""

    elements = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):  # type: ignore[no-untyped-def]
        made = function(*given, **(named or {}))
        for tensor in made if isinstance(made, (list, tuple)) else [made]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().size() // 8)
        return made


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_nothing_holds_a_vector_for_each_pair(kind: str) -> None:
    """No (T, T, Dh), and of more than `max_rows` frames not even a (T, T)."""
    module, frames = encoder({"kind": kind}, torch.float64), 600
    with Largest() as largest:
        lengths = torch.tensor([4 * frames])
        module(draw(1, 4 * frames), lengths, module.init_state(1, 0), FULL_CONTEXT)
    rows = MAX_ROWS
    tile = 4 * rows * (frames + rows)  # (H, Q, W+Q)
    assert 4 * rows * frames <= largest.elements <= 1.01 * tile < 4 * frames * frames


def options_table() -> str:
    """The table of the docs: each kind's class and options."""
    rows = []
    for kind, cls in KINDS.items():
        listed = ", ".join(f"`{name}: {yaml(p)}`" for name, p in KINDS.options(kind).items())
        name = f"[{cls.__name__}](#{cls.__module__}.{cls.__name__})"
        rows.append([f"`{kind}`", name, listed or "–"])
    return markdown(["kind", "class", "options and their defaults"], rows) + "\n"


def yaml(option: inspect.Parameter) -> str:
    if option.default is None or isinstance(option.default, bool):
        return {None: "null", True: "true", False: "false"}[option.default]
    return str(option.default)


def filled(text: str) -> str:
    """The docs with their table made anew."""
    begin, end = "<!-- options -->\n", "<!-- end of options -->"
    before, _, rest = text.partition(begin)
    return before + begin + options_table() + end + rest.partition(end)[2]


def test_the_docs_hold_the_table() -> None:
    assert filled(DOCS.read_text()) == DOCS.read_text(), "run python -m tests.laws.test_positions"


if __name__ == "__main__":
    DOCS.write_text(filled(DOCS.read_text()))

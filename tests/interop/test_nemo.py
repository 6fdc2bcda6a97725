"""Models of NeMo compute here what they compute there: every array, in every context."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit import audio
from asrkit.build import build_frontend
from asrkit.evaluation.recording_search import Trace
from asrkit.interop import Imported, import_checkpoint
from asrkit.model import Context, TransducerHead
from asrkit.model.frontend import TorchFrontend
from asrkit.model.transducer_loss import transducer_loss
from asrkit.model_file import ModelFile
from asrkit.runtime import Result, recognizer_of
from tests.conftest import FIXTURES, mel_difference, toolkit_outputs
from tests.laws.test_streaming import packets

CTC = ["ctc", "ctc-batchnorm", "hybrid"]
TRANSDUCERS = [
    "rnnt", "rnnt-stateless", "rnnt-hybrid",
    *(f"rnnt-prompt:{language}" for language in ("en-US", "de-DE", "auto")),
]  # fmt: skip
of_ctc = pytest.mark.parametrize("fixture", CTC, indirect=True)
of_transducers = pytest.mark.parametrize("fixture", TRANSDUCERS, indirect=True)
both_clips = pytest.mark.parametrize("clip", ["speech", "synthetic"])
TOLERANCE = 1e-4


class Fixture(NamedTuple):
    """A checkpoint, and what NeMo computes with it; in a language, for a model with a prompt."""

    imported: Imported
    arrays: dict[str, Any]

    @property
    def file(self) -> ModelFile:
        return self.imported.file

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self.arrays[name])

    def blank_first(self, name: str) -> Tensor:
        """Numbers of labels, of which NeMo's last one is the blank."""
        return self.tensor(name).roll(1, -1)

    def contexts(self) -> Iterator[tuple[str, Context]]:
        names = {key.split("/")[1] for key in self.arrays if key.endswith("/encoded")}
        for name in sorted(names, key=lambda name: -int(name.rpartition("_")[2])):
            left, ahead = map(int, name.split("_")[1:])
            yield name, Context(ahead + 1, left // (ahead + 1) * (ahead + 1))


def checkpoint(name: str) -> Path:
    return FIXTURES / f"nemo-fastconformer-{name}" / "model.nemo"


def outputs_of(name: str) -> dict[str, Any]:
    features = None if name.startswith("rnnt") else "nemo-features.npz"
    return toolkit_outputs(checkpoint(name).parent.name, features)


@pytest.fixture(scope="module", params=CTC + TRANSDUCERS)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    name, _, language = request.param.partition(":")
    head = "ctc" if name == "hybrid" else None
    known = {
        key.replace(f"/{language}/", "/") if language else key: array
        for key, array in outputs_of(name).items()
    }
    return Fixture(import_checkpoint("nemo", checkpoint(name), head, language or None), known)


def head_of(imported: Imported) -> TransducerHead:
    head = imported.file.model.head
    assert isinstance(head, TransducerHead)
    return head


def difference(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max())


def features(fixture: Fixture, clip: str) -> Tensor:
    """(1, T, F) of a clip, with the frames before it."""
    samples = fixture.tensor(f"{clip}/audio")[None]
    frontend = TorchFrontend(build_frontend(fixture.file.config.model)).of_tensors()
    return audio.features(frontend, samples, torch.tensor([samples.size(1)]))[0]


@of_ctc
@both_clips
@torch.no_grad()
def test_features_and_subsampling(fixture: Fixture, clip: str) -> None:
    encoder, feats = fixture.file.model.encoder, features(fixture, clip)
    own = feats[0, encoder.rate.lead_frames :]
    assert difference(own, fixture.tensor(f"{clip}/feats")) < 10 * TOLERANCE
    assert mel_difference(own, fixture.tensor(f"{clip}/feats")) < TOLERANCE
    lengths, state = torch.tensor([feats.size(1)]), encoder.init_state(1, 0)
    normal = encoder.normalize(feats, lengths, state.position, Context(1))
    subsampled = encoder.subsampling(*normal, state.feats, state.hidden)[0][0]
    expected = fixture.tensor(f"{clip}/subsampled")
    assert difference(subsampled / encoder.dim**0.5, expected) < TOLERANCE


@torch.no_grad()
def after(head: TransducerHead, tokens: np.ndarray) -> Tensor:
    """The predictor's outputs before the first of NeMo's labels and after each: (U + 1, H)."""
    ours = torch.cat([torch.zeros(1, dtype=torch.long), torch.from_numpy(tokens) + 1])
    return head.predictor(ours[None], head.start(1))[0][0]


@of_transducers
@torch.no_grad()
def test_predictor_grid_and_loss(fixture: Fixture) -> None:
    arrays, head = fixture.arrays, head_of(fixture.imported)
    tokens = arrays["predictor/tokens"]
    outputs = after(head, tokens)
    assert difference(outputs, fixture.tensor("predictor/outputs")) < 1e-5
    name, _ = next(fixture.contexts())
    places = [f"speech/{name}/{each}" for each in ("en-US/prompted", "prompted", "encoded")]
    encoded = torch.from_numpy(next(arrays[place] for place in places if place in arrays))[10:34]
    logits = head.join(head.project(encoded)[:, None], head.from_predictor(outputs))
    theirs = fixture.blank_first("grid/logits")
    assert difference(logits, theirs) < TOLERANCE
    with torch.enable_grad():
        grid = theirs.double().requires_grad_()
        sizes = torch.tensor([24]), torch.tensor([len(tokens)])
        loss = transducer_loss(grid[None], torch.from_numpy(tokens)[None] + 1, *sizes)
        loss.sum().backward()
    assert abs(float(loss) - float(arrays["grid/loss"])) < 1e-6
    assert grid.grad is not None
    assert difference(grid.grad, fixture.blank_first("grid/gradient")) < 1e-6


@torch.no_grad()
def head_differences(fixture: Fixture, place: str, emissions: Tensor) -> dict[str, float]:
    """How far the head is from NeMo's: a transducer on frames (E, D), on NeMo's path."""
    arrays, head, found = fixture.arrays, fixture.file.model.head, {}
    if not isinstance(head, TransducerHead):
        return {"CTC": difference(emissions, fixture.blank_first(f"{place}/log_probs"))}
    if f"{place}/prompted" in arrays:
        found["prompted"] = difference(emissions, fixture.tensor(f"{place}/prompted"))
    if head.ctc is not None:
        log_probs = fixture.blank_first(f"{place}/log_probs")
        found["CTC"] = difference(head.ctc.emissions(emissions[None])[0], log_probs)
    labels, path = arrays[f"{place}/path_labels"], arrays[f"{place}/path_frames"]
    theirs = fixture.blank_first(f"{place}/path_log_probs")
    written = (labels != theirs.size(1) - 1).astype(int)  # the blank is the last label
    before = np.cumsum(written) - written
    outputs = head.from_predictor(after(head, arrays[f"{place}/tokens"]))
    joined = head.join(head.project(emissions)[path], outputs[before]).log_softmax(1)
    return found | {"joint": difference(joined, theirs)}


@torch.no_grad()
def offline(fixture: Fixture, clip: str, name: str, context: Context) -> dict[str, float]:
    """How far the encoder and the head are from NeMo's."""
    model, feats, place = fixture.file.model, features(fixture, clip), f"{clip}/{name}"
    state, lengths = model.encoder.init_state(1, context.left), torch.tensor([feats.size(1)])
    encoded = model.encoder(feats, lengths, state, context.chunk_size).frames
    found = head_differences(fixture, place, model.head.emissions(encoded)[0])
    return {"encoder": difference(encoded[0], fixture.tensor(f"{place}/encoded"))} | found


@both_clips
def test_offline_in_every_context(fixture: Fixture, clip: str) -> None:
    """Encoder, CTC layer, and every evaluation of the joint network in NeMo's search."""
    known = list(fixture.contexts())
    assert len(known) > 2
    for name, context in known:
        assert max(offline(fixture, clip, name, context).values()) < TOLERANCE


def traced(file: ModelFile, context: Context, parts: Iterable[np.ndarray]) -> tuple[Trace, Result]:
    """The trace of a stream, and its result."""
    recognizer = recognizer_of(file, context)
    trace = Trace(recognizer.search)
    session = recognizer.with_search(trace).start()
    for packet in parts:
        session.accept(packet)
    return trace, session.finish()


def recognized(
    fixture: Fixture, place: str, context: Context, parts: Iterable[np.ndarray]
) -> Trace:
    """The trace of a stream; its text, a transducer's tokens and their frames are NeMo's."""
    trace, result = traced(fixture.file, context, parts)
    theirs = str(fixture.arrays[f"{place}/text"])  # with a space for each empty sub-word
    assert result.text == " ".join(theirs.split())
    assert len(trace.hypothesis.tokens) > 10
    if isinstance(fixture.file.model.head, TransducerHead):
        tokens = [each - 1 for each in trace.hypothesis.tokens]
        assert tokens == [*fixture.arrays[f"{place}/tokens"]]
        assert [*trace.hypothesis.starts] == [*fixture.arrays[f"{place}/frames"]]
    return trace


@both_clips
def test_streamed_in_every_context(fixture: Fixture, clip: str) -> None:
    """In one piece and in random packets."""
    samples = fixture.arrays[f"{clip}/audio"]
    for seed, (name, context) in enumerate(fixture.contexts()):
        for parts in ([samples], packets(samples, seed)):
            trace = recognized(fixture, f"{clip}/{name}", context, parts)
        emissions = torch.from_numpy(trace.emissions)
        found = head_differences(fixture, f"{clip}/{name}", emissions)
        assert max(found.values()) < 2 * TOLERANCE  # NumPy's features are rounded in other ways


@of_ctc
def test_the_settings(fixture: Fixture) -> None:
    context, model = fixture.file.config.context, fixture.file.config.model
    assert context.chunk_sizes == [14, 7, 2, 1]
    assert len([*fixture.contexts()]) == 4
    assert context.left_contexts == [70]
    assert (context.chunk_size, context.left_context) == (14, 70)
    encoder = fixture.file.model.encoder
    assert (model.frontend.kind, encoder.rate.lead_frames, encoder.rate.factor) == ("slaney", 7, 8)
    hybrid = fixture.imported.left_out.keys() == {"decoder", "joint"}
    assert hybrid or not fixture.imported.left_out


@of_ctc
@torch.no_grad()
def test_control_a_wrong_weight_is_noticed(fixture: Fixture) -> None:
    weight = fixture.file.model.encoder.layers[-1].convolution.depthwise_norm.bias
    weight += 0.01
    found = offline(fixture, "speech", *next(fixture.contexts()))
    weight -= 0.01
    assert min(found.values()) > TOLERANCE


@of_transducers
def test_control_another_blank_or_activation_is_noticed(fixture: Fixture) -> None:
    name, context = next(fixture.contexts())
    head, samples = head_of(fixture.imported), fixture.arrays["speech/audio"]
    right = [*fixture.arrays[f"speech/{name}/tokens"] + 1]

    def tokens() -> list[int]:
        return [*traced(fixture.file, context, [samples])[0].hypothesis.tokens]

    assert tokens() == right
    with torch.no_grad():
        head.out.weight.copy_(head.out.weight.roll(1, 0))
        wrong = tokens()
        head.out.weight.copy_(head.out.weight.roll(-1, 0))
        assert wrong != right
    activation, head.activation = head.activation, "sigmoid"
    assert tokens() != right
    head.activation = activation
    assert tokens() == right


def test_a_full_context_model_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="normalize': input should be 'NA' or None"):
        import_checkpoint("nemo", checkpoint("fullcontext"))

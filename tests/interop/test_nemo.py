"""Models of NeMo compute here what they compute there: every array, in every context."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from asrkit import audio
from asrkit.build import build_frontend
from asrkit.interop import Imported, import_checkpoint
from asrkit.model import Context
from asrkit.model_file import ModelFile
from asrkit.runtime import Recognizer, recognizer_of
from tests.conftest import FIXTURES, mel_difference, toolkit_outputs
from tests.laws.test_streaming import Recorder, packets

NAMES = ["ctc", "ctc-batchnorm", "hybrid"]
CLIPS = ["speech", "synthetic"]
TOLERANCE = 1e-4


class Fixture(NamedTuple):
    """A checkpoint, and what NeMo computes with it."""

    imported: Imported
    arrays: dict[str, np.ndarray]

    @property
    def file(self) -> ModelFile:
        return self.imported.file

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self.arrays[name])

    def contexts(self) -> Iterator[tuple[str, int, int]]:
        """The name of each context, with its chunk size and left context."""
        for name in sorted(
            {key.split("/")[1] for key in self.arrays if key.endswith("/log_probs")}
        ):
            left, ahead = map(int, name.split("_")[1:])
            yield name, ahead + 1, left // (ahead + 1) * (ahead + 1)


@pytest.fixture(scope="module", params=NAMES)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    name = f"nemo-fastconformer-{request.param}"
    head = "ctc" if request.param == "hybrid" else None
    imported = import_checkpoint("nemo", FIXTURES / name / "model.nemo", head)
    return Fixture(imported, toolkit_outputs(name, "nemo-features.npz"))


def blank_first(log_probs: Tensor) -> Tensor:
    return log_probs.roll(1, 1)


def difference(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max())


def features(fixture: Fixture, clip: str) -> Tensor:
    """(1, T, F) of a clip, with the frames before it."""
    samples = fixture.tensor(f"{clip}/audio")[None]
    frontend = build_frontend(fixture.file.config.model)
    return audio.features(frontend, samples, torch.tensor([samples.size(1)]))[0]


@pytest.mark.parametrize("clip", CLIPS)
@torch.no_grad()
def test_features_and_subsampling(fixture: Fixture, clip: str) -> None:
    encoder, feats = fixture.file.model.encoder, features(fixture, clip)
    own = feats[0, encoder.rate.lead_frames :]
    assert difference(own, fixture.tensor(f"{clip}/feats")) < 10 * TOLERANCE
    assert mel_difference(own, fixture.tensor(f"{clip}/feats")) < TOLERANCE
    lengths, state = torch.tensor([feats.size(1)]), encoder.init_state(1, 0)
    normal = encoder.normalize(feats, lengths, state.position, Context(1))
    subsampled = encoder.subsampling(*normal, state.feats, state.hidden)[0][0]
    assert (
        difference(subsampled / encoder.dim**0.5, fixture.tensor(f"{clip}/subsampled")) < TOLERANCE
    )


@torch.no_grad()
def offline(fixture: Fixture, clip: str, name: str, chunk: int, left: int) -> tuple[float, float]:
    """How far the encoder and the head are from NeMo's."""
    model, feats = fixture.file.model, features(fixture, clip)
    state, lengths = model.encoder.init_state(1, left), torch.tensor([feats.size(1)])
    encoded = model.encoder(feats, lengths, state, chunk).frames[0]
    return (
        difference(encoded, fixture.tensor(f"{clip}/{name}/encoded")),
        difference(
            model.head.emissions(encoded[None])[0],
            blank_first(fixture.tensor(f"{clip}/{name}/log_probs")),
        ),
    )


@pytest.mark.parametrize("clip", CLIPS)
def test_offline_in_every_context(fixture: Fixture, clip: str) -> None:
    contexts = list(fixture.contexts())
    assert len(contexts) == 4
    for context in contexts:
        assert max(offline(fixture, clip, *context)) < TOLERANCE


def streamed(recognizer: Recognizer, samples: np.ndarray, seed: int) -> tuple[Tensor, str]:
    """Log-probabilities (E, V) and the text of a stream in random packets."""
    search = Recorder()
    session = recognizer.with_search(search).start()
    for packet in packets(samples, seed):
        session.accept(packet)
    text = session.finish().text
    return torch.cat(search.frames), text


@pytest.mark.parametrize("clip", CLIPS)
def test_streamed_in_every_context(fixture: Fixture, clip: str) -> None:
    samples = fixture.arrays[f"{clip}/audio"]
    for seed, (name, chunk, left) in enumerate(fixture.contexts()):
        recognizer = recognizer_of(fixture.file, Context(chunk, left))
        log_probs, text = streamed(recognizer, samples, seed)
        expected = blank_first(fixture.tensor(f"{clip}/{name}/log_probs"))
        assert difference(log_probs, expected) < TOLERANCE
        theirs = str(fixture.arrays[f"{clip}/{name}/text"])  # with a space for each empty sub-word
        assert text == " ".join(theirs.split())
        assert len(text) > 20


def test_the_settings(fixture: Fixture) -> None:
    context, model = fixture.file.config.context, fixture.file.config.model
    assert context.chunk_sizes == [14, 7, 2, 1]
    assert context.left_contexts == [70]
    assert (context.chunk_size, context.left_context) == (14, 70)
    encoder = fixture.file.model.encoder
    assert (model.frontend.kind, encoder.rate.lead_frames, encoder.rate.factor) == ("slaney", 7, 8)
    hybrid = fixture.imported.left_out.keys() == {"decoder", "joint"}
    assert hybrid or not fixture.imported.left_out


def test_control_a_wrong_weight_is_noticed(fixture: Fixture) -> None:
    weight = fixture.file.model.encoder.layers[-1].convolution.depthwise_norm.bias
    context = next(fixture.contexts())
    with torch.no_grad():
        weight += 0.01
    try:
        assert min(offline(fixture, "speech", *context)) > TOLERANCE
    finally:
        with torch.no_grad():
            weight -= 0.01


def test_a_full_context_model_is_refused_by_name() -> None:
    path = FIXTURES / "nemo-fastconformer-fullcontext" / "model.nemo"
    with pytest.raises(ValueError, match="normalize': input should be 'NA' or None"):
        import_checkpoint("nemo", path)

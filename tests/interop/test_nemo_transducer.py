"""Transducers of NeMo compute here what they compute there: every array, in every context."""

import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from asrkit import audio
from asrkit.build import build_frontend
from asrkit.evaluation.recording_search import Trace
from asrkit.interop import Imported, import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model import Context, TransducerHead
from asrkit.model.transducer_loss import transducer_loss
from asrkit.runtime import recognizer_of
from tests.conftest import SHARED_FIXTURES
from tests.laws.test_streaming import packets

NAMES = ["rnnt", "rnnt-stateless"]
CLIPS = ["speech", "synthetic"]
TOLERANCE = 1e-4
Fixture = tuple[Imported, dict[str, np.ndarray]]


def checkpoint(name: str) -> Path:
    folder = SHARED_FIXTURES / f"nemo-fastconformer-{name}"
    if not folder.is_dir():
        pytest.skip(f"no checkpoint of NeMo in {folder}")
    return folder


@pytest.fixture(scope="module", params=NAMES)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    folder = checkpoint(request.param)
    with np.load(folder / "expected.npz") as arrays:
        return import_checkpoint("nemo", folder / "model.nemo"), dict(arrays)


def head_of(imported: Imported) -> TransducerHead:
    head = imported.file.model.head
    assert isinstance(head, TransducerHead)
    return head


def contexts(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, Context]]:
    for name in sorted({key.split("/")[1] for key in arrays if key.endswith("/encoded")}):
        left, ahead = map(int, name.split("_")[1:])
        yield name, Context(ahead + 1, left // (ahead + 1) * (ahead + 1))


@torch.no_grad()
def after(head: TransducerHead, tokens: np.ndarray) -> Tensor:
    """The predictor's outputs before the first of NeMo's labels and after each: (U + 1, H)."""
    ours = torch.cat([torch.zeros(1, dtype=torch.long), torch.from_numpy(tokens) + 1])
    return head.predictor(ours[None], head.start(1))[0][0]


@torch.no_grad()
def test_predictor_grid_and_loss(fixture: Fixture) -> None:
    imported, arrays = fixture
    head, tokens = head_of(imported), arrays["predictor/tokens"]
    outputs = after(head, tokens)
    assert np.abs(outputs.numpy() - arrays["predictor/outputs"]).max() < 1e-5
    encoded = torch.from_numpy(arrays["speech/att_70_13/encoded"])[10:34]
    logits = head.join(head.project(encoded)[:, None], head.from_predictor(outputs))
    theirs = torch.from_numpy(arrays["grid/logits"]).roll(1, 2)
    assert (logits - theirs).abs().max() < TOLERANCE
    with torch.enable_grad():
        grid = theirs.double().requires_grad_()
        sizes = torch.tensor([24]), torch.tensor([len(tokens)])
        loss = transducer_loss(grid[None], torch.from_numpy(tokens)[None] + 1, *sizes)
        loss.sum().backward()
    assert abs(float(loss) - float(arrays["grid/loss"])) < 1e-6
    assert grid.grad is not None
    expected = torch.from_numpy(arrays["grid/gradient"]).roll(1, 2)
    assert (grid.grad - expected).abs().max() < 1e-6


@pytest.mark.parametrize("clip", CLIPS)
@torch.no_grad()
def test_offline_in_every_context(fixture: Fixture, clip: str) -> None:
    """Encoder, and every evaluation of the joint network in NeMo's search."""
    imported, arrays = fixture
    model, head = imported.file.model, head_of(imported)
    samples = torch.from_numpy(arrays[f"{clip}/audio"])[None]
    frontend = build_frontend(imported.file.config.model)
    feats, lengths = audio.features(frontend, samples, torch.tensor([samples.size(1)]))
    known = list(contexts(arrays))
    assert len(known) == 4
    for name, context in known:
        place = f"{clip}/{name}"
        state = model.init_state(1, context.left)
        encoded = model.encoder(feats, lengths, state, context.chunk_size).encoded[0]
        assert np.abs(encoded.numpy() - arrays[f"{place}/encoded"]).max() < TOLERANCE
        labels, frames = arrays[f"{place}/path_labels"], arrays[f"{place}/path_frames"]
        written = (labels != labels.max()).astype(int)  # the blank is the last label
        before = np.cumsum(written) - written
        outputs = head.from_predictor(after(head, arrays[f"{place}/tokens"]))
        found = head.join(head.project(encoded)[frames], outputs[before]).log_softmax(1)
        theirs = torch.from_numpy(arrays[f"{place}/path_log_probs"]).roll(1, 1)
        assert (found - theirs).abs().max() < TOLERANCE


@pytest.mark.parametrize("clip", CLIPS)
def test_tokens_frames_and_text_offline_and_in_random_packets(fixture: Fixture, clip: str) -> None:
    imported, arrays = fixture
    samples = arrays[f"{clip}/audio"]
    for seed, (name, context) in enumerate(contexts(arrays)):
        own = recognizer_of(imported.file, context)
        theirs = str(arrays[f"{clip}/{name}/text"])  # with a space for each empty sub-word
        for parts in ([samples], packets(samples, seed)):
            trace = Trace(own.search)
            session = own.with_search(trace).start()
            for packet in parts:
                session.accept(packet)
            assert session.finish().text == " ".join(theirs.split())
            assert [each - 1 for each in trace.hypothesis.tokens] == [
                *arrays[f"{clip}/{name}/tokens"]
            ]
            assert [*trace.hypothesis.starts] == [*arrays[f"{clip}/{name}/frames"]]
        assert len(trace.hypothesis.tokens) > 10


def test_control_another_blank_or_activation_is_noticed(fixture: Fixture) -> None:
    imported, arrays = fixture
    head, place = head_of(imported), "speech/att_70_13"
    samples = arrays["speech/audio"]
    right = [*arrays[f"{place}/tokens"] + 1]

    def tokens() -> list[int]:
        own = recognizer_of(imported.file, Context(14, 70))
        trace = Trace(own.search)
        own.with_search(trace).transcribe(samples)
        return [*trace.hypothesis.tokens]

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


def changed(path: Path, output: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a checkpoint with other settings."""
    with tarfile.open(path) as old, tarfile.open(output, "w") as new:
        for member in old:
            stored = old.extractfile(member)
            data = stored.read() if stored else b""
            if member.name.endswith("model_config.yaml"):
                settings = yaml.safe_load(data)
                change(settings)
                data = yaml.safe_dump(settings).encode()
            member.size = len(data)
            new.addfile(member, BytesIO(data))
    return output


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["decoder"].update(normalization_mode="layer"), "norms in the gates"),
        (lambda s: s["decoder"].update(blank_as_pad=False), "embeddings have no blank"),
        (lambda s: s["decoder"]["prednet"].update(rnn_hidden_size=96), "LSTM is projected"),
        (lambda s: s["decoder"].update(_target_="a.b.C"), "decoder._target_ must be"),
        (lambda s: s["decoder"].update(new=1), "decoder.new is unknown"),
        (lambda s: s["joint"].update(num_extra_outputs=5), "predicts durations too"),
        (lambda s: s["joint"]["jointnet"].update(activation="gelu"), "relu or tanh or sigmoid"),
        (lambda s: s["joint"].update(vocabulary=None), "joint.vocabulary must be a list"),
        (lambda s: s["decoding"].update(temperature=2.0), "temperature must be 1.0, got 2.0"),
        (lambda s: s["decoder"]["prednet"].update(pred_hidden=0), "pred_hidden must be a whole"),
        (lambda s: s["decoder"]["prednet"].update(pred_rnn_layers=2), "bias_hh_l1' must be"),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_refused_by_name(
    change: Callable[[dict[str, Any]], object], told: str, tmp_path: Path
) -> None:
    path = changed(checkpoint("rnnt") / "model.nemo", tmp_path / "m.nemo", change)
    with pytest.raises(CheckpointError) as error:
        import_checkpoint("nemo", path)
    assert told in str(error.value)

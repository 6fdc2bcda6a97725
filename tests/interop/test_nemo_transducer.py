"""Transducers of NeMo compute here what they compute there: every array, in every context."""

import tarfile
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from asrkit import audio
from asrkit.build import build_frontend
from asrkit.commands.info import described
from asrkit.evaluation.recording_search import Trace
from asrkit.interop import Imported, import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model import Context, CTCHead, TransducerHead
from asrkit.model.transducer_loss import transducer_loss
from asrkit.runtime import recognizer_of
from asrkit.text import decode
from tests.conftest import FIXTURES, toolkit_outputs
from tests.interop.test_nemo import difference
from tests.laws.test_streaming import packets

NAMES = [
    "rnnt", "rnnt-stateless", "rnnt-hybrid",
    *(f"rnnt-prompt:{language}" for language in ("en-US", "de-DE", "auto")),
]  # fmt: skip
CLIPS = ["speech", "synthetic"]
TOLERANCE = 1e-4


class Fixture(NamedTuple):
    """A checkpoint, and what NeMo computes with it; in a language, for a model with a prompt."""

    imported: Imported
    arrays: dict[str, np.ndarray]


def checkpoint(name: str) -> Path:
    return FIXTURES / f"nemo-fastconformer-{name}" / "model.nemo"


def outputs_of(name: str) -> dict[str, Any]:
    return toolkit_outputs(checkpoint(name).parent.name)


@pytest.fixture(scope="module", params=NAMES)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    name, _, language = request.param.partition(":")
    path = checkpoint(name)
    known = {
        key.replace(f"/{language}/", "/") if language else key: array
        for key, array in outputs_of(name).items()
    }
    return Fixture(import_checkpoint("nemo", path, None, language or None), known)


def head_of(imported: Imported) -> TransducerHead:
    head = imported.file.model.head
    assert isinstance(head, TransducerHead)
    return head


def contexts(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, Context]]:
    names = {key.split("/")[1] for key in arrays if key.endswith("/encoded")}
    for name in sorted(names, key=lambda name: -int(name.rpartition("_")[2])):
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
    name, _ = next(contexts(arrays))
    places = [f"speech/{name}/{each}" for each in ("en-US/prompted", "prompted", "encoded")]
    encoded = torch.from_numpy(next(arrays[place] for place in places if place in arrays))[10:34]
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


@torch.no_grad()
def head_differences(fixture: Any, place: str, frames: Tensor) -> dict[str, float]:
    """How far the head is from NeMo's on the frames (E, D) after the prompt, on NeMo's path."""
    imported, arrays = fixture
    head, found = head_of(imported), {}
    if f"{place}/prompted" in arrays:
        found["prompted"] = difference(frames, torch.from_numpy(arrays[f"{place}/prompted"]))
    if head.ctc is not None:
        log_probs = torch.from_numpy(arrays[f"{place}/log_probs"]).roll(1, 1)
        found["CTC"] = difference(head.ctc.emissions(frames[None])[0], log_probs)
    labels, path = arrays[f"{place}/path_labels"], arrays[f"{place}/path_frames"]
    theirs = torch.from_numpy(arrays[f"{place}/path_log_probs"]).roll(1, 1)
    written = (labels != theirs.size(1) - 1).astype(int)  # the blank is the last label
    before = np.cumsum(written) - written
    outputs = head.from_predictor(after(head, arrays[f"{place}/tokens"]))
    joined = head.join(head.project(frames)[path], outputs[before]).log_softmax(1)
    return found | {"joint": difference(joined, theirs)}


@torch.no_grad()
def offline(fixture: Any, clip: str, name: str, context: Context) -> dict[str, float]:
    """How far the encoder and the head are from NeMo's."""
    imported, arrays = fixture
    model, place = imported.file.model, f"{clip}/{name}"
    samples = torch.from_numpy(arrays[f"{clip}/audio"])[None]
    frontend = build_frontend(imported.file.config.model)
    feats, lengths = audio.features(frontend, samples, torch.tensor([samples.size(1)]))
    state = model.encoder.init_state(1, context.left)
    encoded = model.encoder(feats, lengths, state, context.chunk_size).frames[0]
    theirs = torch.from_numpy(arrays[f"{place}/encoded"])
    found = head_differences(fixture, place, head_of(imported).emissions(encoded))
    return {"encoder": difference(encoded, theirs)} | found


@pytest.mark.parametrize("clip", CLIPS)
def test_offline_in_every_context(fixture: Fixture, clip: str) -> None:
    """Encoder, and every evaluation of the joint network in NeMo's search."""
    known = list(contexts(fixture.arrays))
    assert len(known) > 2
    for name, context in known:
        assert max(offline(fixture, clip, name, context).values()) < TOLERANCE


def recognized(fixture: Any, place: str, context: Context, parts: Iterable[np.ndarray]) -> Trace:
    """The trace of a stream; its tokens, their frames and the text are NeMo's."""
    imported, arrays = fixture
    own = recognizer_of(imported.file, context)
    trace = Trace(own.search)
    session = own.with_search(trace).start()
    for packet in parts:
        session.accept(packet)
    theirs = str(arrays[f"{place}/text"])  # with a space for each empty sub-word
    assert session.finish().text == " ".join(theirs.split())
    assert [each - 1 for each in trace.hypothesis.tokens] == [*arrays[f"{place}/tokens"]]
    assert [*trace.hypothesis.starts] == [*arrays[f"{place}/frames"]]
    assert len(trace.hypothesis.tokens) > 10
    return trace


@pytest.mark.parametrize("clip", CLIPS)
def test_tokens_frames_and_text_offline_and_in_random_packets(fixture: Fixture, clip: str) -> None:
    samples = fixture.arrays[f"{clip}/audio"]
    for seed, (name, context) in enumerate(contexts(fixture.arrays)):
        for parts in ([samples], packets(samples, seed)):
            recognized(fixture, f"{clip}/{name}", context, parts)


def test_control_another_blank_or_activation_is_noticed(fixture: Fixture) -> None:
    imported, arrays = fixture
    name, context = next(contexts(arrays))
    head, place = head_of(imported), f"speech/{name}"
    samples = arrays["speech/audio"]
    right = [*arrays[f"{place}/tokens"] + 1]

    def tokens() -> list[int]:
        own = recognizer_of(imported.file, context)
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


def test_settings_of_published_models_that_their_classes_do_not_read(tmp_path: Path) -> None:
    """nemotron-3.5-asr-streaming has a CTC layer in its configuration, but no weights for it.

    The recipe of parakeet_realtime_eou tells how the labels for ends of turns begin.
    """

    def change(settings: dict[str, Any]) -> None:
        settings["model_defaults"]["norm"] = "None"
        settings |= {"token_init_method": "constant", "token_init_bias_value": -1000.0}
        settings["aux_ctc"] = {"ctc_loss_weight": 0.1, "decoder": {"vocabulary": []}}

    path = checkpoint("rnnt-prompt")
    plain, other = (
        import_checkpoint("nemo", each, prompt="auto").file
        for each in (path, changed(path, tmp_path / "m.nemo", change))
    )
    assert other.config == plain.config
    expected = plain.model.state_dict()
    assert all(torch.equal(expected[key], own) for key, own in other.model.state_dict().items())


def test_a_hybrid_keeps_both_heads_or_the_one_that_is_chosen(tmp_path: Path) -> None:
    path = checkpoint("rnnt-hybrid")
    both, ctc = (import_checkpoint("nemo", path, head) for head in (None, "ctc"))
    assert (both.left_out, ctc.left_out.keys()) == ({}, {"decoder", "joint"})
    assert min(ctc.left_out.values()) > 1000
    assert isinstance(ctc.file.model.head, CTCHead)
    own = head_of(both).ctc
    assert own is not None
    assert torch.equal(own.weight, ctc.file.model.head.weight)
    arrays = outputs_of("rnnt-hybrid")
    for _, context in contexts(arrays):
        name = f"speech/att_{context.left}_{context.chunk_size - 1}"
        trace = Trace(recognizer_of(ctc.file, context).search)
        recognizer_of(ctc.file, context).with_search(trace).transcribe(arrays["speech/audio"])
        assert [each - 1 for each in trace.hypothesis.tokens] == [*arrays[f"{name}/ctc_tokens"]]
    other = changed(path, tmp_path / "m.nemo", lambda s: s["joint"]["vocabulary"].reverse())
    with pytest.raises(CheckpointError, match=r"must be equal; --head ctc imports the CTC head"):
        import_checkpoint("nemo", other)
    import_checkpoint("nemo", other, "ctc")
    other = changed(path, tmp_path / "m.nemo", lambda s: s["aux_ctc"].pop("decoder"))
    with pytest.raises(CheckpointError, match="aux_ctc: missing key 'decoder'"):
        import_checkpoint("nemo", other)


@pytest.mark.parametrize(("stated", "expected"), [(0.1, 0.1), (0.0, 0.3), (1.0, 0.3), (None, 0.3)])
def test_the_shares_of_the_losses_in_training_refuse_no_hybrid(
    stated: float | None, expected: float, tmp_path: Path
) -> None:
    path = changed(
        checkpoint("rnnt-hybrid"), tmp_path / "m.nemo",
        lambda settings: settings["aux_ctc"].update(ctc_loss_weight=stated),
    )  # fmt: skip
    head = head_of(import_checkpoint("nemo", path))
    assert (head.ctc_weight, head.ctc is None) == (expected, False)


def test_labels_for_ends_and_languages_are_not_text(tmp_path: Path) -> None:
    """Those of parakeet_realtime_eou and nemotron-3.5-asr; here they replace labels."""
    path, arrays = checkpoint("rnnt"), outputs_of("rnnt")
    samples, tokens = arrays["speech/audio"], [*arrays["speech/att_70_13/tokens"]]
    *hidden, last = sorted({*tokens}, key=tokens.index)[:4]

    def change(settings: dict[str, Any]) -> None:
        vocabulary = settings["joint"]["vocabulary"]
        for token, label in zip(hidden, ("<EOU>", "<EOB>", "<en-US>"), strict=True):
            vocabulary[token] = label
        vocabulary[last] = "<en-us>"  # a control

    file = import_checkpoint("nemo", changed(path, tmp_path / "m.nemo", change)).file
    recognizer = recognizer_of(file, Context(14, 70))
    trace = Trace(recognizer.search)
    result = recognizer.with_search(trace).transcribe(samples)
    assert [each - 1 for each in trace.hypothesis.tokens] == tokens  # the labels are recognised
    assert result.text == decode(file.tokenizer, [t + 1 for t in tokens if t not in hidden])
    assert "<en-us>" in result.text
    assert "".join(word.text for word in result.words) == result.text.replace(" ", "")
    told = described(file)["vocabulary"]
    assert told.endswith("; labels without text: <EOB>, <EOU>, <en-US>")
    assert "without text" not in described(import_checkpoint("nemo", path).file)["vocabulary"]


def test_options_of_nemo_are_refused_for_wenet(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="--head has no effect on a checkpoint of wenet"):
        import_checkpoint("wenet", tmp_path, "ctc", "en")


def changed(
    path: Path,
    output: Path,
    change: Callable[[dict[str, Any]], object],
    more: dict[str, Tensor] | None = None,
) -> Path:
    """A copy of a checkpoint with other settings, and more weights."""
    with tarfile.open(path) as old, tarfile.open(output, "w") as new:
        for member in old:
            stored = old.extractfile(member)
            data = stored.read() if stored else b""
            if member.name.endswith("model_config.yaml"):
                settings = yaml.safe_load(data)
                change(settings)
                data = yaml.safe_dump(settings).encode()
            elif more is not None and member.name.endswith("model_weights.ckpt"):
                weights, stored_again = torch.load(BytesIO(data), weights_only=True), BytesIO()
                torch.save(weights | more, stored_again)
                data = stored_again.getvalue()
            member.size = len(data)
            new.addfile(member, BytesIO(data))
    return output


def set_in(*places: str, **values: object) -> Callable[[dict[str, Any]], object]:
    def change(settings: dict[str, Any]) -> None:
        for place in places:
            settings = settings[place]
        settings.update(values)

    return change


@pytest.mark.parametrize(
    ("name", "head", "prompt", "message", "change"),
    [
        ("rnnt", "ctc", None, "the model has no CTC head, which --head asks for: leave it", None),
        ("ctc", "transducer", None, "the model has no transducer, which --head asks for", None),
        ("rnnt", None, "de-DE", "only models with a language prompt take --prompt, got 'de-", None),
        ("rnnt-prompt", None, "xx", "or by --prompt, from 'en-US', 'en', 'de-", None),
        ("rnnt-prompt", None, None, "reads a language prompt, got None: choose one", None),
        ("rnnt-prompt", None, "en", "initialize_prompt_feature': input should be True",
         set_in("model_defaults", initialize_prompt_feature=False)),
        ("rnnt-prompt", None, "en", "must have more than 1",
         set_in("model_defaults", "prompt_dictionary", en=128)),
        ("rnnt-prompt", None, "en", "or equal to 0, got -1",
         set_in("model_defaults", "prompt_dictionary", en=-1)),
        ("rnnt-hybrid", "ctc", None, "unknown key 'decoder.x'", set_in("aux_ctc", "decoder", x=3)),
        ("rnnt-hybrid", "ctc", None, "'decoding.temperature': input should be",
         set_in("aux_ctc", decoding={"temperature": 0.5})),
        ("rnnt", None, None, "blank_as_pad': input", set_in("decoder", blank_as_pad=False)),
        ("rnnt", None, None, "decoder._target_': input", set_in("decoder", _target_="a.b.C")),
        ("rnnt", None, None, "unknown key 'decoder.new'", set_in("decoder", new=1)),
        ("rnnt", None, None, "num_extra_outputs': input", set_in("joint", num_extra_outputs=5)),
        ("rnnt", None, None, "input should be 'relu', 'tanh' or 'sigmoid'",
         set_in("joint", "jointnet", activation="gelu")),
        ("rnnt", None, None, "joint.vocabulary': input", set_in("joint", vocabulary=None)),
        ("rnnt", None, None, "temperature': input", set_in("decoding", temperature=2.0)),
        ("rnnt", None, None, "pred_hidden': input", set_in("decoder", "prednet", pred_hidden=0)),
        ("rnnt", None, None, "bias_hh_l1' must be",
         set_in("decoder", "prednet", pred_rnn_layers=2)),
    ],
)  # fmt: skip
def test_refusals(
    name: str, head: str | None, prompt: str | None, message: str,
    change: Callable[[dict[str, Any]], object] | None, tmp_path: Path,
) -> None:  # fmt: skip
    path = checkpoint(name)
    path = path if change is None else changed(path, tmp_path / "m.nemo", change)
    with pytest.raises(CheckpointError) as error:
        import_checkpoint("nemo", path, head, prompt)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["decoder.prediction.dec_rnn.lstm.weight_hr_l0", "ctc_decoder.x"])
def test_unknown_weights_are_refused(name: str, tmp_path: Path) -> None:
    """A projected LSTM has the first one."""
    more = {name: torch.zeros(1)}
    path = changed(checkpoint("rnnt-hybrid"), tmp_path / "m.nemo", lambda _: None, more)
    with pytest.raises(CheckpointError, match=r"is unknown|must be None"):
        import_checkpoint("nemo", path)

"""Folders in sherpa-onnx's layout of LSTM transducers: states carry streams, equal texts."""

from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asrkit.audio import HOP, features
from asrkit.backends.export_metadata import Exported
from asrkit.build import build_frontend
from asrkit.errors import UserError
from asrkit.export import sherpa_folder, sherpa_layouts, sherpa_lstm
from asrkit.export.__main__ import main
from asrkit.model import Context, Step, TransducerHead
from asrkit.model_file import ModelFile, save_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.text import CharTokenizer
from tests.conftest import fitted, speech, write_manifest, write_wav
from tests.export.sherpa_sessions import run, wired
from tests.laws.test_export import file_of

HEAD = {
    "kind": "transducer", "predictor": "stateless", "context": 2, "predictor_dim": 12,
    "joint_dim": 16, "max_symbols": 1,
}  # fmt: skip
CASES: list[Any] = [
    pytest.param(HEAD, "conv4", Context(4, 8), id="two-labels"),
    pytest.param(HEAD | {"context": 1}, "conv4", Context(4, 6, 2), id="look-ahead"),
    pytest.param(HEAD | {"context": 3}, "conv4_valid", Context(3, 0), id="no-left"),
]


def model_of(head: object, subsampling: object, context: Context) -> ModelFile:
    """A model with random weights that writes labels, at most one in a frame."""
    file = file_of(subsampling=subsampling, num_layers=1, head=head)
    frontend = build_frontend(file.config.model)
    samples = torch.from_numpy(speech(3.0))[None]
    feats, _ = features(frontend, samples, torch.tensor([samples.size(1)]))
    model = fitted(file.model, feats, context.chunk_size, context.left)
    return file._replace(model=model, tokenizer=CharTokenizer(list("abcdefghijk")))


def streamed(
    session: Any, feats: np.ndarray, forgets: bool = False, counted: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(B, E, D) and the last count as sherpa-onnx runs encoders on (B, T, F).

    Args:
        session: the encoder.
        feats: features.
        forgets: whether h is zeros in every step.
        counted: frames before the first step.
    """
    told = dict(session.get_modelmeta().custom_metadata_map)
    assert told.pop("model_type") == "lstm"
    layers, size, shift, width, counts = (
        int(told[key])
        for key in ("num_encoder_layers", "T", "decode_chunk_len", "d_model", "rnn_hidden_size")
    )
    h, c = (np.zeros((layers, len(feats), each), np.float32) for each in (width, counts))
    c[0, :] = divmod(counted, sherpa_lstm.MOST_COUNTED)
    found = []
    for start in range(0, feats.shape[1] - size, shift):
        output, h, c = run(session, feats[:, start : start + size], h, c)
        found.append(output)
        if forgets:
            h[:] = 0.0
    return np.concatenate(found, axis=1), c


@pytest.mark.slow
@pytest.mark.parametrize(("head", "subsampling", "context"), CASES)
def test_states_carry_a_stream(
    head: object, subsampling: object, context: Context, tmp_path: Path
) -> None:
    file = model_of(head, subsampling, context)
    exported = Exported("transducer", context, file.model.encoder.rate.frame_ms)
    sherpa_lstm.check(file, exported)
    encoder, decoder, joiner = wired(sherpa_lstm, file, exported, tmp_path)
    frontend = build_frontend(file.config.model)
    samples = torch.from_numpy(np.stack([speech(3.0), speech(3.0, seed=1)]))
    feats, _ = features(frontend, samples, torch.full((2,), samples.size(1)))
    found, count = streamed(encoder, feats.numpy())
    size = found.shape[1]
    assert size > 3 * context.chunk_size
    assert count.tolist() == [[[0, size], [0, size]]]
    step = Step(file.model.encoder, file.model.head, context)
    frames = file.model.encoder.rate.step_frames(context, size // context.chunk_size)
    with torch.no_grad():
        expected = step(feats[:, :frames], torch.full((2,), frames), step.init_state(2)).frames
    assert np.abs(found - expected.numpy()).max() < 1e-4
    if context.left:
        control, _ = streamed(encoder, feats.numpy(), forgets=True)
        assert np.abs(control - found).max() > 0.01
    compare_parts(file, decoder, joiner)
    year = 25 * 3600 * 24 * 365  # frames: more than a float counts
    _, count = streamed(encoder, feats.numpy(), counted=year)
    high, low = count[0, 0].astype(int)
    assert high * sherpa_lstm.MOST_COUNTED + low == year + size


def compare_parts(file: ModelFile, decoder: Any, joiner: Any) -> None:
    """The decoder gets the last labels, -1 before the first ones."""
    own, draw = file.model.head, torch.Generator().manual_seed(0)
    assert isinstance(own, TransducerHead)
    told = decoder.get_modelmeta().custom_metadata_map
    context = int(told["context_size"])
    assert int(told["vocab_size"]) == own.vocab_size
    labels, state, outputs = [-1] * (context - 1) + [0], own.start(1), []
    for _ in range(6):
        (predicted,) = run(decoder, np.array([labels[-context:]]))
        frame = torch.randn(1, own.from_encoder.in_features, generator=draw)
        (logits,) = run(joiner, frame.numpy(), predicted)
        with torch.no_grad():
            output, state = own.predict(torch.tensor([labels[-1]]), state)
            expected = own.join(own.project(frame), output)
        assert logits.shape == (1, own.vocab_size)
        assert np.abs(logits - expected.numpy()).max() < 1e-4
        outputs.append(predicted)
        labels.append(int(torch.randint(1, own.vocab_size, (), generator=draw)))
    assert len({each.tobytes() for each in outputs}) > 3


def replay_about(theirs: Any, ours: Recognizer, recordings: list[np.ndarray], tail: int) -> None:
    """Compare texts loosely: where weights are noise, seven bits decide some labels by chance."""
    (samples,) = recordings
    whole = np.concatenate([samples, np.zeros(tail, np.float32)])
    found, other = (sherpa_folder.text_of(theirs, each) for each in (whole, whole[::-1].copy()))
    expected = ours.transcribe(whole).text
    assert SequenceMatcher(None, found, expected).ratio() > 0.8
    assert SequenceMatcher(None, other, expected).ratio() < 0.7  # control


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sherpa-onnx", "sherpa-onnx-int8"])
@pytest.mark.parametrize(("head", "subsampling", "context"), CASES)
def test_texts_of_the_wheel_are_asrkits(
    head: object,
    subsampling: object,
    context: Context,
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sherpa_onnx")
    file, model = model_of(head, subsampling, context), tmp_path / "model.safetensors"
    save_model(model, file)
    rate = file.model.encoder.rate
    exported = Exported("transducer", context, rate.frame_ms)
    layout = sherpa_layouts.layout_of(file)
    tail, shift = layout.tail_samples(file, exported), rate.chunk_frames(context)
    recordings = []  # whose last chunk is whole for both, because these models write in silence
    for seed in range(4):
        samples = speech(3.0 + seed, seed=seed)
        beyond = (len(samples) // HOP + tail // HOP - 1) % shift
        recordings.append(samples[: (len(samples) // HOP - beyond) * HOP])
    replayed = write_wav(tmp_path / "a.wav", recordings[0])
    chunk, left, right = (str(frames * rate.frame_ms) for frames in context)
    options = ["--chunk-ms", chunk, "--left-ms", left, "--right-ms", right]
    folder = tmp_path / "folder"
    arguments = ["--model", str(model), "--format", form, "--output", str(folder), *options]
    ours = recognizer_of(file, context)
    if form.endswith("int8"):  # weights are noise: no match for seven bits
        monkeypatch.setattr("asrkit.commands.export.MOST_LOST", 1000.0)
        monkeypatch.setattr("asrkit.backends.registry.MOST_ROUNDING", 1.0)
        monkeypatch.setattr(sherpa_folder, "replay", replay_about)
        dev = write_manifest(
            tmp_path / "dev.jsonl", {"id": "a", "audio": str(replayed), "text": "a b c"}
        )
        arguments += ["--manifest", str(dev)]
    assert main([*arguments, "--audio", str(replayed)]) == 0  # compares the text
    if form.endswith("int8"):
        return
    theirs = layout.wheel(
        [folder / name for name in layout.files], folder / "tokens.txt", file, exported
    )
    sherpa_folder.replay(theirs, ours, recordings, tail)
    assert len({ours.transcribe(each).text for each in recordings}) == len(recordings)
    other = recognizer_of(file, Context(context.chunk_size + 1, context.left, context.right))
    with pytest.raises(UserError, match="sherpa-onnx recognised"):  # control
        sherpa_folder.replay(theirs, other, recordings, tail)


REFUSED = [
    ({"head": HEAD | {"max_symbols": 10}}, Context(4, 8), "at most 1 label in a frame"),
    ({"head": HEAD, "subsampling": "conv8"}, Context(4, 8), "frames of 40 ms"),
    ({"head": HEAD}, Context(1 << 30), "need chunks, got full context"),
]


@pytest.mark.parametrize(("options", "context", "told"), REFUSED)
def test_refusals(options: dict[str, Any], context: Context, told: str) -> None:
    file = file_of(**options)
    with pytest.raises(UserError, match=told):
        sherpa_layouts.layout_of(file).check(file, Exported("transducer", context))


def test_a_label_that_sherpa_onnx_reads_as_a_blank() -> None:
    file, exported = file_of(head=HEAD), Exported("transducer", Context(4, 8))
    sherpa_lstm.check(file, exported)

    class WithUnknown:
        vocab_size = 3

        def piece(self, token: int) -> str:
            return ["a", "<unk>"][token - 1]

    with pytest.raises(UserError, match="reads the label <unk> as a blank"):
        sherpa_lstm.check(file._replace(tokenizer=WithUnknown()), exported)  # type: ignore[arg-type]


def test_the_layout_of_a_stateless_predictor_with_kaldis_features() -> None:
    exported = Exported("transducer", Context(4, 8))
    file = file_of(head=HEAD)
    layout = sherpa_layouts.layout_of(file)
    assert layout.name == "lstm-transducer"
    readme = layout.readme("x", file, exported)
    assert all(name in readme for name in layout.files)
    assert "high_freq=8000.0,\n    snip_edges=True,\n    normalize_samples=False" in readme
    assert layout.tokens(file).startswith("<blk> 0\na 1\n")
    for frontend, head in (("sherpa_nemo", HEAD), ("kaldi", HEAD | {"predictor": "lstm"})):
        other = file_of(head=head, frontend=frontend)
        assert sherpa_layouts.layout_of(other).name == "nemo-transducer"

"""Folders in sherpa-onnx's layouts of NeMo: caches carry a stream, and texts equal asrkit's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from asrkit.audio import HOP, features
from asrkit.backends.export_metadata import Exported
from asrkit.build import build_frontend
from asrkit.errors import UserError
from asrkit.export import sherpa_folder, sherpa_graphs, sherpa_layouts, sherpa_nemo
from asrkit.export.__main__ import main
from asrkit.model import Context, Step, TransducerHead
from asrkit.model_file import ModelFile, save_model
from asrkit.runtime import recognizer_of
from asrkit.text import CharTokenizer
from tests.conftest import PADDED, RECORDINGS, fitted, speech, write_wav
from tests.export.sherpa_sessions import run, wired
from tests.laws.test_export import file_of

LSTM = {"kind": "transducer", "predictor_layers": 2, "predictor_dim": 16, "joint_dim": 24}
STATELESS = {
    "kind": "transducer", "predictor": "stateless", "context": 3, "predictor_dim": 12,
    "joint_dim": 16,
}  # fmt: skip
CASES: list[Any] = [
    pytest.param(LSTM, "conv4", Context(4, 8), id="lstm"),
    pytest.param(LSTM, PADDED, Context(2, 6, 1), id="look-ahead"),
    pytest.param(STATELESS, PADDED, Context(2, 0), id="stateless"),
    pytest.param(STATELESS | {"context": 1}, "conv4", Context(3, 6), id="last-label"),
    pytest.param("ctc", "conv4_valid", Context(4, 8, 2), id="ctc"),
]


def model_of(head: object, subsampling: object, context: Context) -> ModelFile:
    """A model with random weights that writes labels for sherpa-onnx's features."""
    file = file_of(subsampling=subsampling, num_layers=1, frontend="sherpa_nemo", head=head)
    frontend = build_frontend(file.config.model)
    samples = torch.from_numpy(speech(3.0))[None]
    feats, _ = features(frontend, samples, torch.tensor([samples.size(1)]))
    model = fitted(file.model, feats, context.chunk_size, context.left)
    # sherpa-onnx's texts may have several spaces in a row.
    return file._replace(model=model, tokenizer=CharTokenizer(list("abcdefghijk")))


def streamed(session: Any, feats: np.ndarray, forgets: bool = False) -> np.ndarray:
    """(B, E, …) as sherpa-onnx runs NeMo's encoders on (B, T, F); `forgets` the caches."""
    told = session.get_modelmeta().custom_metadata_map
    size, shift = int(told["window_size"]), int(told["chunk_shift"])
    channel, time = (
        np.zeros((len(feats), *(int(told[f"cache_last_{name}_dim{i}"]) for i in (1, 2, 3))), "f4")
        for name in ("channel", "time")
    )
    known, found = np.zeros(len(feats), np.int64), []
    for start in range(0, feats.shape[1] - size, shift):
        window = feats[:, start : start + size].transpose(0, 2, 1)
        length = np.full(len(feats), size)
        output, _, channel, time, known = run(session, window, length, channel, time, known)
        found.append(
            output if "logprobs" in session.get_outputs()[0].name else output.swapaxes(1, 2)
        )
        if forgets:
            channel[:] = 0.0
    return np.concatenate(found, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "subsampling", "context"), CASES)
def test_caches_carry_a_stream(
    head: object, subsampling: object, context: Context, tmp_path: Path
) -> None:
    file = model_of(head, subsampling, context)
    what = "ctc" if head == "ctc" else "transducer"
    exported = Exported(what, context, file.model.encoder.rate.frame_ms)  # type: ignore[arg-type]
    sherpa_nemo.check(file, exported)
    encoder, *parts = wired(sherpa_nemo, file, exported, tmp_path)
    frontend = build_frontend(file.config.model)
    samples = torch.from_numpy(np.stack([speech(3.0), speech(3.0, seed=1)]))
    feats, _ = features(frontend, samples, torch.full((2,), samples.size(1)))
    lead, step = frontend.lead_frames, Step(file.model.encoder, file.model.head, context)
    found = streamed(encoder, feats[:, lead:].numpy())
    size = found.shape[1]
    assert size > 3 * context.chunk_size
    frames = file.model.encoder.rate.step_frames(context, size // context.chunk_size)
    with torch.no_grad():
        expected = step(feats[:, :frames], torch.full((2,), frames), step.init_state(2)).frames
    if what == "ctc":
        expected = expected.roll(-1, dims=2)
    assert np.abs(found - expected.numpy()).max() < 1e-4
    assert np.abs(streamed(encoder, feats[:, lead:].numpy(), forgets=True) - found).max() > 0.01
    if parts:
        compare_parts(file, *parts)


def compare_parts(file: ModelFile, decoder: Any, joiner: Any) -> None:
    """The decoder's states are zeros at first, its first label is the blank, the last one."""
    own, draw = file.model.head, torch.Generator().manual_seed(0)
    assert isinstance(own, TransducerHead)
    layers, width = sherpa_nemo.predictor_sizes(own)
    states = [np.zeros((layers, 1, width), np.float32)] * 2
    token, state = 0, own.start(1)
    for _ in range(6):
        target = np.array([[(token - 1) % own.vocab_size]], np.int32)
        predicted, _, *states = run(decoder, target, np.ones(1, np.int32), *states)
        frame = torch.randn(1, own.from_encoder.in_features, generator=draw)
        (logits,) = run(joiner, frame[:, :, None].numpy(), predicted)
        with torch.no_grad():
            output, state = own.predict(torch.tensor([token]), state)
            expected = own.join(own.project(frame), output).roll(-1, dims=1)
        assert logits.shape == (1, 1, 1, own.vocab_size)
        assert np.abs(logits[0, 0] - expected.numpy()).max() < 1e-4
        token = int(torch.randint(1, own.vocab_size, (), generator=draw))


@pytest.mark.slow
@pytest.mark.parametrize(("head", "subsampling", "context"), CASES)
def test_texts_of_the_wheel_are_asrkits(
    head: object, subsampling: object, context: Context, tmp_path: Path
) -> None:
    pytest.importorskip("sherpa_onnx")
    file, model = model_of(head, subsampling, context), tmp_path / "model.safetensors"
    save_model(model, file)
    rate = file.model.encoder.rate
    exported = Exported("ctc" if head == "ctc" else "transducer", context, rate.frame_ms)
    layout = sherpa_layouts.layout_of(file)
    tail, shift = layout.tail_samples(file, exported), rate.chunk_frames(context)
    recordings = []  # whose last chunk is whole for both, because these models write in silence
    paths = sorted(RECORDINGS.glob("an4/audio/*/*.flac"), key=lambda path: path.stat().st_size)
    for path in paths[-10:]:
        samples = soundfile.read(path, dtype="float32")[0]
        beyond = (len(samples) // HOP + tail // HOP - 1) % shift
        recordings.append(samples[: (len(samples) // HOP - beyond) * HOP])
    replayed = write_wav(tmp_path / "a.wav", recordings[0])
    chunk, left, right = (str(frames * rate.frame_ms) for frames in context)
    options = ["--chunk-ms", chunk, "--left-ms", left, "--right-ms", right]
    folder = tmp_path / "folder"
    arguments = ["--model", str(model), "--format", "sherpa-onnx", "--output", str(folder)]
    assert main([*arguments, *options, "--audio", str(replayed)]) == 0
    theirs = layout.wheel(
        [folder / name for name in layout.files], folder / "tokens.txt", file, exported
    )
    ours = recognizer_of(file, context)
    sherpa_folder.replay(theirs, ours, recordings, tail)
    assert len({ours.transcribe(each).text for each in recordings}) == len(recordings)
    other = recognizer_of(file, Context(context.chunk_size + 1, context.left, context.right))
    with pytest.raises(UserError, match="sherpa-onnx recognised"):  # control
        sherpa_folder.replay(theirs, other, recordings, tail)


@pytest.mark.parametrize(("head", "subsampling", "context"), CASES)
def test_zeros_at_the_end_complete_the_last_chunk(
    head: object, subsampling: object, context: Context
) -> None:
    """However long a recording is; some lengths need nearly all of the zeros."""
    file = file_of(subsampling=subsampling, num_layers=1, frontend="sherpa_nemo", head=head)
    exported, rate = Exported("ctc", context), file.model.encoder.rate
    frontend, tail = build_frontend(file.config.model), sherpa_graphs.tail_samples(file, exported)
    windows = sherpa_graphs.windows_of(file.model.encoder, exported)

    def missing(size: int, tail: int) -> int:
        frames = (size + tail + HOP // 2) // HOP  # sherpa-onnx needs one more than a window
        steps = -(-(frames - windows.size) // windows.shift)
        return -(-rate.num_frames(frontend.num_frames(size)) // context.chunk_size) - steps

    sizes = range(16000, 16000 + 2 * HOP * windows.shift, HOP // 2)
    assert max(missing(size, tail) for size in sizes) <= 0
    assert max(missing(size, tail // 3) for size in sizes) == 1  # control


REFUSED = [
    ({"frontend": "kaldi", "head": LSTM}, Context(4, 8), "train with model.frontend=sherpa_nemo"),
    ({"frontend": "sherpa_nemo", "head": LSTM | {"max_symbols": 5}}, Context(4, 8), "got 5"),
    ({"frontend": "slaney"}, Context(1 << 30), "need chunks, got full context"),
]


@pytest.mark.parametrize(("options", "context", "told"), REFUSED)
def test_refusals(options: dict[str, Any], context: Context, told: str) -> None:
    file = file_of(**options)
    with pytest.raises(UserError, match=told):
        sherpa_layouts.layout_of(file).check(file, Exported("ctc", context))


@pytest.mark.parametrize(("options", "name"), [
    ({}, "wenet-ctc"), ({"frontend": "slaney"}, "nemo-ctc"),
    ({"frontend": "slaney", "head": LSTM}, "nemo-transducer"),
])  # fmt: skip
def test_the_layout_follows_head_and_features(options: dict[str, Any], name: str) -> None:
    file = file_of(**options)
    layout = sherpa_layouts.layout_of(file)
    assert layout.name == name
    exported = Exported("ctc", Context(4, 8))
    layout.check(file, exported)
    readme = layout.readme("x", file, exported)
    assert all(name in readme for name in layout.files)
    lines = layout.tokens(file).splitlines()
    assert (lines[0] == "<blk> 0") == (name == "wenet-ctc") != (lines[-1].startswith("<blk>"))

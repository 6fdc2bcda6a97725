"""Folders in sherpa-onnx's layouts of NeMo and of LSTM transducers: states carry streams."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from asrkit.audio import HOP, features
from asrkit.backends.export_metadata import PARTS, Exported
from asrkit.backends.transducer import part_steps
from asrkit.build import build_frontend
from asrkit.errors import UserError
from asrkit.export import onnx as onnx_export
from asrkit.export import sherpa_folder, sherpa_graphs, sherpa_layouts, sherpa_lstm
from asrkit.export.__main__ import main
from asrkit.export.verification import eager_step
from asrkit.model import Context, Step, TransducerHead
from asrkit.model_file import ModelFile, save_model
from asrkit.runtime import recognizer_of
from asrkit.text import CharTokenizer
from tests.conftest import PADDED, RECORDINGS, fitted, speech, write_wav
from tests.laws.test_export import file_of

LSTM = {"kind": "transducer", "predictor_layers": 2, "predictor_dim": 16, "joint_dim": 24}
STATELESS = {
    "kind": "transducer", "predictor": "stateless", "context": 2, "predictor_dim": 12,
    "joint_dim": 16, "max_symbols": 1,
}  # fmt: skip
NEMO: list[Any] = [
    pytest.param(LSTM, "sherpa_nemo", "conv4", Context(4, 8), id="nemo"),
    pytest.param(LSTM, "sherpa_nemo", PADDED, Context(2, 6, 1), id="nemo-look-ahead"),
    pytest.param("ctc", "sherpa_nemo", "conv4_valid", Context(4, 8, 2), id="nemo-ctc"),
]
CASES: list[Any] = [
    *NEMO,
    pytest.param(STATELESS, "kaldi", "conv4", Context(4, 8), id="lstm-two-labels"),
    pytest.param(
        STATELESS | {"context": 1}, "kaldi", "conv4", Context(4, 6, 2), id="lstm-look-ahead"
    ),
    pytest.param(
        STATELESS | {"context": 3}, "kaldi", "conv4_valid", Context(3, 0), id="lstm-no-left"
    ),
]
ARGUMENTS = ("head", "frontend", "subsampling", "context")


def exported_of(file: ModelFile, context: Context) -> Exported:
    is_transducer = isinstance(file.model.head, TransducerHead)
    rate = file.model.encoder.rate
    return Exported("transducer" if is_transducer else "ctc", context, rate.frame_ms)


def model_of(head: object, frontend: str, subsampling: object, context: Context) -> ModelFile:
    """A model with random weights that writes labels."""
    file = file_of(subsampling=subsampling, num_layers=1, frontend=frontend, head=head)
    samples = torch.from_numpy(speech(3.0))[None]
    own = build_frontend(file.config.model)
    feats, _ = features(own, samples, torch.tensor([samples.size(1)]))
    model = fitted(file.model, feats, context.chunk_size, context.left)
    # sherpa-onnx's texts may have several spaces in a row.
    return file._replace(model=model, tokenizer=CharTokenizer(list("abcdefghijk")))


def wired(file: ModelFile, exported: Exported, folder: Path) -> list[Any]:
    """Sessions of the graphs that sherpa-onnx runs, in ONNX Runtime."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    steps, head = {"encoder": (eager_step(file, exported), exported)}, file.model.head
    if isinstance(head, TransducerHead):
        steps |= {
            part: (step, exported._replace(what=part))
            for part, step in zip(PARTS, part_steps(head), strict=True)
        }
    for name, (step, what) in steps.items():
        onnx_export.write(step, folder / name, what, file)
    models = sherpa_layouts.layout_of(file).wired([folder / name for name in steps], file, exported)
    for model in models:
        onnx.checker.check_model(model, full_check=True)
    return [onnxruntime.InferenceSession(each.SerializeToString()) for each in models]


def run(session: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    names = [each.name for each in session.get_inputs()]
    found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
    return found


def as_nemo(session: Any, feats: np.ndarray, forgets: bool = False) -> np.ndarray:
    """(B, E, …) as sherpa-onnx runs NeMo's encoders on (B, T, F); `forgets` the caches."""
    about = session.get_modelmeta().custom_metadata_map
    size, shift = int(about["window_size"]), int(about["chunk_shift"])
    channel, time = (
        np.zeros((len(feats), *(int(about[f"cache_last_{name}_dim{i}"]) for i in (1, 2, 3))), "f4")
        for name in ("channel", "time")
    )
    known, found = np.zeros(len(feats), np.int64), []
    is_ctc = "logprobs" in session.get_outputs()[0].name
    for start in range(0, feats.shape[1] - size, shift):
        window = feats[:, start : start + size].transpose(0, 2, 1)
        length = np.full(len(feats), size)
        output, _, channel, time, known = run(session, window, length, channel, time, known)
        found.append(output if is_ctc else output.swapaxes(1, 2))
        if forgets:
            channel[:] = 0.0
    return np.concatenate(found, axis=1)


def as_lstm(
    session: Any, feats: np.ndarray, forgets: bool = False, counted: int = 0
) -> tuple[np.ndarray, int]:
    """(B, E, D) and the frames counted at the end, as sherpa-onnx runs LSTMs on (B, T, F).

    Args:
        session: the encoder.
        feats: features.
        forgets: whether h is zeros in every step.
        counted: frames before the first step.
    """
    about = dict(session.get_modelmeta().custom_metadata_map)
    assert about.pop("model_type") == "lstm"
    layers, size, shift, width, counts = (
        int(about[key])
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
    assert (c == c[:, :1]).all()
    high, low = c[0, 0].astype(int)
    return np.concatenate(found, axis=1), high * sherpa_lstm.MOST_COUNTED + low


@pytest.mark.slow
@pytest.mark.parametrize(ARGUMENTS, CASES)
def test_states_carry_a_stream(
    head: object, frontend: str, subsampling: object, context: Context, tmp_path: Path
) -> None:
    file = model_of(head, frontend, subsampling, context)
    exported = exported_of(file, context)
    sherpa_layouts.layout_of(file).check(file, exported)
    encoder, *parts = wired(file, exported, tmp_path)
    own = build_frontend(file.config.model)
    step = Step(file.model.encoder, file.model.head, context)
    samples = torch.from_numpy(np.stack([speech(3.0), speech(3.0, seed=1)]))
    feats, _ = features(own, samples, torch.full((2,), samples.size(1)))
    windows = feats[:, own.lead_frames :].numpy()
    is_nemo = frontend == "sherpa_nemo"
    found = as_nemo(encoder, windows) if is_nemo else as_lstm(encoder, windows)[0]
    size = found.shape[1]
    assert size > 3 * context.chunk_size
    frames = file.model.encoder.rate.step_frames(context, size // context.chunk_size)
    with torch.no_grad():
        expected = step(feats[:, :frames], torch.full((2,), frames), step.init_state(2)).frames
    expected = expected.roll(-1, dims=2) if head == "ctc" else expected
    assert np.abs(found - expected.numpy()).max() < 1e-4
    if context.left:
        control = as_nemo(encoder, windows, True) if is_nemo else as_lstm(encoder, windows, True)[0]
        assert np.abs(control - found).max() > 0.01
    if parts:
        compare_parts(file, *parts)
    if not is_nemo:
        for before in (0, 25 * 3600 * 24 * 365):  # a year's frames: more than a float counts
            assert as_lstm(encoder, windows, counted=before)[1] == before + size


def compare_parts(file: ModelFile, decoder: Any, joiner: Any) -> None:
    """NeMo's decoder has states, zeros at first; its blank is the last label. The other one gets
    the last labels, -1 before the first ones."""
    own, draw = file.model.head, torch.Generator().manual_seed(0)
    assert isinstance(own, TransducerHead)
    state, outputs = own.start(1), []
    is_nemo = len(decoder.get_inputs()) > 1
    if is_nemo:
        states, labels = [np.zeros((*state[0].shape[1:2], 1, state[0].size(2)), "f4")] * 2, [0]
    else:
        about = decoder.get_modelmeta().custom_metadata_map
        context = int(about["context_size"])
        assert int(about["vocab_size"]) == own.vocab_size
        labels = [-1] * (context - 1) + [0]
    for _ in range(6):
        frame = torch.randn(1, own.from_encoder.in_features, generator=draw)
        if is_nemo:
            target = np.array([[(labels[-1] - 1) % own.vocab_size]], np.int32)
            predicted, _, *states = run(decoder, target, np.ones(1, np.int32), *states)
            (logits,) = run(joiner, frame[:, :, None].numpy(), predicted)
            logits = np.roll(logits[0, 0], 1, axis=1)
        else:
            (predicted,) = run(decoder, np.array([labels[-context:]]))
            (logits,) = run(joiner, frame.numpy(), predicted)
        with torch.no_grad():
            output, state = own.predict(torch.tensor(labels[-1:]), state)
            expected = own.join(own.project(frame), output)
        assert logits.shape == expected.shape
        assert np.abs(logits - expected.numpy()).max() < 1e-4
        outputs.append(predicted)
        labels.append(int(torch.randint(1, own.vocab_size, (), generator=draw)))
    assert len({each.tobytes() for each in outputs}) > 3


@pytest.mark.slow
@pytest.mark.parametrize(ARGUMENTS, CASES)
def test_texts_of_the_wheel_are_asrkits(
    head: object, frontend: str, subsampling: object, context: Context, tmp_path: Path
) -> None:
    pytest.importorskip("sherpa_onnx")
    file, model = model_of(head, frontend, subsampling, context), tmp_path / "model.safetensors"
    save_model(model, file)
    exported, rate = exported_of(file, context), file.model.encoder.rate
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


@pytest.mark.parametrize(ARGUMENTS, NEMO)
def test_zeros_at_the_end_complete_the_last_chunk(
    head: object, frontend: str, subsampling: object, context: Context
) -> None:
    """However long a recording is; some lengths need nearly all of the zeros."""
    file = file_of(subsampling=subsampling, num_layers=1, frontend=frontend, head=head)
    exported, rate = Exported("ctc", context), file.model.encoder.rate
    own, tail = build_frontend(file.config.model), sherpa_graphs.tail_samples(file, exported)
    windows = sherpa_graphs.windows_of(file.model.encoder, exported)

    def missing(size: int, tail: int) -> int:
        frames = (size + tail + HOP // 2) // HOP  # sherpa-onnx needs one more than a window
        steps = -(-(frames - windows.size) // windows.shift)
        return -(-rate.num_frames(own.num_frames(size)) // context.chunk_size) - steps

    sizes = range(16000, 16000 + 2 * HOP * windows.shift, HOP // 2)
    assert max(missing(size, tail) for size in sizes) <= 0
    assert max(missing(size, tail // 3) for size in sizes) == 1  # control


@pytest.mark.parametrize(
    ("options", "context", "message"),
    [
        ({"head": LSTM}, Context(4, 8), "train with model.frontend=sherpa_nemo"),
        ({"frontend": "sherpa_nemo", "head": LSTM | {"max_symbols": 5}}, Context(4, 8), "got 5"),
        ({"frontend": "slaney", "head": STATELESS}, Context(4, 8), "has a stateless predictor"),
        ({"frontend": "slaney"}, Context(1 << 30), "need chunks, got full context"),
        ({"head": STATELESS | {"max_symbols": 10}}, Context(4, 8), "at most 1 label in a frame"),
        ({"head": STATELESS, "subsampling": "conv8"}, Context(4, 8), "frames of 40 ms"),
        ({"head": STATELESS}, Context(1 << 30), "need chunks, got full context"),
    ],
)
def test_refusals(options: dict[str, Any], context: Context, message: str) -> None:
    file = file_of(**options)
    with pytest.raises(UserError, match=message):
        sherpa_layouts.layout_of(file).check(file, Exported("ctc", context))


def test_a_label_that_sherpa_onnx_reads_as_a_blank() -> None:
    file, exported = file_of(head=STATELESS), Exported("transducer", Context(4, 8))
    sherpa_lstm.check(file, exported)

    class WithUnknown:
        vocab_size = 3

        def piece(self, token: int) -> str:
            return ["a", "<unk>"][token - 1]

    with pytest.raises(UserError, match="reads the label <unk> as a blank"):
        sherpa_lstm.check(file._replace(tokenizer=WithUnknown()), exported)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "wenet-ctc"),
        ({"frontend": "slaney"}, "nemo-ctc"),
        ({"frontend": "slaney", "head": LSTM}, "nemo-transducer"),
        ({"head": STATELESS}, "lstm-transducer"),
    ],
)
def test_the_layout_follows_head_and_features(options: dict[str, Any], name: str) -> None:
    file = file_of(**options)
    layout = sherpa_layouts.layout_of(file)
    assert layout.name == name
    exported = Exported("ctc", Context(4, 8))
    layout.check(file, exported)
    readme = layout.readme("x", file, exported)
    assert all(name in readme for name in layout.files)
    kaldi = "high_freq=8000.0,\n    snip_edges=True,\n    normalize_samples=False"
    assert (kaldi in readme) == (name == "lstm-transducer")
    lines = layout.tokens(file).splitlines()
    is_last = lines[-1].startswith("<blk>")
    assert (lines[0] == "<blk> 0") == (not is_last) == (not name.startswith("nemo"))

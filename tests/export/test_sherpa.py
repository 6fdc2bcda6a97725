"""Folders for sherpa-onnx, in each of its layouts: states carry streams, texts agree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

import asrkit
from asrkit.audio import HOP, features
from asrkit.backends.export_metadata import Exported
from asrkit.build import build_frontend
from asrkit.config.schema import parse_config
from asrkit.errors import UserError
from asrkit.export import sherpa_folder, sherpa_graphs, sherpa_layouts, sherpa_lstm
from asrkit.export.__main__ import main
from asrkit.model import Context, Network, TransducerHead, build_head
from asrkit.model_file import ModelFile, load_model, save_model
from asrkit.runtime import recognizer_of
from asrkit.text import END_OF_TURN, CharTokenizer
from tests.conftest import PADDED, RECORDINGS, fitted, speech, write_wav
from tests.laws.test_export import file_of
from tests.test_model_file import a_file

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
    samples = speech(3.0)[None]
    own = build_frontend(file.config.model)
    feats, _ = features(own, samples, np.array([samples.shape[1]]))
    model = fitted(file.model, torch.from_numpy(feats), context.chunk_size, context.left)
    # sherpa-onnx's texts may have several spaces in a row.
    return file._replace(model=model, tokenizer=CharTokenizer(list("abcdefghijk")))


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
    tail, shift = sherpa_graphs.tail_samples(file, exported), rate.chunk_frames(context)
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
        ({"head": STATELESS | {"max_symbols": 10}}, Context(4, 8), "labels in a frame is 1 for"),
        ({"subsampling": "conv4_valid"}, Context(8, 16), "look-ahead, this model has conv4_valid"),
        ({"subsampling": "conv8"}, Context(8, 16), "frames of 40 ms"),
        ({"kind": "absolute_keys"}, Context(8, 16), "keys as wide as values"),
        ({"layer": "transformer"}, Context(8, 16), "with convolutions, this model's have none"),
        ({}, Context(8, 25), "--left-ms must be a multiple of --chunk-ms for sherpa-onnx"),
        ({}, Context(1 << 30), "need chunks, got full context"),
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
    file = file_of(num_mels=28, **options)
    layout = sherpa_layouts.layout_of(file)
    assert layout.name == name
    exported = Exported("ctc", Context(4, 8))
    layout.check(file, exported)
    readme = layout.readme("x", file, exported)
    assert all(name in readme for name in [*layout.files, "feature_dim=28"])
    kaldi = "high_freq=8000.0,\n    snip_edges=True,\n    normalize_samples=False"
    assert (kaldi in readme) == (name == "lstm-transducer")
    lines = layout.tokens(file).splitlines()
    is_last = lines[-1].startswith("<blk>")
    assert (lines[0] == "<blk> 0") == (not is_last) == (not name.startswith("nemo"))


CONTEXT = Exported("ctc", Context(8, 16))
AHEAD = Exported("ctc", Context(8, 16, 3))
PHONE = {"kind": "kaldi", "high_frequency": 7600.0, "snip_edges": False}


@pytest.fixture(scope="module")
def file() -> ModelFile:
    return load_model("small-en-alnum")


def exported(model: str, folder: Path, right: int = 0) -> Path:
    pytest.importorskip("onnxruntime")
    options = ["--model", model, "--format", "sherpa-onnx", "--output", str(folder)]
    context = ["--chunk-ms", "320", "--left-ms", "640", "--right-ms", str(40 * right)]
    assert main([*options, *context]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("context", [CONTEXT, AHEAD], ids=["chunks", "look-ahead"])
def test_the_wheels_texts_are_asrkits(context: Exported, file: ModelFile, tmp_path: Path) -> None:
    pytest.importorskip("sherpa_onnx")
    paths = sorted(RECORDINGS.glob("an4/audio/*/*.flac"))[::3]
    recordings = [soundfile.read(path, dtype="float32")[0] for path in paths]
    folder = exported("small-en-alnum", tmp_path, context.context.right)
    ours = recognizer_of(file, context.context)
    theirs = sherpa_layouts.WENET_CTC.wheel(
        [folder / "model.onnx"], folder / "tokens.txt", file, context
    )
    tail = sherpa_graphs.tail_samples(file, context)
    sherpa_folder.replay(theirs, ours, recordings, tail)
    with pytest.raises(asrkit.errors.UserError, match="sherpa-onnx recognised"):  # control
        sherpa_folder.replay(theirs, recognizer_of(file, Context(2, 16)), recordings, tail)


@pytest.mark.parametrize("kind", ["ctc", "transducer"])
def test_labels_without_text_are_never_written(kind: str) -> None:
    tokenizer = CharTokenizer(list("abc")).with_label(END_OF_TURN)
    file = a_file(tokenizer)
    head = build_head({"kind": kind}, file.model.encoder.dim, tokenizer.vocab_size)
    file = file._replace(model=Network(file.model.encoder, head))
    own = head.out if isinstance(head, TransducerHead) else head
    assert isinstance(own, torch.nn.Linear)
    values = torch.randn(20, own.in_features)
    before = own(values)
    assert (before.argmax(1) == 4).any()
    sherpa_folder.silence_events(file)
    assert own(values)[:, 4].max() < -9000
    assert torch.equal(own(values)[:, :4], before[:, :4])
    plain = a_file(CharTokenizer(list("abc")))
    weights = {key: each.clone() for key, each in plain.model.head.state_dict().items()}
    sherpa_folder.silence_events(plain)
    left = plain.model.head.state_dict()
    assert all(torch.equal(left[key], each) for key, each in weights.items())


@pytest.mark.slow
def test_int8_and_its_own_features(tmp_path: Path, file: ModelFile) -> None:
    """As a phone runs it: sherpa-onnx is told of no features."""
    sherpa_onnx = pytest.importorskip("sherpa_onnx")
    values = file.config.model_dump(mode="json")
    values["model"]["frontend"] = PHONE
    save_model(tmp_path / "phone.safetensors", file._replace(config=parse_config(values)))
    lines = (RECORDINGS / "an4" / "dev.jsonl").read_text().splitlines()
    manifest = tmp_path / "dev.jsonl"
    manifest.write_text("\n".join(line.replace('"audio": "', f'"audio": "{RECORDINGS}/an4/')
                                  for line in lines))  # fmt: skip
    output = tmp_path / "folder"
    model = str(tmp_path / "phone.safetensors")
    assert main(["--model", model, "--format", "sherpa-onnx-int8", "--output", str(output),
                 "--manifest", str(manifest)]) == 0  # fmt: skip
    assert "high_freq" not in (output / "README.md").read_text()
    theirs = sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
        tokens=str(output / "tokens.txt"), model=str(output / "model.onnx"), num_threads=1,
        chunk_size=8, num_left_chunks=8,
    )  # fmt: skip
    paths = RECORDINGS.glob("an4/audio/f*/*.flac")
    recordings = [soundfile.read(path, dtype="float32")[0] for path in paths]
    tail = sherpa_graphs.tail_samples(file, Exported("ctc", Context(8, 64, 4)))
    sherpa_folder.replay(theirs, asrkit.load(model), recordings, tail)


def test_spaces_of_any_tokenizer(file: ModelFile) -> None:
    lines = sherpa_folder.tokens(file).splitlines()
    assert lines[0] == "<blk> 0"
    assert len(lines) == file.tokenizer.vocab_size
    assert all(len(line.split(" ")) == 2 for line in lines)
    assert file.model.encoder.rate.factor == sherpa_graphs.FACTOR

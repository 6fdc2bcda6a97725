"""Folders for sherpa-onnx: its caches carry a stream as asrkit's state does; its texts agree."""

from pathlib import Path

import pytest
import soundfile
import torch

import asrkit
from asrkit.backends.export_metadata import Exported
from asrkit.config.schema import parse_config
from asrkit.export import sherpa_folder, sherpa_graphs, sherpa_layouts
from asrkit.export.__main__ import main
from asrkit.model import Context, Network, TransducerHead, build_head
from asrkit.model_file import ModelFile, load_model, save_model
from asrkit.runtime import recognizer_of
from asrkit.text import END_OF_TURN, CharTokenizer
from tests.conftest import RECORDINGS
from tests.test_model_file import a_file

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

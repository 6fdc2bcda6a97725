"""WeNet's models: every array of the published computation, offline and streamed; refusals."""

import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from asrkit.backends.check import difference
from asrkit.backends.pytorch import eager
from asrkit.interop import Imported, import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model import FULL_CONTEXT, Context
from asrkit.model_file import load_model
from asrkit.runtime import Recognizer
from tests.conftest import FIXTURES, feats_of, toolkit_outputs
from tests.laws.encoder_laws import offline, stream
from tests.laws.test_streaming import Recorder, packets
from tests.running import run

MODELS = ["wenet-u2pp-ctc", "wenet-u2pp-ctc-batchnorm"]
CONTEXTS = {  # chunk and left context; as much as there is, in recordings of at most 106 frames
    "full": (FULL_CONTEXT, 0), "chunk16_left4": (16, 64), "chunk16_leftall": (16, 160),
    "chunk16_left0": (16, 0),
}  # fmt: skip
CLIPS = ["speech", "synthetic"]
Expected = dict[str, Any]


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / str(request.param)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return import_checkpoint("wenet", folder)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Expected:
    return toolkit_outputs(folder.name, "wenet-features.npz")


def features(expected: Expected, clip: str) -> Tensor:
    return torch.from_numpy(expected[f"{clip}/feats"])[None]


def off(found: Tensor, expected: Expected, name: str) -> float:
    return difference(found, torch.from_numpy(expected[name]))


def unrepeated(labels: list[int]) -> list[int]:
    """Of each run of equal labels one, without blanks."""
    return [label for label, _ in groupby(labels) if label]


@pytest.mark.parametrize("clip", CLIPS)
@torch.no_grad()
def test_features_and_subsampling(imported: Imported, expected: Expected, clip: str) -> None:
    """Features differ by float32: WeNet's filters are made in it, and bands of a frame that have
    hardly any energy are made of its rounding."""
    feats = features(expected, clip)
    apart = (feats_of(expected[f"{clip}/audio"]) - feats).abs()
    loud = feats > feats.amax(dim=2, keepdim=True) - 12
    assert loud.float().mean() > 0.8
    assert apart[loud].max() < 3e-4
    assert apart.max() < 2e-2
    encoder = imported.file.model.encoder
    state, lengths = encoder.init_state(1, 0), torch.tensor([feats.size(1)])
    frames = encoder.rate.num_frames(feats.size(1))
    normalized = encoder.normalize(feats, lengths, state.position, Context(frames))
    subsampled, _, _ = encoder.subsampling(*normalized, state.feats, state.hidden)
    assert off(subsampled[0], expected, f"{clip}/subsampled") < 1e-4


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("clip", CLIPS)
@torch.no_grad()
def test_encoder(imported: Imported, expected: Expected, clip: str, context: str) -> None:
    """Offline, and a chunk and three chunks at a time."""
    model, feats = imported.file.model, features(expected, clip)
    size = Context(*CONTEXTS[context])
    outputs = [offline(model.encoder, feats, size)]
    if not size.full:
        outputs += [stream(model.encoder, feats, size, n) for n in (1, 3)]
    for encoded in outputs:
        assert off(encoded[0], expected, f"{clip}/{context}/encoded") < 1e-4
        log_probs = model.head.emissions(encoded)[0]
        for name in ("log_probs", "stream_log_probs"):
            if f"{clip}/{context}/{name}" in expected:
                assert off(log_probs, expected, f"{clip}/{context}/{name}") < 1e-4
        tokens = expected[f"{clip}/{context}/tokens"].tolist()
        assert unrepeated(log_probs.argmax(dim=1).tolist()) == tokens


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("clip", CLIPS)
def test_samples_to_text(imported: Imported, expected: Expected, clip: str, context: str) -> None:
    """In one piece and in packets: text, log-probabilities as near as the features are; and one
    piece and packets are nearer to each other."""
    tokenizer, samples = imported.file.tokenizer, expected[f"{clip}/audio"]
    text = " ".join(str(expected[f"{clip}/{context}/text"]).replace("▁", " ").split())
    found = []
    for given in ([samples], packets(samples, 1), packets(samples, 2)):
        search = Recorder()
        backend = eager(imported.file.model, Context(*CONTEXTS[context]))
        session = Recognizer(backend, tokenizer, search).start()
        for packet in given:
            session.accept(packet)
        assert session.finish().text == text
        found.append(np.concatenate(search.frames))
        assert off(found[-1], expected, f"{clip}/{context}/log_probs") < 2e-3
    assert max(difference(each, found[0]) for each in found[1:]) < 1e-4


@pytest.mark.parametrize(
    "change",
    [
        {"subsampling": "conv4"}, {"position": "relative"}, {"conv_padding": "depthwise"},
        {"after_norm": False},
    ],
    ids=str,
)  # fmt: skip
@torch.no_grad()
def test_control_each_part_matters(
    folder: Path, expected: Expected, change: dict[str, Any]
) -> None:
    """The same weights in asrkit's usual shape do not give WeNet's numbers."""
    from asrkit.build_network import build_model

    file = import_checkpoint("wenet", folder).file
    other = build_model(file.config.model.model_validate(file.config.model.model_dump() | change),
                        file.tokenizer.vocab_size)  # fmt: skip
    weights = other.state_dict()
    for name, tensor in file.model.state_dict().items():
        if name in weights and weights[name].shape == tensor.shape:
            weights[name] = tensor
    other.load_state_dict(weights)
    encoded = offline(other.eval().encoder, features(expected, "speech"), Context(16, 64))
    frames = min(encoded.size(1), 106)
    wanted = torch.from_numpy(expected["speech/chunk16_left4/encoded"])[:frames]
    assert difference(encoded[0, :frames], wanted) > 1e-2


Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def small() -> Path:
    return FIXTURES / "wenet-u2pp-ctc-batchnorm"


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("expected.npz")
    return Path(shutil.copytree(small, tmp_path / "model", ignore=ignored))


def at(place: str, value: object) -> Change:
    """Set a key of train.yaml; its sections are before it."""

    def change(folder: Path) -> None:
        values = yaml.safe_load((folder / "train.yaml").read_text())
        section, (*names, key) = values, place.split(".")
        for name in names:
            section = section[name]
        section[key] = value
        (folder / "train.yaml").write_text(yaml.safe_dump(values))

    return change


def weigh(folder: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Change the weights; all of them."""
    weights = dict(torch.load(folder / "final.pt", weights_only=True))
    change(weights)
    torch.save(weights, folder / "final.pt")
    return weights


def forget(*endings: str) -> Callable[[dict[str, Any]], None]:
    def change(weights: dict[str, Any]) -> None:
        for name in [name for name in weights if name.endswith(endings)]:
            del weights[name]

    return change


@pytest.mark.parametrize(
    ("layer", "sizes", "width"), [("conv2d6", [3, 5], 12), ("conv2d8", [3, 3, 3], 9)]
)
def test_other_subsamplings(copy: Path, layer: str, sizes: list[int], width: int) -> None:
    """`tests/model/test_subsampling.py` computes with them."""
    stored = {"encoder.embed.linear.weight": torch.randn(32, 32 * width)}
    for i, size in enumerate(sizes):
        shape = (32, 32 if i else 1, size, size)
        stored[f"encoder.embed.conv.{2 * i}.weight"] = torch.randn(shape)
    stored |= {name.replace("weight", "bias"): torch.randn(32) for name in stored}

    def change(weights: dict[str, Any]) -> None:
        forget("embed.out.0.weight", "embed.out.0.bias")(weights)
        weights |= stored

    at("encoder_conf.input_layer", layer)(copy)
    weigh(copy, change)
    found = import_checkpoint("wenet", copy).file.model.encoder.subsampling.state_dict()
    assert len(found) == len(stored)
    for name, tensor in stored.items():
        name = name.removeprefix("encoder.embed.").replace("linear", "out")
        assert found[name].allclose(tensor * (32**0.5 if "out" in name else 1.0)), name


def test_an_older_folder(copy: Path, small: Path) -> None:
    """Without tokenizer and cmvn_conf; another name of the units."""
    values = yaml.safe_load((copy / "train.yaml").read_text())
    for key in ("tokenizer", "tokenizer_conf", "cmvn", "cmvn_conf", "dtype", "vocab_size"):
        del values[key]
    values |= {"cmvn_file": "/export/data/train/global_cmvn", "is_json_cmvn": True}
    (copy / "train.yaml").write_text(yaml.safe_dump(values))
    (copy / "units.txt").rename(copy / "words.txt")
    weigh(copy, forget(".pe", "num_batches_tracked"))
    older, newer = (import_checkpoint("wenet", folder) for folder in (copy, small))
    assert older.file.config == newer.file.config
    assert older.file.tokenizer.to_bytes() == newer.file.tokenizer.to_bytes()
    ours, theirs = (each.file.model.state_dict() for each in (older, newer))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    assert [each.name for each in older.read] == ["train.yaml", "words.txt", "final.pt"]


@pytest.mark.parametrize(
    ("settings", "sizes", "full_share"),
    [
        ({}, [4, 8, 16, 25], 0.5),
        ({"static_chunk_size": 12}, [12], 0.0),
        ({"use_dynamic_chunk": False}, [], 1.0),
    ],
)
def test_chunks(copy: Path, settings: dict, sizes: list[int], full_share: float) -> None:
    for key, value in settings.items():
        at(f"encoder_conf.{key}", value)(copy)
    context = import_checkpoint("wenet", copy).file.config.context
    assert (context.chunk_sizes, context.full_share) == (sizes, full_share)


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "m.safetensors"
    assert run("import", "wenet", copy, "--output", output, "--licence", "Apache-2.0") == 0
    assert "left out: attention decoder, 0.04 M parameters" in capsys.readouterr().out
    assert load_model(output).training["imported"]["licence"] == "Apache-2.0"


def units(content: str) -> Change:
    return lambda folder: (folder / "units.txt").write_text(content) and None


def with_weight(name: str, tensor: Tensor) -> Change:
    return lambda folder: weigh(folder, lambda weights: weights.update({name: tensor})) and None


HEAD = "ctc.ctc_lo.weight"
REFUSED: list[tuple[Change, str]] = [
    (at("encoder_conf.causal", False), "'encoder_conf.causal': input should be True, got False"),
    (at("encoder_conf.pos_enc_layer_type", "no_pos"), "input should be 'rel_pos', got 'no_pos'"),
    (at("encoder_conf.final_norm", False), "'encoder_conf.final_norm': input should be True"),
    (at("encoder_conf.look_back", 3), "unknown key 'encoder_conf.look_back'"),
    (at("encoder_conf.num_blocks", 3), "the weight 'encoder.encoders.2.norm_ff_macaron.weight'"),
    (at("encoder_conf.num_blocks", 1), "the weight 'encoder.encoders.1"),
    (at("encoder_conf.num_blocks", 10**9), "'encoder_conf.num_blocks': input should be less than"),
    (at("encoder_conf.output_size", 64), "must be (64,"),
    (at("encoder_conf.attention_heads", 3), "dim 32 must be a multiple of num_heads 3"),
    (at("encoder_conf", None), "'encoder_conf'"),
    (at("encoder", "transformer"), "'encoder': input should be 'conformer'"),
    (at("lora_conf", {"rank": 4}), "unknown key 'lora_conf'"),
    (at("model", "paraformer"), "'model': input should be 'asr_model'"),
    (at("dataset_conf.fbank_conf.low_freq", 80), "'dataset_conf.fbank_conf.low_freq'"),
    (at("dataset_conf.resample_conf", {"resample_rate": 8000}), "16000"),
    (at("tokenizer", "bpe"), "the folder has no file *.model"),
    (shutil.rmtree, "must be a folder with train.yaml"),
    (lambda folder: (folder / "units.txt").unlink(), "the folder has no file units.txt or words"),
    (units("<blank>\na\n"), "line 1 must be a label and 0"),
    (units("a 0\n"), "the first label must be <blank>"),
    (units("<blank> 0\na 1\na 2\n"), "symbols must be distinct"),
    (units("<blank> 0\n\x1b[2J 1\n"), "control character"),
    (units("<blank> 0\na 1\n"), "'head.bias' must be (2,), got"),
    (with_weight(HEAD, torch.zeros(30, 31)), "must be (30, 32), got (30, 31)"),
    (with_weight("encoder.encoders.0.self_attn.linear_q.weight", torch.zeros(())),
     "is inconsistent: zero-dim"),
    (lambda folder: weigh(folder, forget(HEAD)) and None, f"'{HEAD}' is missing"),
    (lambda folder: weigh(folder, forget("cmvn.mean")) and None, "cmvn.mean' is missing"),
    (with_weight("encoder.embed.conv.pe", torch.zeros(3)), "'encoder.embed.conv.pe' is unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[each[:40] for _, each in REFUSED])
def test_refusals(copy: Path, change: Change, message: str) -> None:
    change(copy)
    with pytest.raises(CheckpointError) as caught:
        import_checkpoint("wenet", copy)
    line = str(caught.value)
    assert message in line
    assert line.isprintable()
    assert len(line) < 1000

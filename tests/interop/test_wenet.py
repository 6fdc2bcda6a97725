"""WeNet's models: every array of the published computation, offline and streamed; refusals."""

import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from asrkit import audio
from asrkit.backends import eager
from asrkit.backends.check import difference
from asrkit.interop import Imported, import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model import FULL, FULL_CONTEXT, Context
from asrkit.model_file import load_model, save_model
from asrkit.runtime import Recognizer
from tests.conftest import FIXTURES, toolkit_outputs
from tests.interop import wenet_reference
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
    samples, feats = torch.from_numpy(expected[f"{clip}/audio"])[None], features(expected, clip)
    apart = (audio.Fbank()(samples, samples[:, :0])[0] - feats).abs()
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
        found.append(torch.cat(search.frames))
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
    from asrkit.build import build_model

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


def settle(folder: Path, **encoder: Any) -> dict[str, Any]:
    """Change encoder_conf; all settings."""
    values: dict[str, Any] = yaml.safe_load((folder / "train.yaml").read_text())
    values["encoder_conf"] |= encoder
    (folder / "train.yaml").write_text(yaml.safe_dump(values))
    return values


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


@pytest.mark.parametrize("kind", ["rel_pos", "abs_pos", "no_pos"])
@pytest.mark.parametrize("final_norm", [True, False])
@torch.no_grad()
def test_other_shapes(copy: Path, small: Path, kind: str, final_norm: bool) -> None:
    """Against WeNet's formulas, which give the published numbers where there are some."""
    relative = kind == "rel_pos"
    attention = "rel_selfattn" if relative else "selfattn"
    settings = {"pos_enc_layer_type": kind, "selfattention_layer_type": attention}
    settings = settle(copy, **settings, final_norm=final_norm)["encoder_conf"]
    gone = [] if relative else ["linear_pos.weight", "pos_bias_u", "pos_bias_v"]
    gone += [] if final_norm else ["encoder.after_norm.weight", "encoder.after_norm.bias"]
    weights = weigh(copy, forget(*gone) if gone else dict.copy)
    arrays = toolkit_outputs(small.name, "wenet-features.npz")
    feats = torch.from_numpy(arrays["speech/feats"])
    published = torch.from_numpy(arrays["speech/full/encoded"])
    wanted = wenet_reference.encode(weights, settings, feats)
    assert (difference(wanted, published) < 1e-4) == (relative and final_norm)
    encoder = import_checkpoint("wenet", copy).file.model.encoder
    assert difference(offline(encoder, feats[None], FULL)[0], wanted) < 1e-4


@pytest.mark.parametrize(
    ("layer", "sizes", "width"), [("conv2d6", [3, 5], 12), ("conv2d8", [3, 3, 3], 9)]
)
@torch.no_grad()
def test_other_subsamplings(
    copy: Path, small: Path, layer: str, sizes: list[int], width: int
) -> None:
    settings = settle(copy, input_layer=layer)["encoder_conf"]
    torch.manual_seed(0)

    def change(weights: dict[str, Any]) -> None:
        forget("embed.out.0.weight", "embed.out.0.bias")(weights)
        weights["encoder.embed.linear.weight"] = 0.05 * torch.randn(32, 32 * width)
        weights["encoder.embed.linear.bias"] = torch.randn(32)
        for i, size in enumerate(sizes):
            shape = (32, 32 if i else 1, size, size)
            weights[f"encoder.embed.conv.{2 * i}.weight"] = 0.1 * torch.randn(shape)
            weights[f"encoder.embed.conv.{2 * i}.bias"] = torch.randn(32)

    weights = weigh(copy, change)
    arrays = toolkit_outputs(small.name, "wenet-features.npz")
    feats = torch.from_numpy(arrays["speech/feats"])
    encoder = import_checkpoint("wenet", copy).file.model.encoder
    wanted = wenet_reference.encode(weights, settings, feats)
    assert len(wanted) == encoder.rate.num_frames(len(feats))
    assert difference(offline(encoder, feats[None], FULL)[0], wanted) < 1e-4


def test_fewer_mel_bins_than_the_widest_mask_of_training(copy: Path) -> None:
    """An imported model names no masks; their default does not concern it."""

    def change(weights: dict[str, Any]) -> None:
        for name in ("encoder.global_cmvn.mean", "encoder.global_cmvn.istd"):
            weights[name] = weights[name][:20].clone()
        weights["encoder.embed.out.0.weight"] = torch.randn(32, 32 * 4)

    weigh(copy, change)
    values = yaml.safe_load((copy / "train.yaml").read_text())
    values["dataset_conf"]["fbank_conf"]["num_mel_bins"] = 20
    (copy / "train.yaml").write_text(yaml.safe_dump(values))
    file = import_checkpoint("wenet", copy).file
    save_model(copy / "few.safetensors", file)
    assert load_model(copy / "few.safetensors").config.model.num_mels == 20


def test_an_older_folder(copy: Path, small: Path) -> None:
    """Without tokenizer, cmvn_conf and statistics in the weights; another name of the units."""
    values = settle(copy)
    for key in ("tokenizer", "tokenizer_conf", "cmvn", "cmvn_conf", "dtype", "vocab_size"):
        del values[key]
    values |= {"cmvn_file": "/export/data/train/global_cmvn", "is_json_cmvn": True}
    (copy / "train.yaml").write_text(yaml.safe_dump(values))
    (copy / "units.txt").rename(copy / "words.txt")
    weigh(copy, forget("global_cmvn.mean", "global_cmvn.istd", ".pe", "num_batches_tracked"))
    older, newer = (import_checkpoint("wenet", folder) for folder in (copy, small))
    assert older.file.config == newer.file.config
    assert older.file.tokenizer.to_bytes() == newer.file.tokenizer.to_bytes()
    ours, theirs = (each.file.model.state_dict() for each in (older, newer))
    for name, tensor in theirs.items():
        assert torch.allclose(ours[name], tensor, rtol=1e-5), name
    assert [each.name for each in older.read] == [
        "train.yaml", "words.txt", "final.pt", "global_cmvn"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "sizes", "full_share"),
    [
        ({}, [4, 8, 16, 25], 0.5),
        ({"static_chunk_size": 12}, [12], 0.0),
        ({"use_dynamic_chunk": False}, [], 1.0),
    ],
)
def test_chunks(copy: Path, settings: dict, sizes: list[int], full_share: float) -> None:
    settle(copy, **settings)
    context = import_checkpoint("wenet", copy).file.config.context
    assert (context.chunk_sizes, context.full_share) == (sizes, full_share)


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "m.safetensors"
    assert run("import", "wenet", copy, "--output", output, "--licence", "Apache-2.0") == 0
    assert "left out: attention decoder, 0.04 M parameters" in capsys.readouterr().out
    assert load_model(output).training["imported"]["licence"] == "Apache-2.0"


def refused(folder: Path) -> str:
    """The one line that an import ends with."""
    with pytest.raises(CheckpointError) as caught:
        import_checkpoint("wenet", folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert len(message) < 1000
    return message


def written(name: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data) and None


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def with_weight(name: str, tensor: Tensor) -> Change:
    return lambda folder: weigh(folder, lambda weights: weights.update({name: tensor})) and None


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


def of_encoder(key: str, value: object) -> Change:
    return at(f"encoder_conf.{key}", value)


def of_outside(folder: Path) -> None:
    at("tokenizer", "bpe")(folder)
    at("tokenizer_conf.bpe_path", "../../x/b.model")(folder)


HEAD = "ctc.ctc_lo.weight"
REFUSED: list[tuple[Change, str]] = [
    (of_encoder("causal", False), "'encoder_conf.causal': input should be True, got False"),
    (of_encoder("input_layer", "linear"),
     "'encoder_conf.input_layer': input should be 'conv2d', 'conv2d6'"),
    (of_encoder("input_layer", "conv2d6"), "the weight 'encoder.embed.linear.weight' is missing"),
    (of_encoder("pos_enc_layer_type", "rope_pos"), "'encoder_conf.pos_enc_layer_type': input shou"),
    (of_encoder("pos_enc_layer_type", "no_pos"), "rel_selfattn with no_pos cannot be imported"),
    (of_encoder("activation_type", "relu"), "'encoder_conf.activation_type': input should be 'sw"),
    (of_encoder("use_cnn_module", False), "'encoder_conf.use_cnn_module': input should be True"),
    (of_encoder("mlp_type", "moe"), "'encoder_conf.mlp_type': input should be"),
    (of_encoder("norm_eps", "1e-6"), "norm_eps must be 1e-05, got 1e-06"),
    (of_encoder("look_back", 3), "unknown key 'encoder_conf.look_back'"),
    (of_encoder("num_blocks", 3),
     "the weight 'encoder.encoders.2.norm_ff_macaron.weight' is missing"),
    (of_encoder("num_blocks", 1), "the weight 'encoder.encoders.1"),
    (of_encoder("num_blocks", 10**9), "'encoder_conf.num_blocks': input should be less than or eq"),
    (of_encoder("output_size", 64), "must be (64,"),
    (of_encoder("output_size", 10**6), "dim"),
    (of_encoder("attention_heads", 3), "dim 32 must be a multiple of num_heads 3"),
    (of_encoder("cnn_module_kernel", "15"), "'encoder_conf.cnn_module_kernel': input should be a"),
    (of_encoder("cnn_module_norm", "layer_norm"),
     "the weight 'encoder.encoders.0.conv_module.norm.run"),
    (at("encoder_conf", None), "'encoder_conf'"),
    (at("encoder", "transformer"), "'encoder': input should be 'conformer'"),
    (at("lora_conf", {"rank": 4}), "unknown key 'lora_conf.rank'"),
    (at("ctc", "star_ctc"), "'ctc': input should be 'ctc'"),
    (at("ctc_conf.scale", 2.0), "unknown key 'ctc_conf.scale'"),
    (at("model", "paraformer"), "'model': input should be 'asr_model'"),
    (at("dataset_conf.wav_scale", 2.0), "unknown key 'dataset_conf.wav_scale'"),
    (at("dataset_conf.feats_type", "mfcc"), "'dataset_conf.feats_type': input should be 'fbank'"),
    (at("dataset_conf.fbank_conf.low_freq", 80), "'dataset_conf.fbank_conf.low_freq'"),
    (at("dataset_conf.resample_conf", {"resample_rate": 8000}), "16000"),
    (at("cmvn_conf.norm_var", False), "unknown key 'cmvn_conf.norm_var'"),
    (at("tokenizer", "whisper"), "'tokenizer': input should be 'char' or"),
    (at("tokenizer_conf.connect_symbol", "_"), "'tokenizer_conf.connect_symbol'"),
    (at("tokenizer", "bpe"), "the folder has no file *.model"),
    (of_outside, "the folder has no file b.model or *.model"),
    (shutil.rmtree, "must be a folder with train.yaml"),
    (without("train.yaml"), "the folder has no file train.yaml"),
    (without("units.txt"), "the folder has no file units.txt or words.txt"),
    (without("final.pt"), "the folder has no file final.pt"),
    (written("train.yaml", "- 1"), "must have keys and values"),
    (written("train.yaml", "a: !!python/object/apply:os.system [ls]"), "is not YAML"),
    (written("train.yaml", b"\xff\xfe"), "is not UTF-8"),
    (written("units.txt", "<blank>\na\n"), "line 1 must be a label and 0"),
    (written("units.txt", "<blank> 0\na 2\n"), "line 2 must be a label and 1"),
    (written("units.txt", "a 0\n"), "the first label must be <blank>"),
    (written("units.txt", "<blank> 0\na 1\na 2\n"), "symbols must be distinct"),
    (written("units.txt", "<blank> 0\n\x1b[2J 1\n"), "control character"),
    (written("units.txt", "<blank> 0\na 1\n"), "'head.bias' must be (2,), got"),
    (written("final.pt", b"PK"), "is damaged, or has more than weights"),
    (with_weight(HEAD, torch.zeros(30, 31)), "must be (30, 32), got (30, 31)"),
    (with_weight("encoder.encoders.0.self_attn.linear_q.weight", torch.zeros(())),
     "is inconsistent: zero-dim"),
    (with_weight(HEAD, torch.zeros(30, 32, dtype=torch.int64)), "got torch.int64"),
    (lambda folder: weigh(folder, forget(HEAD)) and None, f"'{HEAD}' is missing"),
    *(
        (with_weight(name, torch.zeros(3)), f"the weight {name!r} is unknown")
        for name in ("encoder.embed.conv.pe", "prompt.weight", "encoder.after_norm.lora_A")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "told"), REFUSED, ids=[told[:40] for _, told in REFUSED])
def test_what_is_not_exact_or_hostile_is_refused_by_name(
    copy: Path, change: Change, told: str
) -> None:
    change(copy)
    assert told in refused(copy)


@pytest.mark.parametrize(
    "content",
    ["", "[1]", '{"mean_stat": 1}', "null", '{"mean_stat": [], "var_stat": [], "frame_num": 1}',
     '{"mean_stat": ["a"], "var_stat": [1], "frame_num": 1}', "[" * 100_000,
     '{"mean_stat": [1], "var_stat": [1], "frame_num": "x"}', "<Kaldi> [ 1 2 ]"],
)  # fmt: skip
def test_bad_statistics(copy: Path, content: str) -> None:
    weigh(copy, forget("global_cmvn.mean", "global_cmvn.istd"))
    (copy / "global_cmvn").write_text(content)
    message = refused(copy)
    assert "global_cmvn must be JSON with" in message or "'encoder.mean' must be (80,)" in message

"""The model file: everything in one, nothing that runs."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from asrkit import audio
from asrkit.checkpoint import FORMAT_VERSION, ModelFile, ModelFileError, load_model, save_model
from asrkit.config import parse_config
from asrkit.model import ConformerCTC
from asrkit.text import CharTokenizer, SentencePieceTokenizer, Tokenizer
from tests.conftest import fitted, speech, tiny_model

SIZES = {"dim": 24, "num_layers": 3, "ffn_dim": 48, "kernel_size": 5}


def a_file(tokenizer: Tokenizer | None = None, kind: str = "characters") -> ModelFile:
    tokenizer = tokenizer or CharTokenizer(list("äb c"))
    config = parse_config(
        {"data": {"train": "a", "dev": "b"}, "training": {"output_dir": "c"}, "model": SIZES,
         "text": {"tokenizer": kind}}
    )  # fmt: skip
    model = tiny_model(tokenizer.vocab_size).float()
    return ModelFile(model, tokenizer, config, {"dev_wer": {"full": 1.5}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_model(tmp_path / "m.safetensors", a_file())
    return tmp_path / "m.safetensors"


def edit(path: Path, **header: object) -> None:
    """Change the header of a model file."""
    rewrite(path, {}, header)


def rewrite(path: Path, tensors: dict[str, torch.Tensor], header: dict[str, object]) -> None:
    """Change tensors and the header of a model file, which then has no checksum."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        old = json.loads(file.metadata()["asrkit"])
    old.pop("sha256", None)
    metadata = {"asrkit": json.dumps(old | header)}
    save_file(load_file(path) | tensors, path, metadata=metadata)


def test_round_trip(path: Path) -> None:
    file, loaded = a_file(), load_model(path)
    assert loaded.config == file.config
    assert loaded.training == file.training
    assert loaded.tokenizer.encode("b ä") == file.tokenizer.encode("b ä")
    assert not loaded.model.training
    feats = torch.randn(1, 60, 80)
    state = loaded.model.init_state(1, 8)
    ours, theirs = (
        m(feats, torch.tensor([60]), state, 4).log_probs for m in (file.model, loaded.model)
    )
    assert torch.equal(ours, theirs)


@torch.no_grad()
def test_half_precision_is_half_the_bytes_and_changes_little(path: Path) -> None:
    samples = torch.from_numpy(speech(5.0))[None]
    feats = audio.Fbank()(samples, samples[:, :0])[0]
    lengths, file = torch.tensor([feats.size(1)]), a_file()
    fitted(file.model, feats)

    def log_probs(model: ConformerCTC) -> torch.Tensor:
        return model(feats, lengths, model.init_state(1, 8), 4).log_probs

    expected, whole = log_probs(file.model), path.stat().st_size
    save_model(path, file, torch.float16)
    assert path.stat().st_size < 0.55 * whole
    loaded = load_model(path).model
    assert {t.dtype for t in loaded.state_dict().values()} == {torch.float32}
    assert torch.equal(loaded.encoder.mean, file.model.encoder.mean)
    assert 0 < (log_probs(loaded) - expected).abs().max() < 0.1
    for parameter in loaded.parameters():  # control: three bits fewer are noticed
        parameter.copy_(parameter.bfloat16())
    assert (log_probs(loaded) - expected).abs().max() > 0.2


def test_a_weight_too_large_for_half_precision_is_not_written(path: Path) -> None:
    file, before = a_file(), path.read_bytes()
    file.model.head.bias.data[0] = 1e5
    with pytest.raises(ModelFileError, match=r"not written: head.bias is too large for .*float16"):
        save_model(path, file, torch.float16)
    assert path.read_bytes() == before
    save_model(path, file)  # float32 holds it


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("head.bias", torch.zeros(5, dtype=torch.int8), "must be float32 or float16, got .*int8"),
        ("head.bias", torch.zeros(5, dtype=torch.float64), "or float16, got .*float64"),
        ("head.bias", torch.zeros(6, dtype=torch.float16), "size mismatch"),
        ("tokenizer", torch.zeros(9, dtype=torch.float16), "no tokenizer"),
        ("extra", torch.zeros(1, dtype=torch.float16), "Unexpected key"),
    ],
)
def test_half_precision_opens_no_door(
    path: Path, name: str, tensor: torch.Tensor, message: str
) -> None:
    save_model(path, a_file(), torch.float16)
    rewrite(path, {name: tensor}, {})
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_sentencepiece_travels_along(tmp_path: Path) -> None:
    tokenizer = SentencePieceTokenizer.train(["yes no", "no yes"] * 3, 12)
    save_model(tmp_path / "m.safetensors", a_file(tokenizer, "unigram"))
    assert load_model(tmp_path / "m.safetensors").tokenizer.encode("yes") == tokenizer.encode("yes")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file"):
        load_model(tmp_path / "m.safetensors")


def test_corrupted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for broken in (data[:100], b"", b"x" * 1000, data[:-10]):
        path.write_bytes(broken)
        with pytest.raises(ModelFileError, match=r"is damaged or not a .safetensors file"):
            load_model(path)


def test_pickle_is_not_loaded(path: Path) -> None:
    class Bomb:
        def __reduce__(self):  # type: ignore[no-untyped-def]
            return (print, ("boom",))

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError, match="damaged"):
        load_model(path)


def test_other_version(path: Path) -> None:
    edit(path, format_version=FORMAT_VERSION + 1)
    with pytest.raises(ModelFileError, match="has format version 2; this asrkit reads version 1"):
        load_model(path)


def test_not_ours(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "m.safetensors")
    with pytest.raises(ModelFileError, match="but not an asrkit model"):
        load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("model", {"dim": 48}, "size mismatch"),
        ("model", {"dim": 8192, "num_layers": 256, "num_heads": 256}, "Missing key|size mismatch"),
        ("model", {"dim": 10**12}, "model.dim"),
        ("model", {"evil": 1}, "unknown key 'model.evil'"),
        ("text", {"tokenizer": "bpe"}, "not a sentencepiece model"),
    ],
)
def test_a_header_that_lies(path: Path, section: str, change: dict, message: str) -> None:
    """Checked against the tensors before any memory is taken."""
    config = a_file().config.model_dump(mode="json")
    config[section] |= change
    edit(path, config=config)
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_written_atomically(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asrkit.checkpoint

    before = path.read_bytes()

    def fails(tensors: object, target: Path, metadata: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(asrkit.checkpoint, "save_file", fails)
    with pytest.raises(OSError, match="disk full"):
        save_model(path, a_file())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_others_may_read_a_model_file_if_the_umask_lets_them(tmp_path: Path) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            save_model(tmp_path / "m.safetensors", a_file())
        finally:
            os.umask(before)
        assert (tmp_path / "m.safetensors").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("place", ["weights", "header"])
def test_a_flipped_bit_is_noticed(place: str, path: Path) -> None:
    """In a weight, where any bits are a number, and in a setting that may have another value."""
    content = path.read_bytes()
    at = len(content) - 3 if place == "weights" else content.index(b"32.0")
    changed = bytearray(content)
    changed[at] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ModelFileError, match="is damaged: its checksum is not that of what"):
        load_model(path)


def test_a_file_written_without_a_checksum_loads(path: Path) -> None:
    edit(path)
    assert b"sha256" not in path.read_bytes()
    assert load_model(path).config == a_file().config


def test_the_same_model_is_the_same_bytes(path: Path, environment: dict[str, str]) -> None:
    """In another process, too, whose hashes of strings are others."""
    program = (
        "import sys\n"
        "from asrkit.checkpoint import load_model, save_model\n"
        "save_model(sys.argv[2], load_model(sys.argv[1]))\n"
    )
    again = path.with_name("again.safetensors")
    command = [sys.executable, "-c", program, str(path), str(again)]
    subprocess.run(command, env=environment, check=True)
    assert again.read_bytes() == path.read_bytes()

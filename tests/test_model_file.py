"""The model file: everything in one, nothing that runs."""

import json
import pickle
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from asrkit.commands.info import main as info
from asrkit.commands.pack import main as pack
from asrkit.config.schema import parse_config
from asrkit.export.__main__ import main as export
from asrkit.model import Network
from asrkit.model_contents import ModelFileError
from asrkit.model_file import ModelFile, load_model, save_model
from asrkit.model_header import FORMAT_VERSION
from asrkit.text import CharTokenizer, Tokenizer
from tests.conftest import feats_of, fitted, speech, tiny_model

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
    old.pop("sha256", None)  # as in a file of before there was one
    metadata = {"asrkit": json.dumps(old | header)}
    save_file(load_file(path) | tensors, path, metadata=metadata)


def test_round_trip(path: Path) -> None:
    file, loaded = a_file(), load_model(path)
    assert loaded.config == file.config
    assert loaded.training == file.training
    assert loaded.tokenizer.encode("b ä") == file.tokenizer.encode("b ä")
    assert not loaded.model.training
    feats = torch.randn(1, 60, 80)
    state = loaded.model.encoder.init_state(1, 8)
    ours, theirs = (
        m.head.emissions(m.encoder(feats, torch.tensor([60]), state, 4).frames)
        for m in (file.model, loaded.model)
    )
    assert torch.equal(ours, theirs)


@torch.no_grad()
def test_half_precision_is_half_the_bytes_and_changes_little(path: Path) -> None:
    feats, file = feats_of(speech(5.0)), a_file()
    lengths = torch.tensor([feats.size(1)])
    fitted(file.model, feats)

    def log_probs(model: Network) -> torch.Tensor:
        state = model.encoder.init_state(1, 8)
        return model.head.emissions(model.encoder(feats, lengths, state, 4).frames)

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
        ("head.bias", torch.zeros(3, dtype=torch.bfloat16), "is damaged: its checksum"),
        ("head.other.weight", torch.ones(5, 24), "Unexpected key"),
    ],
)
def test_tensors_that_do_not_fit(path: Path, name: str, tensor: torch.Tensor, message: str) -> None:
    save_model(path, a_file(), torch.float16)
    rewrite(path, {name: tensor}, {"sha256": "0"} if tensor.dtype == torch.bfloat16 else {})
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


class Bomb:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (print, ("boom",))


@pytest.mark.parametrize("kind", ["missing", "cut", "shorter", "empty", "text", "pickle", "others"])
def test_files_that_are_no_model(kind: str, path: Path) -> None:
    data, message = path.read_bytes(), r"is damaged or not a .safetensors file"
    contents = {"cut": data[:100], "shorter": data[:-10], "empty": b"", "text": b"x" * 1000,
                "pickle": pickle.dumps(Bomb())}  # fmt: skip
    if kind == "missing":
        path.unlink()
        message = "no model file"
    elif kind == "others":
        save_file({"x": torch.zeros(1)}, path)
        message = "but not an asrkit model"
    else:
        path.write_bytes(contents[kind])
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


FLOW = {"kind": "flow"}
SOLVE = "period must be at most 16384 frames and 4096 steps"


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("model", {"dim": 48}, "size mismatch"),
        ("model", {"dim": 8192, "num_layers": 256, "num_heads": 256}, "Missing key|size mismatch"),
        ("model", {"dim": 10**12}, "model.dim"),
        ("model", {"evil": 1}, "unknown key 'model.evil'"),
        (None, 3, "'config': "),
        ("model", {"position": FLOW | {"period": 90_000}}, SOLVE),  # would take hours
        ("model", {"position": FLOW | {"period": 16000, "step": 1}}, SOLVE),
        ("text", {"tokenizer": "bpe"}, "not a sentencepiece model"),
        ("context", {"left_context": 10**6}, "context.left_context"),  # no memory holds it
        ("context", {"chunk_size": 10**6}, "context.chunk_size"),
        ("context", {"left_contexts": [10**6]}, "context.left_contexts"),
        ("context", {"chunk_sizes": [4] * 1000}, "context.chunk_sizes"),
    ],
)
def test_a_configuration_that_lies(
    path: Path, section: str | None, change: Any, message: str
) -> None:
    """Checked against the tensors before any memory is taken."""
    config = a_file().config.model_dump(mode="json")
    edit(path, config=config | {section: config[section] | change} if section else change)
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format_version": FORMAT_VERSION + 1}, "'format_version': .* equal to 1, got 2"),
        *(({"training": each}, "its header is damaged") for each in (["x"], "x", None, 1)),
        ({"training": {"x": "y" * (1 << 24)}}, "its header is damaged"),
        *(
            ({"training": {key: value}}, f"'training.{key}': .*, got ")
            for key, value in [
                ("wall_seconds", "x"), ("wall_seconds", float("inf")), ("averaged_epochs", 5),
                ("averaged_epochs", None), ("audio_hours_per_epoch", [1]), ("steps", 10**400),
            ]
        ),
    ],
    ids=range(12),
)  # fmt: skip
def test_a_header_that_lies(path: Path, header: dict, message: str) -> None:
    """The report computes with its numbers; a record that it does not read is not checked."""
    edit(path, training={"epochs": 2, "wall_seconds": 1, "dev_wer": {"full": "x"}})  # a control
    load_model(path)  # without a checksum, too
    edit(path, **header)
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    """In a weight, where any bits are a number, and in a setting that may have another value."""
    content, told = path.read_bytes(), "is damaged: its checksum is not that of its contents"
    for at in (len(content) - 3, content.index(b"32.0")):
        changed = bytearray(content)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ModelFileError, match=told):
            load_model(path)


def test_the_same_model_is_the_same_bytes(path: Path) -> None:
    """In another process, too, whose hashes of strings are others."""
    program = (
        "import sys\n"
        "from asrkit.model_file import load_model, save_model\n"
        "save_model(sys.argv[2], load_model(sys.argv[1]))\n"
    )
    again = path.with_name("again.safetensors")
    from tests.running import python  # which imports this file

    python(program, path, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["head.bias", "encoder.mean", "encoder.layers.1.norm.weight"])
def test_numbers_that_are_not_finite(path: Path, name: str, number: float) -> None:
    """Neither read nor written, by name: they would recognise nothing."""
    file = a_file()
    weights = file.model.state_dict()
    tensor = weights[name].clone()
    tensor.flatten()[-1] = number
    rewrite(path, {name: tensor}, {})
    with pytest.raises(ModelFileError, match=rf"m.safetensors: {name} holds NaN or infinity"):
        load_model(path)
    before = path.read_bytes()
    with torch.no_grad():
        weights[name].copy_(tensor)
    with pytest.raises(ModelFileError, match=f"not written: {name} holds NaN or infinity"):
        save_model(path, file)
    assert path.read_bytes() == before


MANY = {str(i): i for i in range(200_000)}  # in YAML they took a minute


def test_what_a_header_says_is_shown_harmlessly(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep: dict = {}
    for _ in range(400):
        deep = {"x": deep}
    for training in ({"\x1b]0;a\x07": "\x9b2J\u202e"}, {"long": ["x" * 100] * 3000}, deep, MANY):
        edit(path, training=training)
        start = time.process_time()
        assert info([str(path)]) == 0
        assert time.process_time() - start < 5.0
        out = capsys.readouterr().out
        assert all(line.isprintable() for line in out.split("\n"))
        assert len(out) < 250_000


def test_a_full_disk_is_a_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the old file stays."""
    before, output = path.read_bytes(), path.with_name("half.safetensors")
    with full_disk(), pytest.raises(OSError, match=rf"File too large: '{path}'"):
        save_model(path, a_file())
    assert path.read_bytes() == before
    with full_disk():
        assert pack(["--model", str(path), "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"asrkit pack: {output}: File too large\n"
    output = path.with_name("step.ts")
    with full_disk():
        command = ["--model", str(path), "--format", "torchscript", "--output", str(output)]
        assert export(command) == 2
    assert f"{output}: File too large\n" in capsys.readouterr().err
    assert list(path.parent.iterdir()) == [path]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file gets longer than a kilobyte."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)

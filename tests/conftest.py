"""Small models, recordings and corpora for the tests."""

import gc
import importlib.util
import json
import logging
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import pytest
import soundfile
import torch
from torch import nn

from asrkit.audio import Fbank
from asrkit.model import FULL_CONTEXT, ConformerEncoder, Network, TransducerHead, build_head
from asrkit.model.frontend import TorchFrontend
from asrkit.runtime import Result

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton: kernels run on the CPU

PROJECT = Path(__file__).parents[1]
FIXTURES = PROJECT / "tests" / "fixtures"
RECORDINGS = FIXTURES / "recordings"  # real ones, of a few corpora
SPEECH = RECORDINGS / "an4/audio/fmjd/an193-fmjd-b.flac"
PADDED = {"kind": "conv8", "pad_stages": True}
PADDED4 = {"kind": "conv4", "separable": True, "pad_stages": True}
STRIDED = [{"kind": "whisper", "stride": stride} for stride in (4, 8)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests in each, if ASRKIT_ORDER has a seed.

    Other tests, more or fewer, leave the order of the rest.
    """
    if seed := os.environ.get("ASRKIT_ORDER"):

        def place(name: str) -> float:
            return random.Random(f"{seed} {name}").random()

        items.sort(key=lambda item: (place(item.nodeid.partition("::")[0]), place(item.nodeid)))


@pytest.hookimpl(trylast=True)  # after the durations
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, and why, in one line."""
    skipped = terminalreporter.stats.get("skipped", [])
    counts = Counter(str(each.longrepr[2]).removeprefix("Skipped: ") for each in skipped)
    told = "; ".join(f"{reason} ({count})" for reason, count in counts.most_common())
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} skipped: {told}")


@pytest.fixture(autouse=True, scope="session")
def _process() -> None:
    torch.set_num_threads(1)  # several test processes share two cores
    # What a shell starts in the background ignores Ctrl-C, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def collected() -> None:
    """End generators that other tests left: where a deeply nested text is read they could not."""
    gc.collect()


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """A command that a test called does not write on in the tests that follow.

    It set up a process's log: on standard error as it was in that test, closed since.
    """
    loggers = [logging.getLogger(name) for name in ("asrkit", "asrkit.serve")]
    before = [(each.handlers, each.level) for each in loggers]
    interrupt = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, interrupt)  # a command that was stopped sets another
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers = handlers
        logger.setLevel(level)


def tiny_encoder(**changes: object) -> ConformerEncoder:
    """A small encoder in float64 whose every parameter matters (biases u and v start at zero)."""
    torch.manual_seed(0)
    sizes = {
        "num_mels": 20,
        "dim": 24,
        "num_heads": 4,
        "num_layers": 2,
        "ffn_dim": 48,
        "kernel_size": 5,
    }
    encoder = ConformerEncoder(**(sizes | changes)).double().eval()
    for name, parameter in encoder.named_parameters():
        if "norm" in name and name.endswith("weight"):
            nn.init.normal_(parameter, mean=1.0, std=0.3)
        elif "position" in name or "qkv" in name:
            nn.init.normal_(parameter, std=0.5)  # attention that chooses
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    encoder.mean.normal_()
    encoder.scale.uniform_(0.5, 2.0)
    return encoder


@pytest.fixture
def encoder() -> ConformerEncoder:
    return tiny_encoder()


def tiny_model(
    vocab_size: int = 12, head: str | dict[str, Any] = "ctc", **changes: object
) -> Network:
    """A small recogniser in float64 that says more than blanks."""
    encoder = tiny_encoder(**({"num_mels": 80, "num_layers": 3} | changes))
    model = Network(encoder, build_head(head, encoder.dim, vocab_size)).double().eval()
    for name, parameter in model.head.named_parameters():
        if name.endswith("weight"):
            nn.init.normal_(parameter, std=0.5)
        if "embed" in name:
            nn.init.zeros_(parameter[0])  # of the blank
    feats = 17.8 + 1.4 * torch.randn(1, 400, model.encoder.num_mels, dtype=torch.float64)
    return fitted(model, feats)


def feats_of(samples: np.ndarray, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Features (1, T, F) of (n,)."""
    whole = torch.from_numpy(samples).to(dtype)[None]
    return TorchFrontend(Fbank()).to(dtype)(whole, whole[:, :0])[0]


@torch.no_grad()
def fitted(
    model: Network, feats: torch.Tensor, chunk_size: int = FULL_CONTEXT, left_context: int = 0
) -> Network:
    """The model made for features (1, T, F) as training makes it: no label wins on average."""
    model.encoder.mean.copy_(feats[0].mean(0))
    model.encoder.scale.copy_(1 / feats[0].std(0).clamp(min=0.5))
    state, lengths = model.encoder.init_state(1, left_context), torch.tensor([feats.size(1)])
    encoded = model.encoder(feats, lengths, state, chunk_size).frames
    head = model.head
    if isinstance(head, TransducerHead):
        projected = head.project(encoded)[0]
        scale = 2.0 / projected.std(dim=0)  # frames of which each says something else
        head.from_encoder.weight.mul_(scale[:, None])
        head.from_encoder.bias.sub_(projected.mean(dim=0)).mul_(scale)
        predicted, _ = head.predict(torch.zeros(1, dtype=torch.long), head.start(1))
        logits = head.join(head.project(encoded), predicted)[0]
        mean = logits.mean(dim=0)
        head.out.bias.sub_(mean)
        margins = (logits - mean)[:, 1:].amax(dim=1) - (logits - mean)[:, 0]
        head.out.bias[0] += margins.quantile(0.3)  # a label begins in seven frames of ten
    else:
        head.bias.sub_(head(encoded).mean(dim=(0, 1)))
    return model


@pytest.fixture
def model() -> Network:
    return tiny_model()


def speech(seconds: float, seed: int = 0, rate: int = 16000) -> np.ndarray:
    """Something with pitch, formants, loud and soft parts: float32 (n,)."""
    return spoken(seconds, seed, rate).copy()


@lru_cache(64)
def spoken(seconds: float, seed: int, rate: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    pitch = 120 * (1 + 0.2 * np.sin(2 * np.pi * 0.7 * time + draw.uniform(0, 6)))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase + draw.uniform(0, 6)) / k for k in range(1, 20))
    voice = voice + draw.uniform(0, 2, len(time) // (rate // 10) + 1).repeat(rate // 10)[
        : len(time)
    ] * (draw.standard_normal(len(time)))  # noise whose level changes ten times a second
    loudness = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * time + draw.uniform(0, 6))
    samples = 0.1 * voice * loudness + 0.01 * draw.standard_normal(len(time))
    return samples.astype(np.float32)


def timed(result: Result) -> tuple[str, bool, list[tuple[str, float, float]]]:
    """A result without its confidences, which may differ in the last digit."""
    return result.text, result.is_final, [word[:3] for word in result.words]


def write_manifest(path: Path, *utterances: object) -> Path:
    """A JSON object a line."""
    path.write_text("".join(f"{json.dumps(each)}\n" for each in utterances))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a manifest."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_wav(path: Path, samples: np.ndarray, rate: int = 16000, **options: Any) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path


@pytest.fixture
def corpus(tmp_path: Path, made_corpus: Path) -> Path:
    """A folder with train.jsonl and dev.jsonl: twelve and three utterances of two words."""
    return shutil.copytree(made_corpus, tmp_path / "corpus", copy_function=shutil.copy)


@pytest.fixture
def shards(corpus: Path) -> Path:
    """The training set in shards of five."""
    from tests.running import run  # which imports this file

    folder = corpus / "shards"
    arguments = ("--output", folder, "--shard-size", 5)
    assert run("data", "shard", corpus / "train.jsonl", *arguments) == 0
    return folder


@pytest.fixture(scope="session")
def made_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "audio").mkdir(parents=True)
    for split, count in (("train", 12), ("dev", 3)):
        lines = []
        for i in range(count):
            samples = speech(1.0 + 0.2 * (i % 4), seed=i)
            path = write_wav(folder / "audio" / f"{split}{i}.flac", samples)
            text = ["yes no", "no", "no yes"][i % 3]
            lines.append({"id": f"{split}{i}", "audio": f"audio/{path.name}", "text": text})
        write_manifest(folder / f"{split}.jsonl", *lines)
    return folder


def write_config(path: Path, corpus: Path, output: Path, **training: object) -> Path:
    """A configuration that trains in seconds."""
    import yaml

    values = {
        "data": {"train": str(corpus / "train.jsonl"), "dev": str(corpus / "dev.jsonl"),
                 "max_batch_seconds": 4.0, "num_buckets": 2, "num_workers": 0},
        "augmentation": {"speed_factors": [1.0]},
        "model": {"dim": 16, "num_heads": 2, "num_layers": 2, "ffn_dim": 32, "kernel_size": 5},
        "context": {"chunk_sizes": [4, 16], "left_contexts": [16]},
        "training": {"output_dir": str(output), "epochs": 2, "num_threads": 1, "average": 2,
                     "intermediate_layers": [1], "export": False} | training,
    }  # fmt: skip
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def environment() -> dict[str, str]:
    """For commands in a process of their own."""
    return os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}


def mel_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of log mels (T, F), less where a frame has little energy.

    The rounding of a Fourier transform is relative to the frame's largest energy, and differs
    between processors.
    """
    assert found.shape == expected.shape
    weight = ((expected - expected.amax(-1, keepdim=True)) / 2).exp()
    return float(((found - expected).abs() * weight).max())


def toolkit_outputs(name: str, features: str | None = None) -> dict[str, Any]:
    """The arrays of a checkpoint of FIXTURES, and its clips; README.md there names them.

    Args:
        features: name of the file of features that the checkpoint shares with others.
    """
    own, arrays = FIXTURES / name / "synthetic.flac", {}
    clips = {"speech": SPEECH, "synthetic": own if own.exists() else FIXTURES / own.name}
    for clip, path in clips.items():
        arrays[f"{clip}/audio"], _ = soundfile.read(path, dtype="float32")
    for path in [FIXTURES / each for each in (features, f"{name}/expected.npz") if each]:
        with np.load(path) as stored:
            arrays |= stored
    return arrays


def skip(reason: str) -> NoReturn:
    """Skip a test for want of a package; a failure where all of them should be there."""
    if os.environ.get("ASRKIT_SKIP_NOTHING"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in for sounddevice, whose microphones hear `samples` and go away then."""
    path = PROJECT / "tests" / "fake" / "sounddevice.py"
    spec = importlib.util.spec_from_file_location("sounddevice", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return module

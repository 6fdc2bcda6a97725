"""Law 1 for a transducer, from training to streams: the predictor's past is a value."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import asrkit
from asrkit import Batcher, Recognizer, audio
from asrkit.backends import eager
from asrkit.config import ConfigError, load_config
from asrkit.errors import UserError
from asrkit.evaluation.recording_search import Trace
from asrkit.model import Context, TransducerHead
from asrkit.search import TransducerGreedySearch
from asrkit.text import CharTokenizer
from asrkit.train import main
from tests.conftest import fitted, speech, timed, tiny_model, write_config
from tests.laws.test_streaming import packets
from tests.running import run

HEADS: list[dict[str, Any]] = [
    {"kind": "transducer", "predictor_dim": 16, "joint_dim": 24, "max_symbols": 2},
    {"kind": "transducer", "predictor": "stateless", "predictor_dim": 12, "joint_dim": 16},
]
SMALL = "model.head={kind: transducer, predictor_dim: 32, joint_dim: 32, dropout: 0.0}"


def recognizer(head: dict[str, Any], context: Context) -> Recognizer:
    tokenizer = CharTokenizer(list("abcdefghij "))
    model = tiny_model(tokenizer.vocab_size, head)
    assert isinstance(model.head, TransducerHead)
    samples = torch.from_numpy(speech(3.0)).double()[None]
    feats, _ = audio.Fbank().double()(samples, samples[:, :0])
    model = fitted(model, feats, context.chunk_size, context.left)
    return Recognizer(eager(model, context), tokenizer, TransducerGreedySearch(model.head))


@torch.inference_mode()
def joint(head: TransducerHead, trace: Trace) -> Tensor:
    """Log-probabilities (E, U + 1, V) of every frame after every part of the text."""
    tokens = torch.tensor([[0, *trace.hypothesis.tokens]])
    predicted = head.from_predictor(head.predictor(tokens, head.start(1))[0])
    frames = head.project(trace.frames)
    return head.join(frames[:, None], predicted).log_softmax(dim=2)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("context", [Context(1, 0), Context(4, 8), Context(3, 6, 2)])
def test_joint_log_probs_of_random_packets_equal_offline(
    head: dict[str, Any], context: Context
) -> None:
    samples, own = speech(3.0), recognizer(head, context)
    found = []
    for seed in (None, 0, 1):
        trace = Trace(own.search)
        session = own.with_search(trace).start()
        for packet in [samples] if seed is None else packets(samples, seed):
            session.accept(packet)
        text = session.finish().text
        assert isinstance(own.backend.head, TransducerHead)
        found.append((text, trace.hypothesis[:3], joint(own.backend.head, trace)))
    (text, labels, whole), *others = found
    assert len(set(text)) > 2
    for other in others:
        assert other[:2] == (text, labels)
        assert (other[2] - whole).abs().max() < 1e-9


class Forgetful(TransducerGreedySearch):
    """A search that begins each step with the predictor's first state, as early ports do."""

    def step(self, state: Any, frames: Tensor) -> Any:
        fresh = self.start()
        changed = state._replace(predictor=fresh.predictor, output=fresh.output)
        return super().step(changed, frames)


@pytest.mark.parametrize("head", HEADS)
def test_control_a_predictor_that_forgets_between_chunks_is_noticed(head: dict[str, Any]) -> None:
    samples, own = speech(3.0), recognizer(head, Context(4, 8))
    assert isinstance(own.backend.head, TransducerHead)
    forgetful = own.with_search(Forgetful(own.backend.head))
    session = forgetful.start()
    for packet in packets(samples, 0):
        session.accept(packet)
    assert session.finish().text != own.transcribe(samples).text


def test_it_learns_and_streams_what_it_decodes(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    """Twelve utterances until the transcripts are right, by the commands of a user."""
    config = write_config(
        tmp_path / "config.yaml", corpus, tmp_path / "out", epochs=80, learning_rate=8e-3,
        average=2, validate_every_epochs=80, intermediate_layers=[1],
    )  # fmt: skip
    overrides = [
        SMALL, "model.dim=32", "model.dropout=0.0", "augmentation.spec_probability=0",
        "context.full_share=0.5",
    ]  # fmt: skip
    assert main(["--config", str(config), *overrides]) == 0
    path = tmp_path / "out" / "model.safetensors"
    utterances = [json.loads(line) for line in (corpus / "train.jsonl").read_text().splitlines()]
    for chunk_size, backend in (("full", "eager"), (16, "eager"), (4, "torchscript")):
        own = asrkit.load(path, chunk_size=chunk_size, backend=backend)
        results = [own.transcribe(corpus / u["audio"]) for u in utterances]
        assert [each.text for each in results] == [u["text"] for u in utterances]
        signals = [audio.load(corpus / u["audio"]) for u in utterances]
        assert [*map(timed, own.transcribe_batch(signals))] == [*map(timed, results)]
        if chunk_size == "full":
            continue
        batcher, draw = Batcher(own), random.Random(0)
        sessions = [batcher.start() for _ in signals]
        for session, samples in zip(sessions, signals, strict=True):
            for packet in packets(samples, draw.randrange(99)):
                session.accept(packet)
                if draw.random() < 0.3:
                    batcher.step()
            session.finish()
        while batcher.step():
            pass
        assert [timed(each.result) for each in sessions] == [*map(timed, results)]
        restored = own.restore(_half(own, signals[0]))
        restored.accept(signals[0][len(signals[0]) // 2 :])
        assert restored.finish().text == results[0].text
    with_beam = ("--search", "prefix_beam", "--beam", "4", "--chunk-ms", "160")
    assert run("decode", "--model", path, "--manifest", corpus / "train.jsonl", *with_beam) == 0
    lines = [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()]
    assert lines == [u["text"] for u in utterances]


def _half(own: Recognizer, samples: np.ndarray) -> bytes:
    session = own.start()
    session.accept(samples[: len(samples) // 2])
    return session.save()


def test_what_a_transducer_does_not_have_is_refused(tmp_path: Path, capsys: Any) -> None:
    from asrkit.model_file import save_model
    from tests.test_model_file import a_file

    own = recognizer(HEADS[0], Context(4, 8))
    with pytest.raises(UserError, match="cannot use hotwords; choose search prefix_beam"):
        own.with_hotwords(["a bad cab"])
    file, path = a_file(CharTokenizer(list("abc"))), tmp_path / "m.safetensors"
    head = HEADS[0] | {"ctc_weight": 0.0}
    config = file.config.model_copy(update={"model": type(file.config.model)(
        **file.config.model.model_dump() | {"head": head})})  # fmt: skip
    from asrkit.build import build_model

    save_model(path, file._replace(model=build_model(config.model, 4).eval(), config=config))
    for options, told in (
        (("--format", "onnx", "--what", "ctc"), "use --what transducer"),
        (("--format", "sherpa-onnx"), "the head of this model is a transducer"),
    ):
        output = tmp_path / "out"
        assert run("export", "--model", path, "--output", output, *options) == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.views=same", "model.head.ctc_weight must be above 0, got 0"),
        ("training.intermediate_layers=[1]", "model.head.ctc_weight must be above 0, got 0"),
        ("model.head.layers=3", "'model.head': transducer has no option 'layers'"),
        ("model.head.kind=rnnt", "'model.head.kind': must be one of ctc, transducer, got 'rnnt'"),
        ("model.head.dropout=2", "'model.head': dropout must be from 0 to below 1, got 2.0"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(
    override: str, message: str, corpus: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "config.yaml", corpus, tmp_path / "out")
    head = ["model.head={kind: transducer, ctc_weight: 0.0}", "training.intermediate_layers=[]"]
    load_config(config, head)
    with pytest.raises(ConfigError) as raised:
        load_config(config, [*head, override])
    assert message in str(raised.value)

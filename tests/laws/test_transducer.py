"""Law 1 for a transducer, from training to streams: the predictor's past is a value."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asrkit
from asrkit import Batcher, Endpointer, Recognizer, audio
from asrkit.backends.pytorch import eager
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import load_config
from asrkit.evaluation.recording_search import Trace
from asrkit.model import Context, TransducerHead
from asrkit.runtime.transcript import PIECE
from asrkit.search import Search, TransducerBeamSearch, TransducerGreedySearch
from asrkit.text import decode
from asrkit.train import main
from tests.conftest import speech, timed, write_config
from tests.laws.test_any_configuration import assert_same
from tests.laws.test_streaming import LETTERS, desynchronised, drain, network
from tests.running import run

SMALL = "model.head={kind: transducer, predictor_dim: 32, joint_dim: 32, dropout: 0.0}"


def recognizer(beam: int | None = None, endpointer: Endpointer | None = None) -> Recognizer:
    head = {"kind": "transducer", "predictor_dim": 16, "joint_dim": 24, "max_symbols": 2}
    model = network(speech(3.0), Context(4, 8), head=head)
    assert isinstance(model.head, TransducerHead)
    search: Search = TransducerGreedySearch(model.head)
    if beam is not None:
        search = TransducerBeamSearch(model.head, beam=beam)
    return Recognizer(eager(model, Context(4, 8)), LETTERS, search, endpointer=endpointer)


@pytest.mark.parametrize("beam", [None, 2])
def test_a_recording_with_endpoints_is_searched_once(
    beam: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the frames after an endpoint are searched again, a second at most."""
    own = recognizer(beam, Endpointer(120))
    samples = np.concatenate([speech(3.0), np.zeros(16000, np.float32)] * 5)
    (frames,) = own.emissions([samples])
    expected = own.read(frames, len(samples))
    trace = Trace(own.search)
    searched, project = [], own.search.head.project
    monkeypatch.setattr(
        own.search.head, "project", lambda each: searched.append(len(each)) or project(each)
    )
    result = own.with_search(trace).read(frames, len(samples))
    assert_same(result, expected)
    assert len(result.segments) > 4
    assert len(frames) <= sum(searched) <= len(frames) + PIECE * len(result.segments)
    assert np.array_equal(trace.emissions, frames)
    text = decode(own.tokenizer, trace.hypothesis.tokens)
    assert text.replace(" ", "") == result.text.replace(" ", "")


def test_a_search_of_several_streams_that_fails_ends_only_its_own_stream() -> None:
    class Failing(TransducerGreedySearch):
        def step_all(self, states: Any, frames: Any) -> Any:
            if any(
                state.frame == 8 and len(each) == 4
                for state, each in zip(states, frames, strict=True)
            ):
                raise ValueError("the eighth frame")
            return super().step_all(states, frames)

    own, samples = recognizer(), speech(1.4)
    batcher = Batcher(own.with_search(Failing(own.backend.transducer)))
    long, short = batcher.start(), batcher.start()
    long.accept(samples)
    short.accept(samples[:4000])
    for session in (long, short):
        session.finish()
    drain(batcher)
    assert isinstance(long.error, ValueError)
    assert_same(short.result, own.transcribe(samples[:4000]))


@pytest.mark.slow
def test_it_learns_and_streams_what_it_decodes(corpus: Path, tmp_path: Path, capsys: Any) -> None:
    """Twelve utterances, by the commands of a user; the many epochs make the transcripts right."""
    config = write_config(
        tmp_path / "config.yaml", corpus, tmp_path / "out", epochs=80, learning_rate=8e-3,
        validate_every_epochs=80,
    )  # fmt: skip
    overrides = [
        SMALL, "model.dim=32", "model.dropout=0.0", "augmentation.spec_probability=0",
        "context.full_share=0.5",
    ]  # fmt: skip
    assert main(["--config", str(config), *overrides]) == 0
    path, manifest = tmp_path / "out" / "model.safetensors", corpus / "train.jsonl"
    utterances = [json.loads(line) for line in manifest.read_text().splitlines()]
    written = [u["text"] for u in utterances]
    for chunk_size in ("full", 16, 4):
        own = asrkit.load(path, chunk_size=chunk_size, backend="eager")
        results = [own.transcribe(corpus / u["audio"]) for u in utterances]
        assert [each.text for each in results] == written
        signals = [audio.load(corpus / u["audio"]) for u in utterances]
        assert [*map(timed, own.transcribe_batch(signals))] == [*map(timed, results)]
        if chunk_size != "full":
            given = [(each, 16_000) for each in signals]
            together = desynchronised(own, given, random.Random(0))
            assert [*map(timed, together)] == [*map(timed, results)]
    with_beam = ("--search", "prefix_beam", "--beam", "4", "--chunk-ms", "160")
    assert run("decode", "--model", path, "--manifest", manifest, *with_beam) == 0
    assert [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()] == written


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.views=same", "model.head.ctc_weight must be above 0, got 0"),
        ("training.intermediate_layers=[1]", "model.head.ctc_weight must be above 0, got 0"),
        ("model.head.layers=3", "'model.head': transducer has no option 'layers'"),
        ("model.head.kind=rnnt", "'model.head.kind': must be one of ctc, transducer, got 'rnnt'"),
        ("model.head.dropout=2", "'model': head: dropout must be from 0 to below 1, got 2.0"),
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

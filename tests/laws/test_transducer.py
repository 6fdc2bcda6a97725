"""Law 1 for a transducer, from training to streams: the predictor's past is a value."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import asrkit
from asrkit import Batcher, Endpointer, Recognizer, audio
from asrkit.backends import eager
from asrkit.config import ConfigError, load_config
from asrkit.evaluation.recording_search import Trace
from asrkit.model import FULL, Context, TransducerHead
from asrkit.runtime import Result
from asrkit.runtime.transcript import PIECE
from asrkit.search import Search, TransducerBeamSearch, TransducerGreedySearch
from asrkit.text import decode
from asrkit.train import main
from tests.conftest import speech, timed, write_config
from tests.laws.test_streaming import LETTERS, desynchronised, drain, network
from tests.running import run

HEADS: list[dict[str, Any]] = [
    {"kind": "transducer", "predictor_dim": 16, "joint_dim": 24, "max_symbols": 2},
    {"kind": "transducer", "predictor": "stateless", "predictor_dim": 12, "joint_dim": 16},
]
LIVE = Context(4, 8)
SMALL = "model.head={kind: transducer, predictor_dim: 32, joint_dim: 32, dropout: 0.0}"


def recognizer(
    head: dict[str, Any],
    context: Context = LIVE,
    dtype: torch.dtype = torch.float64,
    endpointer: Endpointer | None = None,
    second: bool = False,
    beam: int | None = None,
) -> Recognizer:
    model = network(speech(3.0), context, head=head).to(dtype)
    assert isinstance(model.head, TransducerHead)
    search: Search = TransducerGreedySearch(model.head)
    if beam is not None:
        search = TransducerBeamSearch(model.head, beam=beam)
    return Recognizer(
        eager(model, context), LETTERS, search,
        endpointer=endpointer, second_pass=eager(model, FULL) if second else None,
    )  # fmt: skip


@pytest.mark.parametrize("beam", [None, 2])
@pytest.mark.parametrize("traces", [False, True])
def test_a_recording_with_endpoints_is_searched_once(
    beam: int | None, traces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the frames after an endpoint are searched again, a second at most."""
    own = recognizer(HEADS[0], endpointer=Endpointer(120), beam=beam)
    samples = np.concatenate([speech(3.0), np.zeros(16000, np.float32)] * 5)
    (frames,) = own.emissions([samples])
    expected = own.read(frames, len(samples))
    trace = Trace(own.search)
    searched, project = [], own.backend.head.project
    monkeypatch.setattr(
        own.backend.head, "project", lambda each: searched.append(len(each)) or project(each)
    )
    result = (own.with_search(trace) if traces else own).read(frames, len(samples))
    assert whole(result) == whole(expected)
    assert len(result.segments) > 4
    assert len(frames) <= sum(searched) <= len(frames) + PIECE * len(result.segments)
    if traces:
        assert torch.equal(trace.emissions, frames)
        text = decode(own.tokenizer, trace.hypothesis.tokens)
        assert text.replace(" ", "") == result.text.replace(" ", "")


def whole(result: Result) -> list[tuple[object, ...]]:
    """The segments and words of a result, with confidences to the precision of a law."""
    words = [(*word[:3], pytest.approx(word.confidence, abs=1e-4)) for word in result.words]
    return [*[(s.text, s.start, s.end) for s in result.segments], *words]


def together(own: Recognizer, signals: list[np.ndarray]) -> list[Result]:
    return desynchronised(own, [(each, 16_000) for each in signals], random.Random(0))


SIGNALS = [speech(seconds, seed) for seed, seconds in enumerate([1.4, 0.05, 1.8, 0.7])]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "options",
    [{}, {"context": Context(1, 0)}, {"context": Context(3, 6, 2)}, {"beam": 3},
     {"endpointer": Endpointer(pause_ms=40)},
     {"endpointer": Endpointer(pause_ms=40), "dtype": torch.float32},
     {"endpointer": Endpointer(pause_ms=40), "beam": 3},
     {"endpointer": Endpointer(pause_ms=40), "second": True},
     {"endpointer": Endpointer(pause_ms=40), "second": True, "beam": 3}],
    ids=lambda options: " ".join(options) or "greedy",
)  # fmt: skip
def test_streams_that_share_calls_of_the_joiner_equal_streams_alone(
    head: dict[str, Any], options: dict[str, Any]
) -> None:
    """With their n-best lists."""
    own = recognizer(head, **options)
    alone = [own.transcribe(samples) for samples in SIGNALS]
    for found in (together(own, SIGNALS), own.transcribe_batch(SIGNALS)):
        assert [*map(whole, found)] == [*map(whole, alone)]
        assert [*map(likeliest, found)] == [*map(likeliest, alone)]
    assert max(len(result.segments) for result in alone) > (1 if "endpointer" in options else 0)
    assert sum(len(result.text) for result in alone) > 20
    if "beam" in options:
        assert max(len(each.nbest) for result in alone for each in result.segments) == 3


def likeliest(result: Result) -> list[tuple[str, Any]]:
    """The n-best texts of all segments with their scores, to the precision of a law."""
    candidates = [each for segment in result.segments for each in segment.nbest]
    return [(each.text, pytest.approx(each.score, abs=1e-9)) for each in candidates]


class Forgetful(TransducerGreedySearch):
    """A search that begins each step with the predictor's first state, as early ports do."""

    def step_all(self, states: Any, frames: Any) -> Any:
        fresh = self.start()
        changed = [each._replace(predictor=fresh.predictor, output=fresh.output) for each in states]
        return super().step_all(changed, frames)


class Mixed(TransducerGreedySearch):
    """A search that gives a stream the predictor of its neighbour."""

    def step_all(self, states: Any, frames: Any) -> Any:
        found = super().step_all(states, frames)
        mixed = zip(found, [*found[1:], found[0]], strict=True)
        return [
            own._replace(predictor=other.predictor, output=other.output) for own, other in mixed
        ]


@pytest.mark.parametrize("kind", [Forgetful, Mixed])
@pytest.mark.parametrize("head", HEADS)
def test_control_a_predictor_of_another_past_is_noticed(
    head: dict[str, Any], kind: type[TransducerGreedySearch]
) -> None:
    own = recognizer(head)
    alone = [own.transcribe(samples) for samples in SIGNALS]
    found = together(own.with_search(kind(own.backend.head)), SIGNALS)
    assert [*map(whole, found)] != [*map(whole, alone)]


def test_a_search_of_several_streams_that_fails_ends_only_its_own_stream() -> None:
    class Failing(TransducerGreedySearch):
        def step_all(self, states: Any, frames: Any) -> Any:
            if any(
                state.frame == 8 and len(each) == 4
                for state, each in zip(states, frames, strict=True)
            ):
                raise ValueError("the eighth frame")
            return super().step_all(states, frames)

    own = recognizer(HEADS[0])
    batcher = Batcher(own.with_search(Failing(own.backend.head)))
    long, short = batcher.start(), batcher.start()
    long.accept(SIGNALS[0])
    short.accept(SIGNALS[0][:4000])
    for session in (long, short):
        session.finish()
    drain(batcher)
    assert isinstance(long.error, ValueError)
    assert whole(short.result) == whole(own.transcribe(SIGNALS[0][:4000]))


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
            assert [*map(timed, together(own, signals))] == [*map(timed, results)]
    with_beam = ("--search", "prefix_beam", "--beam", "4", "--chunk-ms", "160")
    assert run("decode", "--model", path, "--manifest", manifest, *with_beam) == 0
    assert [line.split("\t")[-1] for line in capsys.readouterr().out.splitlines()] == written
    assert run("align", "--model", path, "--manifest", manifest, "--format", "jsonl") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # Its CTC layer aligns, so times differ from the transducer's own.
    assert [[word["text"] for word in line["words"]] for line in found] == [
        text.split() for text in written
    ]
    measured = ("evaluate", "--model", path, manifest, "--chunk-ms", "640,160", "--format", "json")
    assert run(*measured) == 0
    found = json.loads(capsys.readouterr().out)["contexts"]
    late, sooner = (found[name]["delay_ms"]["median"] for name in ("640 ms", "160 ms"))
    assert sooner < late <= 640


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

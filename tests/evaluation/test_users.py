"""Whatever recognises is scored in one way, and what is printed is what decoding gives."""

import json
import re
from itertools import chain
from pathlib import Path

import jiwer
import pytest
import soundfile

import asrkit
from asrkit.backends.pytorch import eager
from asrkit.commands import export
from asrkit.data.inputs import read_distinct
from asrkit.data.recordings import load_recordings
from asrkit.data.text_encoder import TextEncoder
from asrkit.evaluation import ReferenceRecording, recognize, scores
from asrkit.evaluation.outcomes import aligned
from asrkit.model import FULL, Context
from asrkit.model.head import ctc_frames
from asrkit.model_file import load_model
from asrkit.runtime import Endpointer, Recognizer
from asrkit.search import GreedySearch
from asrkit.training.validation import held_out, validate
from tests.conftest import speech, write_manifest
from tests.report.pages import Page
from tests.running import run, talkative_model

TEXTS = ["ab ba cd", "ba", "dc ab"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with m.safetensors, dev.jsonl and twice.py, a postprocess."""
    monkeypatch.chdir(tmp_path)
    talkative_model(tmp_path / "m.safetensors", quiet=1.0)
    for i in range(len(TEXTS)):
        soundfile.write(tmp_path / f"{i}.wav", speech(2.0 + 0.3 * i, seed=i), 16000)
    lines = [{"id": str(i), "audio": f"{i}.wav", "text": t} for i, t in enumerate(TEXTS)]
    write_manifest(tmp_path / "dev.jsonl", *lines)
    (tmp_path / "twice.py").write_text("def words(text): return f'{text} {text.upper()}'\n")
    return tmp_path


def evaluated(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, dict[str, int]]:
    """Of the words, by name of the chunk size."""
    arguments = ["--model", "m.safetensors", "--format", "json", *options, "dev.jsonl"]
    assert run("evaluate", *arguments) == 0
    contexts = json.loads(capsys.readouterr().out)["contexts"]
    return {name: each["words"] for name, each in contexts.items()}


def test_what_is_printed_is_what_decoding_gives(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file alone through Python's API, and jiwer's counts of it."""
    ends, doubled = "--endpoint-ms 80", "--postprocess twice:words"
    both, found = f"{doubled} {ends}", []
    for options in ("", ends, doubled, both, f"{both} --search prefix_beam"):
        (words,) = evaluated(capsys, "--chunk-ms", 160, *options.split()).values()
        write = (lambda text: f"{text} {text.upper()}") if doubled in options else str
        recognizer = asrkit.load(
            "m.safetensors", chunk_size=4, endpointer=Endpointer(80) if ends in options else None,
            postprocess=write, search="prefix_beam" if "beam" in options else "greedy",
        )  # fmt: skip
        texts = [recognizer.transcribe(f"{i}.wav").text for i in range(len(TEXTS))]
        references = [write(text) for text in TEXTS]
        expected = jiwer.process_words(references, texts)
        for kind in ("substitutions", "deletions", "insertions"):
            assert words[kind] == getattr(expected, kind)
        assert words["reference_units"] == sum(len(text.split()) for text in references)
        found.append(words)
    plain, _, written, pieces, _ = found
    assert plain != written != pieces != plain  # control: an option that is ignored is noticed


def test_all_users_give_one_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """evaluate, decode, report, training and the int8 gate; of tune see its own tests."""
    file, context = load_model("m.safetensors"), ("--chunk-ms", 160, "--left-ms", 320)
    words = evaluated(capsys, *context)["160 ms"]
    kinds = ("substitutions", "deletions", "insertions")
    counts = tuple(words[kind] for kind in kinds)
    shown = f"({sum(counts)} of 6: {counts[0]} sub, {counts[1]} del, {counts[2]} ins)"
    assert run("decode", "--model", "m.safetensors", *context, "--manifest", "dev.jsonl") == 0
    assert shown in capsys.readouterr().err
    plain = eager(file.model, Context(4, 8))
    of_gate = export.score(plain, file, list(read_distinct("dev.jsonl")))
    encode = TextEncoder(file.tokenizer, str, file.config.model.rate.num_frames, ctc_frames)
    batches = held_out(load_recordings("dev.jsonl", []), encode, 60.0)
    outcomes = validate(file.model, file.tokenizer, GreedySearch(), batches, [Context(4, 8)])
    trained = scores(chain.from_iterable(outcomes))
    assert shown in str(of_gate.words)
    assert shown in str(trained["160 ms"].words)
    options = ["--manifest", "dev.jsonl", "--output", "r.html"]
    assert run("report", *options, *context, "m.safetensors") == 0
    page = Page.of((folder / "r.html").read_text(encoding="utf-8"))
    (row,) = re.findall(r"160 ms\s*(\d+\.\d\d %)", page.text)[:1]
    assert row == f"{100 * sum(counts) / 6:.2f} %"
    full = evaluated(capsys, "--chunk-ms", "full")["full"]
    assert tuple(full[kind] for kind in kinds) != counts  # control


def test_long_recordings_go_in_pieces_and_are_scored_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those too long for full context have no alignment, and so no delay."""
    file = load_model("m.safetensors")
    batch = [ReferenceRecording(str(i), speech(2.0, seed=i), "ab ba") for i in range(2)]
    recognizers = {
        "160 ms": Recognizer(eager(file.model, Context(4, 8)), file.tokenizer, GreedySearch())
    }
    full = eager(file.model, FULL)
    aligner = Recognizer(full, file.tokenizer, GreedySearch())
    (score,) = scores(recognize([batch], recognizers, aligner)).values()
    monkeypatch.setattr("asrkit.evaluation.outcomes.PIECES_SECONDS", 1.0)
    monkeypatch.setattr("asrkit.evaluation.outcomes.MOST_ALIGNED_SECONDS", 1.0)
    (in_pieces,) = scores(recognize([batch], recognizers, aligner)).values()
    assert in_pieces.each == score.each
    assert in_pieces.loss == pytest.approx(score.loss, rel=1e-4)
    assert score.delay is None or in_pieces.delay is None
    assert aligned(aligner, batch[0]) is None


def test_what_is_left_out_is_named_and_ends_with_status_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scores are those of the rest."""
    (folder / "1.wav").unlink()
    assert run("ngram", "--model", "m.safetensors", "--output", "lm.arpa", "dev.jsonl") == 0
    capsys.readouterr()
    for command, options in (
        ("evaluate", ["--chunk-ms", 160, "--model", "m.safetensors", "dev.jsonl"]),
        ("tune", ["--model", "m.safetensors", "--beam", 1, "--lm", "lm.arpa", "dev.jsonl"]),
        ("report", ["m.safetensors", "--manifest", "dev.jsonl", "--output", "r.html"]),
    ):
        assert run(command, *options) == 1
        (line,) = [each for each in capsys.readouterr().err.splitlines() if "scored" in each]
        assert line.startswith(f"asrkit {command}: not scored 1: ")
    (folder / "dev.jsonl").write_text("")
    assert run("decode", "--model", "m.safetensors", "--manifest", "dev.jsonl") == 2
    assert "dev.jsonl has no utterances to decode" in capsys.readouterr().err

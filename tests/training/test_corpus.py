"""The corpus: its last label, recordings that cannot be read, words that cannot be written."""

import json
import re
from pathlib import Path

import pytest

from asrkit import audio
from asrkit.config.schema import load_config
from asrkit.data.manifest import ManifestError
from asrkit.data.recordings import load_recordings
from asrkit.model_file import load_model, save_model
from asrkit.text import CharTokenizer, end_of_turn
from asrkit.training.dataset import feature_statistics, load_corpus, unwritable
from tests.conftest import read_rows, speech, write_config, write_manifest, write_wav
from tests.test_model_file import a_file
from tests.training.test_shards import train


def test_audio_that_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    write_wav(tmp_path / "0.wav", speech(1.0))
    line = {"id": "x", "audio": "0.wav", "text": "a", "duration": 1.0, "sample_rate": 8000}
    found = load_recordings(str(write_manifest(tmp_path / "train.jsonl", line)), [])
    with pytest.raises(ManifestError, match=r"be read; one of them: .*0\.wav: the manifest has"):
        feature_statistics(found, audio.Fbank(80))


@pytest.mark.parametrize("key", ["train", "replay", "dev", "canary"])
def test_bad_lines_are_bounded_in_every_set(key: str, corpus: Path, tmp_path: Path) -> None:
    path = corpus / f"{key}-with-a-bad-line.jsonl"
    bad = {"id": "x", "audio": "missing.flac", "text": "no"}
    path.write_text(f"{(corpus / 'dev.jsonl').read_text()}{json.dumps(bad)}\n")
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "out")
    value = f"{{old: {path}}}" if key == "canary" else f"{path}"
    given = [f"data.{key}={value}"]
    if key == "replay":
        given += ["training.keep=replay", "training.start_from=small-en-alnum"]
    with pytest.raises(ManifestError, match=r"bad-line.jsonl: 1 of 4 .* data.max_bad_share 0.1"):
        load_corpus(load_config(config, given))
    allowed = load_config(config, [*given, "data.max_bad_share=0.25"])
    assert len(load_corpus(allowed).left_out) == 1


def test_a_label_for_ends_of_turns_is_appended(corpus: Path, tmp_path: Path) -> None:
    """Every text to learn ends with it, and needs a frame more; texts to score do not have it."""
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("enosy "))))
    start = [f"training.start_from={tmp_path / 'm.safetensors'}", "training.keep_labels=true"]
    path, label = write_config(tmp_path / "c.yaml", corpus, tmp_path / "out"), 7
    config = load_config(path, [*start, "text.end_of_turn=true"])
    encode = load_corpus(config).encode
    assert end_of_turn(encode.tokenizer) == label
    assert encode.learnable("yes", 16_000)[1] == [*encode("yes")[1], label]
    assert label not in encode("yes")[1]
    assert "labels need 4" in str(encode.why_not("yes", 1_600))
    without = load_corpus(load_config(path, start)).encode
    assert without.learnable("yes", 16_000)[1] == encode("yes")[1]
    assert "labels need 3" in str(without.why_not("yes", 1_000))


def with_texts(corpus: Path, texts: list[str]) -> None:
    """Write the dev set with these texts."""
    lines = read_rows(corpus / "dev.jsonl")
    new = [line | {"text": text} for line, text in zip(lines, texts, strict=True)]
    write_manifest(corpus / "dev.jsonl", *new)


@pytest.mark.parametrize(
    ("texts", "tokenizer", "expected"),
    [
        (
            ["yes maybe", "Maybe no", "no"],
            "words",
            "2 of 3 texts cannot .*: 'maybe' in 'yes maybe'",
        ),
        (["yes né", "no", "no"], "characters", "1 of 3 texts cannot be written .*'é' in"),
        (["yes", "no", "no"], "words", None),
        (["yes", "no", "no"], "characters", None),
    ],
)
def test_texts_that_the_labels_cannot_write(
    texts: list[str], tokenizer: str, expected: str | None, corpus: Path, tmp_path: Path
) -> None:
    with_texts(corpus, texts)
    options = [f"text.tokenizer={tokenizer}", "text.case=lower"]
    config = load_config(write_config(tmp_path / "c.yaml", corpus, tmp_path / "out"), options)
    found = unwritable(load_corpus(config), "dev.jsonl")
    assert bool(found) == bool(expected)
    assert re.search(expected or "", found or "")


def test_a_dev_set_without_words_has_no_rate(corpus: Path, tmp_path: Path) -> None:
    """Neither in the log nor in the model file."""
    with_texts(corpus, ["", " ", ""])
    out = tmp_path / "out"
    assert train(corpus, out, epochs=2, average=1) == 0
    log = (out / "train.log").read_text()
    assert "dev WER  no reference words" in log
    assert "dev CER  no reference words" in log
    assert "WER     full  no reference words (" in log
    assert "0.00 %" not in log
    training = load_model(out / "model.safetensors").training
    assert training["dev_wer"] == training["dev_cer"] == {}
    assert training["averaged_epochs"] == [2]

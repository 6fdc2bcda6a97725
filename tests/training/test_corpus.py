"""The corpus: its features, and the recordings that cannot be read."""

import json
from pathlib import Path

import pytest

from asrkit import audio
from asrkit.config import load_config
from asrkit.data.manifest import ManifestError
from asrkit.data.recordings import Recordings, load_recordings
from asrkit.training.dataset import feature_statistics, load_corpus
from tests.conftest import speech, write_config, write_manifest, write_wav


def recordings(folder: Path, *rates: int) -> Path:
    """A manifest of a second at each of these sample rates."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number, rate in enumerate(rates):
        path = write_wav(folder / f"{number}.wav", speech(1.0, seed=number, rate=rate), rate)
        lines.append({"id": f"r{number}", "audio": path.name, "text": "yes no"})
    return write_manifest(folder / "train.jsonl", *lines)


def loaded(path: Path) -> Recordings:
    return load_recordings(str(path), [])


def test_audio_that_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    manifest = recordings(tmp_path, 16000)
    line = {"id": "x", "audio": "0.wav", "text": "a", "duration": 1.0, "sample_rate": 8000}
    found = loaded(write_manifest(manifest, line))
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

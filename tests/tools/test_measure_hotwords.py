"""The lists that the measurement makes, and its counts."""

from pathlib import Path

import pytest

from tests.conftest import PROJECT, speech, write_manifest, write_wav
from tests.running import talkative_model


def test_measure_hotwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(PROJECT / "tools")
    import measure_hotwords as measure

    texts = ["ab ab cd", "cd e", "cd"]
    lists = measure.lists(texts, ["cd hi ab", "cd cd", "fa fa"], 1)  # never: e
    assert lists == {"rare words": {"ab"}, "distractors": {"hi"}}
    found = ["ab cd", "ab ab e", "cd"]
    assert measure.counts(texts, found, {"ab"}) == ("1 of 2", "50.00 %", "2 in 2")

    model, audio = talkative_model(tmp_path / "m.safetensors"), tmp_path / "a.wav"
    write_wav(audio, speech(2.0))
    said = {"id": "a", "audio": str(audio), "text": "hi fa"}
    dev = write_manifest(tmp_path / "dev.jsonl", said)
    train = write_manifest(tmp_path / "train.jsonl", said | {"text": "fa hi bed bed"})
    options = ["--model", model, "--train", train, "--seldom", 1, "--weights", 0, 20, "--", dev]
    monkeypatch.setattr("sys.argv", ["measure_hotwords.py", *map(str, options)])
    measure.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    heard = {(row[0][2:], row[1], row[2]): row[3] for row in rows[2:]}
    assert heard["16", "2 rare words", "0"] == "0 of 2"
    assert heard["16", "2 rare words", "20"] == "2 of 2"
    assert "0 distractors" in rows[-1][1]

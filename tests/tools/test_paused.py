"""tools/paused.py: turns with pauses inside, from which nothing of the recordings is lost."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tools import paused
from tools.paused import Pauses, borders

RATE = 16_000


def bursts(gap: float = 0.1) -> np.ndarray:
    """Two tones of half a second, with a gap."""
    tone = np.sin(np.arange(RATE // 2, dtype=np.float32))
    return np.concatenate([tone, np.full(int(gap * RATE), 1e-3, np.float32), tone])


def test_a_border_is_at_the_quietest_place() -> None:
    (place,) = borders(bursts(), [0.25, 0.85])
    assert 0.5 < place / RATE < 0.6
    (inside,) = borders(bursts(), [0.1, 0.3])  # the control: between these there is no gap
    assert inside / RATE < 0.5
    assert borders(bursts(), []) == []


def test_pauses_take_nothing_away() -> None:
    samples, draw = bursts(), np.random.default_rng(0)
    places = borders(samples, [0.25, 0.85])
    pauses = Pauses(share=1.0, shortest=0.3, longest=0.5, after=1.0)
    turn = paused.paused([(samples, places), (samples, [])], pauses, draw)
    inserted = len(turn) - 2 * len(samples) - RATE
    assert 0.6 < inserted / RATE < 1.0  # two pauses
    assert np.array_equal(turn[: places[0]], samples[: places[0]].astype(np.float64))
    last = len(turn) - RATE
    assert np.array_equal(turn[last - len(samples) : last], samples.astype(np.float64))
    assert 0.0 < np.abs(turn[last:]).max() < 0.01
    never = paused.paused([(samples, places)], pauses._replace(share=0.0), draw)
    assert len(never) == len(samples) + RATE


def test_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A seed makes the same files; turns join recordings of one speaker only."""
    rows = [("a", "yes no", "ann"), ("b", "no", "ann"), ("c", "yes", "bob")]
    for name, _, _ in rows:
        soundfile.write(tmp_path / f"{name}.wav", bursts(), RATE)
    lines = [
        json.dumps({"id": name, "audio": f"{name}.wav", "text": text, "speaker": speaker})
        for name, text, speaker in rows
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    found = []
    for folder, seed in (("1", "5"), ("2", "5"), ("3", "6")):
        out = tmp_path / folder
        arguments = ["--output-dir", str(out), "--seed", seed, "--join", "2", "--share", "1"]
        assert paused.main([*arguments, str(tmp_path / "m.jsonl")]) == 0
        turns = [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]
        assert [(turn["id"], turn["text"]) for turn in turns] == [("a", "yes no no"), ("c", "yes")]
        found.append((out / "audio" / "a.flac").read_bytes())
        assert len(soundfile.read(out / turns[0]["audio"])[0]) == turns[0]["duration"] * RATE
    assert found[0] == found[1] != found[2]
    assert "2 turns in" in capsys.readouterr().out

"""lhotse's one backend for all threads: each thread has its own file's rate, and all leave none."""

import threading
from pathlib import Path
from typing import Any

import pytest
from lhotse.audio.backend import get_current_audio_backend
from lhotse.cut import Cut

from asrkit import audio
from asrkit.data import cut_audio
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts
from tests.conftest import speech, write_manifest, write_wav


@pytest.fixture
def cuts(tmp_path: Path) -> dict[str, Cut]:
    """Two recordings, by name, of 8000 and 16000 Hz."""
    lines = []
    for rate in (8000, 16000):
        path = write_wav(tmp_path / f"{rate}.wav", speech(0.5, rate=rate), rate)
        lines.append({"id": str(rate), "audio": path.name, "text": "no"})
    return {cut.id: cut for cut in load_cuts(write_manifest(tmp_path / "m.jsonl", *lines), [])}


def test_overlapping_reads_expect_their_own_rate_and_restore_the_backend(
    cuts: dict[str, Cut], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to begin is the first to end: each would set back what the other has set."""
    before, read = get_current_audio_backend(), audio.read
    second_reads, first_has_read = threading.Event(), threading.Event()
    lengths: dict[str, int] = {}

    def in_turn(path: Any, offset: float = 0.0, duration: float | None = None) -> Any:
        if threading.current_thread().name == "16000":
            second_reads.set()
            assert first_has_read.wait(20)
        else:
            assert second_reads.wait(20)
        return read(path, offset, duration)

    def load(name: str) -> None:
        lengths[name] = len(load_samples(cuts[name]))
        first_has_read.set()

    monkeypatch.setattr(cut_audio.audio, "read", in_turn)
    threads = [threading.Thread(target=load, args=(name,), name=name) for name in cuts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lengths == {"8000": 8000, "16000": 8000}
    assert get_current_audio_backend() is before


def test_lhotse_alone_reads_any_rate_while_a_thread_reads(
    cuts: dict[str, Cut], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that did not ask for a rate gets its file; the control asks for the wrong one."""
    with cut_audio._READER.expect({16000}):
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(cuts["8000"].load_audio()))
        thread.start()
        thread.join()
        assert found[0].shape == (1, 4000)
        with pytest.raises(audio.AudioError, match="the manifest has 16000 Hz"):
            cuts["8000"].load_audio()

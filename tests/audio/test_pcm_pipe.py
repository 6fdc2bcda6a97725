"""The head of a pipe, and the packets of its samples."""

import io

import numpy as np
import pytest

from asrkit.audio import AudioError
from asrkit.audio.pcm_pipe import piped
from tests.audio.test_files import FLAC, RATE, SPEECH, ogg, wav, written

OTHER = "is a file that is not read from a pipe; .*-f s16le"


class Trickle(io.RawIOBase):
    """A pipe that yields a few bytes at a time and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._file.readinto(memoryview(buffer)[:700])


def read(data: bytes, packet_ms: int = 100, **options: int) -> tuple[int, list[np.ndarray]]:
    rate, packets = piped(io.BufferedReader(Trickle(data)), packet_ms, **options)
    return rate, list(packets)


def test_wav_of_any_length_that_its_header_states() -> None:
    """Some writers cannot state it; bytes after the samples are tags."""
    stereo = np.stack([SPEECH, -SPEECH], 1)
    for data in (wav(), wav() + bytes(99), wav(0), wav(0xFFFFFFFF)):
        rate, packets = read(data)
        assert rate == RATE
        assert np.array_equal(np.concatenate(packets)[:, 0], SPEECH)
    rate, packets = read(written(stereo, 8000, format="WAV"))
    assert rate == 8000
    assert np.array_equal(np.concatenate(packets), stereo)


@pytest.mark.parametrize(("data", "said"), [
    (b"", "standard input is empty"),
    (written(format="WAV", subtype="PCM_U8"), "samples of 8 bits in 1 channels.; asrkit"),
    (written(np.zeros((9, 65), np.int16), format="WAV"), "samples of 16 bits in 65 channels"),
    (written(format="WAV", subtype="FLOAT"), "is not read .unknown format: 3.; asrkit stream"),
    (wav()[:30], "is not read .its header is cut off"),
    (b"RIFF\0\0\0\0AVI ", "is not read .not a WAVE file"),
    (written(format="MP3"), OTHER), (written(**FLAC), OTHER), (ogg(), OTHER),
    (b"\xff\xf1\x50\x40", OTHER), (b"\0\0\0\x18ftypM4A ", OTHER), (b"\x1aE\xdf\xa3", OTHER),
], ids=lambda each: str(each)[:20])  # fmt: skip
def test_pipes_that_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(AudioError, match=said):
        read(data)


@pytest.mark.parametrize(("data", "said"), [
    (wav()[: len(wav()) // 2], "standard input is cut off: it ends 1.00 s before its header says"),
    (SPEECH.tobytes()[:-1], "standard input ends inside a sample"),
    (written(np.stack([SPEECH, SPEECH], 1), format="WAV")[:-2], "ends inside a sample"),
    (wav(), None), (SPEECH.tobytes(), None), (wav(0xFFFFFFFF), None), (wav() + bytes(99), None),
], ids=lambda each: str(each)[:20])  # fmt: skip
def test_pipe_that_ends_early_is_reported(
    data: bytes, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    read(data)
    assert not caplog.messages if said is None else said in caplog.messages[0]


@pytest.mark.parametrize("first", [-1, -32, 0x4747, -257])
def test_samples_may_begin_like_mpeg_audio(first: int) -> None:
    """Control: -1 is 0xffff."""
    samples = np.concatenate([np.full(200, first, np.int16), SPEECH])
    assert np.array_equal(np.concatenate(read(samples.tobytes())[1])[:, 0], samples)


@pytest.mark.parametrize(("packet_ms", "lengths"), [(10, [160] * 6 + [40]), (1000, [1000])])
def test_packets_have_their_length(packet_ms: int, lengths: list[int]) -> None:
    samples = np.arange(1000, dtype=np.int16)[:, None]
    _, packets = read(samples.tobytes(), packet_ms, sample_rate=RATE)
    assert [len(each) for each in packets] == lengths
    assert np.array_equal(np.concatenate(packets), samples)

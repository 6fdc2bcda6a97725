"""Law: all that FFmpeg plays of a file is read, at the time at which it plays, or it is said."""

import io
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
import pytest
import soundfile

from asrkit import audio
from asrkit.audio import containers, files
from asrkit.audio.containers import Container
from asrkit.audio.exact import Exact
from asrkit.audio.files import opened
from asrkit.audio.pcm_pipe import EXTENSIBLE, PCM, PCMFormat, piped, wav_format
from tests.conftest import speech

RATE = 16000
SPEECH = (speech(2.0) * 20000).astype(np.int16)


def wav(samples: np.ndarray, stated: int | None = None) -> bytes:
    """16-bit mono wav whose data chunk states `stated` bytes."""
    data = samples.astype("<i2").tobytes()
    size = len(data) if stated is None else stated
    form = struct.pack("<IHHIIHH", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    riff = 0 if stated == 0 else min(36 + size, 0xFFFFFFFF)
    head = b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + form
    return head + b"data" + struct.pack("<I", size) + data


def written(samples: np.ndarray, rate: int = RATE, **options: str) -> bytes:
    """The samples in a format of libsndfile."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, **options)
    return file.getvalue()


def muxed(
    path: Path,
    codec: str,
    parts: list[tuple[np.ndarray, float]],
    tracks: int = 1,
    rate: int = RATE,
    layout: str = "mono",
) -> bytes:
    """Parts of samples, each with the time where it begins, in a container of FFmpeg.

    Of several tracks the last one has the samples, the others are silent.
    """
    with av.open(str(path), "w") as file:
        streams = [file.add_stream(codec, rate=rate, layout=layout) for _ in range(tracks)]
        for number, stream in enumerate(streams):
            for samples, start in parts:
                silent = number < tracks - 1
                frame = av.AudioFrame.from_ndarray((samples * (not silent))[None], "s16", "mono")
                frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
                frame.pts = round(start * rate)
                file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
    return path.read_bytes()


def mp3_without_xing(samples: np.ndarray) -> bytes:
    """An MP3 of variable bit rate as a pipe gets it, without the frame that states its length."""
    data = written(samples, format="MP3", bitrate_mode="VARIABLE", compression_level=0.5)
    assert b"Xing" in data[:200]
    rates = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
    return data[72 * rates[data[2] >> 4] * 1000 // RATE + (data[2] >> 1 & 1) :]


def flac_without_total(samples: np.ndarray) -> bytes:
    """A FLAC file as a pipe gets it."""
    data = bytearray(written(samples, format="FLAC"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    return bytes(data)


def adpcm_with_other_bit_rate(samples: np.ndarray, subtype: str) -> bytes:
    """An ADPCM wav file as ffmpeg writes it: 2000 bytes a second too many in its header."""
    data = bytearray(written(samples, format="WAV", subtype=subtype))
    data[28:32] = struct.pack("<I", struct.unpack("<I", data[28:32])[0] + 2000)
    return bytes(data)


def flv_with_wrong_time(data: bytes, number: int, bit: int = 24) -> bytes:
    """An FLV file in which a bit of a tag's time in ms is flipped."""
    tags, at, changed = [], 13, bytearray(data)
    while at < len(data):
        tags.append(at)
        at += 15 + int.from_bytes(data[at + 1 : at + 4], "big")
    changed[tags[number] + (6, 5, 4, 7)[bit // 8]] ^= 1 << bit % 8
    return bytes(changed)


def ogg(samples: np.ndarray, codec: str) -> bytes:
    return written(samples, format="OGG", subtype=codec)


def last_page_cut(data: bytes) -> bytes:
    return data[: data.rfind(b"OggS")]


def loud_then_speech() -> np.ndarray:
    """Noise of a high bit rate before speech of a low one: a guess of the length is far off."""
    noise = np.random.default_rng(0).normal(size=RATE) * 6000
    return np.concatenate([noise, SPEECH, SPEECH]).clip(-32768, 32767).astype(np.int16)


# name: the file, its length in seconds, and what is said of it; None: nothing
Make = Callable[[Path], bytes]


def stale_au() -> bytes:
    """An AU file whose header counts half of its samples."""
    data = bytearray(written(SPEECH, format="AU"))
    data[8:12] = (len(data) // 2 - 12).to_bytes(4, "big")
    return bytes(data)


def stale_flac() -> bytes:
    """A FLAC file whose header counts half of its samples."""
    data = bytearray(written(SPEECH, format="FLAC"))
    data[22:26] = (len(SPEECH) // 2).to_bytes(4, "big")
    return bytes(data)


TAG = struct.pack("<4sI", b"LIST", 3) + b"abc\0"  # a chunk of an odd size
INFO = struct.pack("<4sI4s4sI18s", b"LIST", 30, b"INFO", b"ISFT", 18, b"Lavf60")  # as ffmpeg writes
INFO += struct.pack("<4sII", b"cue ", 4, 0)


FILES: dict[str, tuple[Make, float, str | None]] = {
    "vbr_no_xing.mp3": (lambda _: mp3_without_xing(loud_then_speech()), 5.0, None),
    "xing.mp3": (lambda _: written(loud_then_speech(), format="MP3"), 5.0, None),
    "joined.mp3": (lambda _: written(SPEECH, format="MP3") * 2, 4.0, None),
    "joined.flac": (lambda _: written(SPEECH, format="FLAC") * 3, 2.0, "bytes after its samples"),
    "joined_short.flac": (
        lambda _: written(SPEECH, format="FLAC") + written(SPEECH[:1000], format="FLAC"), 2.0,
        "bytes after its samples",
    ),
    "joined.wav": (lambda _: wav(SPEECH) * 2, 2.0, "64044 bytes after its samples"),
    "joined.aiff": (lambda _: written(SPEECH, format="AIFF") * 2, 2.0, "64054 bytes after"),
    "joined.au": (lambda _: written(SPEECH, format="AU") * 2, 2.0, "64024 bytes after"),
    "joined.caf": (lambda _: written(SPEECH, format="CAF") * 2, 2.0, "68096 bytes after"),
    "joined.w64": (lambda _: written(SPEECH, format="W64") * 2, 2.0, "64104 bytes after"),
    "joined.ogg": (lambda _: ogg(SPEECH, "VORBIS") * 3, 6.0, None),
    "joined.opus": (lambda _: ogg(np.tile(SPEECH, 2), "OPUS") * 2, 8.0, None),
    "joined_short.opus": (lambda _: ogg(SPEECH[:8000], "OPUS") * 4, 0.54, "to no samples"),
    "joined_kinds.ogg": (
        lambda _: ogg(SPEECH, "VORBIS") + ogg(SPEECH, "OPUS"), 2.0, "other streams after its first",
    ),
    "joined_kinds_later.ogg": (
        lambda _: ogg(SPEECH, "VORBIS") * 2 + ogg(SPEECH, "OPUS"), 4.0, "other streams after its",
    ),
    "joined_kinds_between.ogg": (
        lambda _: ogg(SPEECH, "VORBIS") + ogg(SPEECH, "OPUS") + ogg(SPEECH, "VORBIS"), 4.0,
        "other streams after its",
    ),
    "joined_cut.opus": (
        lambda _: last_page_cut(ogg(SPEECH, "OPUS")) + ogg(SPEECH, "OPUS"), 2.97, None,
    ),
    "two_tracks.ogg": (
        lambda p: muxed(p, "libopus", [(SPEECH, 0.0)], tracks=2), 2.0, "has 2 audio tracks",
    ),
    "tagged.wav": (lambda _: written(SPEECH, format="WAV") + TAG, 2.0, None),
    "joined.ts": (lambda p: muxed(p, "aac", [(SPEECH, 0.0)]) * 2, 4.2, None),
    "rates.aac": (
        lambda p: muxed(p, "aac", [(SPEECH, 0.0)], rate=8000) + muxed(p, "aac", [(SPEECH, 0.0)]),
        6.3, None,
    ),
    "gsm.wav": (lambda _: written(SPEECH[::2], 8000, format="WAV", subtype="GSM610"), 2.0, None),
    "tagged_gsm.wav": (
        lambda _: written(SPEECH[::2], 8000, format="WAV", subtype="GSM610") + INFO, 2.0, None,
    ),
    "joined_gsm.wav": (
        lambda _: (written(SPEECH[::2], 8000, format="WAV", subtype="GSM610") + INFO) * 2, 2.0,
        "bytes after its samples",
    ),
    "g721.au": (lambda _: written(SPEECH[::2], 8000, format="AU", subtype="G721_32"), 2.0, None),
    "g723.au": (lambda _: written(SPEECH[::2], 8000, format="AU", subtype="G723_24"), 2.0, None),
    "nms.wav": (
        lambda _: written(SPEECH[::2], 8000, format="WAV", subtype="NMS_ADPCM_32"), 2.0, None,
    ),
    "ima.wav": (lambda _: adpcm_with_other_bit_rate(SPEECH, "IMA_ADPCM"), 2.0, None),
    "ms.wav": (lambda _: adpcm_with_other_bit_rate(SPEECH, "MS_ADPCM"), 2.0, None),
    "size_0.wav": (lambda _: wav(SPEECH, 0), 2.0, None),
    "size_max.wav": (lambda _: wav(SPEECH, 0xFFFFFFFF), 2.0, None),
    "no_total.flac": (lambda _: flac_without_total(SPEECH), 2.0, None),
    "late.mkv": (lambda p: muxed(p, "pcm_s16le", [(SPEECH, 2.0)]), 4.0, None),
    "hole.mkv": (
        lambda p: muxed(p, "pcm_s16le", [(SPEECH, 0.0), (SPEECH, 5.0)]), 7.0, "gaps in its time",
    ),
    "time.flv": (
        lambda p: flv_with_wrong_time(muxed(p, "aac", [(SPEECH, 0.0)]), 12), 2.1, "jump by 16777",
    ),
    "hour.flv": (
        lambda p: flv_with_wrong_time(muxed(p, "aac", [(SPEECH, 0.0)]), 12, 21), 2.1,
        "jump by 2097 s",
    ),
    "seconds.flv": (
        lambda p: flv_with_wrong_time(muxed(p, "aac", [(SPEECH, 0.0)]), 12, 12), 2.1, "jump by 4 s",
    ),
    "last_time.flv": (
        lambda p: flv_with_wrong_time(muxed(p, "aac", [(SPEECH, 0.0)]), -1), 2.1,
        "jump by 16777 s",
    ),
    "two_tracks.mka": (
        lambda p: muxed(p, "pcm_s16le", [(SPEECH, 0.0)], tracks=2), 2.0, "has 2 audio tracks",
    ),
    "stale.au": (lambda _: stale_au(), 1.0, "32000 bytes after its samples"),
    "stale.flac": (lambda _: stale_flac(), 1.0, "bytes after its samples"),
    "more.aiff": (
        lambda _: written(SPEECH, format="AIFF") + wav(SPEECH)[44:], 2.0, "64000 bytes after",
    ),
    "more.caf": (
        lambda _: written(SPEECH, format="CAF") + wav(SPEECH)[44:], 2.0, "64000 bytes after",
    ),
    "more.iff": (
        lambda _: written(SPEECH, format="SVX") + wav(SPEECH)[44:], 2.0, "64000 bytes after",
    ),
    "more.w64": (
        lambda _: written(SPEECH, format="W64") + wav(SPEECH)[44:], 2.0, "64000 bytes after",
    ),
    "stale.wav": (lambda _: wav(SPEECH, 32000), 1.0, "32000 bytes after its samples"),
    "cut.wav": (lambda _: wav(SPEECH)[: 44 + len(SPEECH)], 1.0, "ends 1.00 s before its header"),
    "cut.aiff": (lambda _: written(SPEECH, format="AIFF")[:32046], 1.0, "is cut off"),
    "cut.w64": (lambda _: written(SPEECH, format="W64")[:32104], 1.0, "is cut off"),
    "cut.au": (lambda _: written(SPEECH, format="AU")[:32024], 1.0, "is cut off"),
    "cut.caf": (lambda _: written(SPEECH, format="CAF")[:36096], 1.0, "is cut off"),
    "cut.nist": (lambda _: written(SPEECH, format="NIST")[:33024], 1.0, "is cut off"),
    "cut.flac": (lambda _: written(SPEECH, format="FLAC")[:20000], 0.9, "is cut off"),
    "cut.ogg": (lambda _: ogg(np.tile(SPEECH, 3), "VORBIS")[:12000], 2.0, "is cut off"),
    "cut.mp3": (lambda _: written(np.tile(SPEECH, 2), format="MP3")[:8000], 2.0, "is cut off"),
    "cut_tagged.mp3": (  # 300 bytes of ID3
        lambda _: b"ID3\4\0\0\0\0\2\x2c" + bytes(300)
        + written(np.tile(SPEECH, 2), format="MP3")[:8000], 2.0, "is cut off",
    ),
    "cut.avi": (
        lambda p: muxed(p, "mp2", [(SPEECH, 0.0)])[:-20_000], 1.08, "of its bytes are missing",
    ),
    "whole.avi": (lambda p: muxed(p, "mp2", [(SPEECH, 0.0)]), 2.0, None),
    "cut.webm": (lambda p: muxed(p, "libopus", [(SPEECH, 0.0)])[:8000], 1.0, "is cut off"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_all_that_plays_is_read_or_it_is_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, seconds, said = FILES[name]
    path = tmp_path / name
    path.write_bytes(make(path))
    samples, rate = audio.read(path)
    tolerance = 0.5 if said == "is cut off" else 0.15  # encoders add some
    assert abs(len(samples) / rate - seconds) < tolerance
    lines = {record.getMessage() for record in caplog.records}
    if said is None and name != "joined.mp3":
        assert not lines
    elif said is not None:
        assert len(lines) == 1
        assert said in lines.pop()
    # The same from memory, in parts, and in its length.
    assert np.array_equal(audio.read(io.BytesIO(path.read_bytes()))[0], samples)
    part = audio.read(path, 0.2, 0.25)[0]
    assert np.array_equal(part, samples[round(0.2 * rate) :][: len(part)])
    assert len(part) == round(0.25 * rate)
    if path.name != "cut.flac":  # whose header is right but for the cut
        assert audio.info(path).num_samples == len(samples)


@pytest.mark.parametrize("ending", [".au", ".snd", ".vox", ".VOX", ".gsm"])
@pytest.mark.parametrize("kind", ["flv", "mkv", "wav"])
def test_a_wrong_name_makes_no_noise_of_a_file(ending: str, kind: str, tmp_path: Path) -> None:
    """libsndfile takes what it does not know and has such a name for a telephone's samples."""
    right, wrong = tmp_path / f"x.{kind}", tmp_path / f"y{ending}"
    if kind == "wav":
        right.write_bytes(written(SPEECH, format="WAV"))
    else:
        muxed(right, "aac", [(SPEECH, 0.0)])
    wrong.write_bytes(right.read_bytes())
    (expected, rate), (samples, same) = audio.read(right), audio.read(wrong)
    assert same == rate == RATE
    assert np.array_equal(samples, expected)


@pytest.mark.parametrize("ending", [".vox", ".gsm", ".au"])
def test_a_film_without_sound_makes_no_noise(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "x.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", 25)
        stream.width = stream.height = 16
        for packet in (*stream.encode(av.VideoFrame(16, 16, "yuv420p")), *stream.encode()):
            container.mux(packet)
    with pytest.raises(audio.AudioError, match="has no audio track, only video"):
        audio.read(path.rename(path.with_suffix(ending)))


def test_samples_without_a_header_are_refused(tmp_path: Path) -> None:
    """libsndfile would take them for a telephone's samples by their name; control: a header."""
    for name, subtype in (("x.vox", "VOX_ADPCM"), ("x.gsm", "GSM610")):
        path = tmp_path / name
        path.write_bytes(written(SPEECH[::2], 8000, format="RAW", subtype=subtype))
        with pytest.raises(audio.AudioError, match=r"or FFmpeg reads .*: sox a\.gsm a\.wav"):
            audio.read(path)
    path.write_bytes(written(SPEECH[::2], 8000, format="WAV", subtype="GSM610"))
    assert len(audio.read(path)[0]) == len(SPEECH) // 2


@pytest.mark.parametrize("codec", ["VORBIS", "OPUS"])
def test_joined_ogg_streams_are_read(codec: str) -> None:
    """Recordings of internet radio: the first as it is alone, the next in its place."""
    parts = [ogg(np.tile(SPEECH, n), codec) for n in (3, 2)]
    samples, rate = audio.read(io.BytesIO(b"".join(parts)))
    first, second = (
        np.concatenate(list(Container(io.BytesIO(each), "x").samples(0, None, [])))
        for each in parts
    )
    assert np.array_equal(samples[: len(first)], first)
    assert abs(len(samples) - len(first) - len(second)) < 0.02 * rate


def test_rate_and_channels_may_change_in_a_broadcast(tmp_path: Path) -> None:
    first, second = (
        muxed(tmp_path / "a.aac", "aac", [(SPEECH, 0.0)], **options)
        for options in ({}, {"rate": 8000, "layout": "stereo"})
    )
    path = tmp_path / "x.aac"
    path.write_bytes(first + second)
    samples, rate = audio.read(path)
    assert (samples.shape[1], rate) == (1, RATE)
    assert abs(len(samples) / rate - 6.2) < 0.2
    level = np.abs(samples[:, 0]).mean()
    assert np.abs(samples[5 * rate : 6 * rate, 0]).mean() > 0.5 * level


def test_words_of_late_audio_have_the_containers_times(tmp_path: Path) -> None:
    muxed(tmp_path / "late.mkv", "pcm_s16le", [(SPEECH, 2.0), (SPEECH, 6.0)])
    samples, _ = audio.read(tmp_path / "late.mkv")
    expected = np.zeros(8 * RATE, np.float32)
    expected[2 * RATE : 4 * RATE] = expected[6 * RATE :] = SPEECH / 32768
    assert np.array_equal(samples[:, 0], expected)


def test_a_clock_that_starts_late_or_jumps_adds_no_silence(tmp_path: Path) -> None:
    """Times of a broadcast count from anywhere, and begin anew."""
    later = muxed(tmp_path / "a.ts", "mp2", [(SPEECH, 40000.0)])
    (tmp_path / "x.ts").write_bytes(later + muxed(tmp_path / "b.ts", "mp2", [(SPEECH, 5.0)]))
    assert 3.9 < len(audio.load(tmp_path / "x.ts")) / RATE < 4.3


def test_damaged_packets_are_silent_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(muxed(tmp_path / "x.ts", "aac", [(SPEECH, 0.0)]))
    whole = len(audio.load(tmp_path / "x.ts"))
    assert not caplog.text
    for at in range(len(data) // 3, len(data) * 2 // 3, 97):
        data[at] ^= 0x55
    (tmp_path / "x.ts").write_bytes(data)
    assert abs(len(audio.load(tmp_path / "x.ts")) - whole) < 1100
    assert "packets (" in caplog.text
    assert "cannot be decoded and are replaced by silence" in caplog.text


def test_a_start_beyond_the_end_of_a_file_without_a_length(tmp_path: Path) -> None:
    (tmp_path / "x.flac").write_bytes(flac_without_total(np.tile(SPEECH, 2)))
    assert len(audio.load(tmp_path / "x.flac", start=3.5)) == 8000
    assert not len(audio.load(tmp_path / "x.flac", start=4.0))
    with pytest.raises(audio.AudioError, match=r"has 4\.00 s; start 4\.5 s is not in it"):
        audio.load(tmp_path / "x.flac", start=4.5)


@pytest.mark.parametrize("codec", ["VORBIS", "OPUS"])
@pytest.mark.parametrize("is_mark", [False, True])
def test_a_damaged_ogg_page_does_not_shift_what_follows(
    codec: str, is_mark: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """libsndfile leaves the page out in silence, a second of it."""
    data = bytearray(ogg(np.tile(SPEECH, 3), codec))
    at = len(data) // 2
    data[data.find(b"OggS", at) if is_mark else at] ^= 0xFF
    (tmp_path / "x.ogg").write_bytes(data)
    samples, rate = audio.read(tmp_path / "x.ogg")
    assert len(samples) == 6 * rate == audio.info(tmp_path / "x.ogg").num_samples
    assert "has gaps in its time stamps" in caplog.text


def test_the_default_track_is_read_and_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Screen recorders write the desktop first and the microphone second."""
    path = tmp_path / "x.mka"
    muxed(path, "pcm_s16le", [(SPEECH, 0.0)], tracks=2)
    assert not audio.load(path).any()
    assert "track 0 is read, --track N reads another" in caplog.text
    caplog.clear()
    assert np.array_equal(audio.load(path, track=1), SPEECH / np.float32(32768))
    assert not caplog.text
    with pytest.raises(audio.AudioError, match="has audio tracks 0 to 1, got track 2"):
        audio.load(path, track=2)
    with av.open(str(path)) as source, av.open(str(tmp_path / "y.mka"), "w") as sink:
        streams = [sink.add_stream_from_template(each) for each in source.streams.audio]
        streams[1].disposition = av.stream.Disposition.default
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                sink.mux(packet)
    assert audio.load(tmp_path / "y.mka").any()
    assert "track 1 is read" in caplog.text


def test_a_video_without_sound_is_named(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "x.mp4"), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        for _ in range(5):
            frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    with pytest.raises(audio.AudioError, match=r"x\.mp4 has no audio track, only video"):
        audio.load(tmp_path / "x.mp4")


def test_what_ffmpeg_cannot_decode_is_read_by_libsndfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MP3 of a free format, of which FFmpeg decodes no packet; control: a file that neither
    reads has FFmpeg's error."""

    def undecodable(source: object, name: str, *rest: object) -> None:
        raise audio.AudioError(f"{name}: none of 18 packets can be decoded")

    monkeypatch.setattr(files, "Container", undecodable)
    closed: list[Exact] = []
    close = Exact.close
    monkeypatch.setattr(Exact, "close", lambda self: (closed.append(self), close(self)))
    path = tmp_path / "x.mp3"
    path.write_bytes(written(SPEECH, format="MP3"))
    assert len(audio.read(path)[0]) / RATE == pytest.approx(2.0, abs=0.15)
    with pytest.raises(audio.AudioError, match="none of 18 packets"):
        audio.read(path, track=1)
    assert len(closed) == 2
    path.write_bytes(b"\xff\xfb" + bytes(1000))
    with pytest.raises(audio.AudioError, match="none of 18 packets"):
        audio.read(path)


def test_channels_that_cancel_out_are_named_and_can_be_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([SPEECH, -SPEECH], 1), RATE)
    assert not audio.load(path).any()
    assert "has channels that cancel each other out: their mix is 100 dB below" in caplog.text
    caplog.clear()
    assert np.array_equal(audio.load(path, channel=1), -SPEECH / np.float32(32768))
    silent = 0 * SPEECH
    for channels in ([SPEECH, silent], [silent, silent, SPEECH, silent, silent, silent]):
        soundfile.write(path, np.stack(channels, 1), RATE)  # one of two speaks; a film's centre
        audio.load(path)
        assert not caplog.text
    soundfile.write(path, np.stack([SPEECH, -SPEECH, silent, silent, silent, silent], 1), RATE)
    audio.load(path)
    assert "cancel each other out" in caplog.text
    soundfile.write(path, np.stack([SPEECH, silent], 1), RATE)
    with pytest.raises(audio.AudioError, match="has the channels 0 to 1, got channel 2"):
        audio.load(path, channel=2)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_ffmpeg_gives_the_samples_of_libsndfile(subtype: str, tmp_path: Path) -> None:
    """So that a file may go from one reader to the other in the middle."""
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([speech(0.5), speech(0.5, 1)], 1), 44100, subtype)
    with opened(path) as file:
        expected = np.concatenate(list(file.blocks(1000)))
    other = Container(path.open("rb"), "x.wav")
    for _ in range(2):  # it can be read again
        assert np.array_equal(np.concatenate(list(other.samples(0, None, []))), expected)
    assert other.sample_rate == 44100
    other.close()


def test_libraries_write_nothing_on_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = written(np.tile(SPEECH, 2), format="MP3")
    (tmp_path / "x.mp3").write_bytes(data[:5000] + bytes(2000) + data[7000:])
    audio.load(tmp_path / "x.mp3")
    (tmp_path / "x.m4a").write_bytes(muxed(tmp_path / "y.m4a", "aac", [(SPEECH, 0.0)])[:5000])
    with pytest.raises(audio.AudioError, match="is not audio"):
        audio.load(tmp_path / "x.m4a")
    assert "mpg123" not in capfd.readouterr().err


class Trickle(io.RawIOBase):
    """A pipe that yields a few bytes at a time and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._file.readinto(memoryview(buffer)[:700])


@pytest.mark.parametrize(("name", "kind"), [
    ("x.mp3", "MP3"), ("x.aac", "AAC"), ("x.ts", "MPEG-TS"), ("x.flac", "FLAC"), ("x.ogg", "Ogg"),
    ("x.webm", "Matroska"), ("x.mp4", "MP4"),
])  # fmt: skip
def test_files_on_standard_input_are_not_taken_for_samples(
    name: str, kind: str, tmp_path: Path
) -> None:
    """MP3, AAC and TS have no signature but their frames."""
    if name in ("x.mp3", "x.flac", "x.ogg"):
        data = written(SPEECH, format=name[2:].upper())
    else:
        data = muxed(tmp_path / name, "libopus" if name == "x.webm" else "aac", [(SPEECH, 0.0)])
    with pytest.raises(audio.AudioError, match=f"is {kind}, which is not read from a pipe; .*-f s"):
        piped(io.BufferedReader(Trickle(data)), 100)


def test_control_samples_on_standard_input_stay_samples() -> None:
    """Samples may begin as MPEG audio does: -1 is 0xffff."""
    for first, count in ((-1, 200), (-32, 200), (0x4747, 1), (-257, 200)):
        samples = np.concatenate([np.full(count, first, np.int16), SPEECH])
        rate, packets = piped(io.BytesIO(samples.tobytes()), 100)
        assert rate == RATE
        assert np.array_equal(np.concatenate(list(packets))[:, 0], samples)


def test_a_container_that_cannot_be_read_further_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors between packets end after a while, and not in silence."""
    path = tmp_path / "x.mka"
    muxed(path, "flac", [(SPEECH, 0.0)])
    real = containers.open_container

    def failing(data: BinaryIO, name: str) -> tuple[object, list[object]]:
        return Failing(*real(data, name)), []

    class Failing:
        def __init__(self, container: Any, messages: object) -> None:
            self.container, self.left = container, 3

        def __getattr__(self, name: str) -> object:
            return getattr(self.container, name)

        def demux(self, stream: object) -> Iterator[object]:
            for packet in self.container.demux(stream):
                if not self.left:
                    raise av.error.InvalidDataError(1, "no packet")
                self.left -= 1
                yield packet

    whole = len(audio.load(path))
    assert not caplog.text
    monkeypatch.setattr(containers, "open_container", failing)
    assert 0 < len(audio.load(path)) < whole
    assert "is cut off: it ends" in caplog.text
    other = tmp_path / "x.ts"  # whose length no header states
    monkeypatch.setattr(containers, "open_container", real)
    muxed(other, "aac", [(SPEECH, 0.0)])
    monkeypatch.setattr(containers, "open_container", failing)
    caplog.clear()
    audio.load(other)
    assert "the container cannot be read beyond packet 3" in caplog.text


def test_a_packet_larger_than_ffmpeg_can_hold_is_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FFmpeg reports a lack of memory for a size in the file; torture found it."""
    path = tmp_path / "x.mp4"
    options = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    with av.open(str(path), "w", options=options) as file:
        stream = file.add_stream("aac", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(SPEECH[None], "s16", "mono")
        frame.sample_rate = RATE
        for each in (frame, None):
            file.mux(stream.encode(each))
    data = bytearray(path.read_bytes())
    whole, at = len(audio.load(path)), data.index(b"trun")
    for entry, refused in (28, False), (20, True):  # sizes of packets
        data[at + entry : at + entry + 4] = b"\x7f\xff\xff\xff"
        path.write_bytes(data)
        caplog.clear()
        if refused:
            with pytest.raises(audio.AudioError, match="has a header but no samples"):
                audio.load(path)
        else:
            assert 0 < len(audio.load(path)) < whole
            assert "is cut off: it ends 2.00 s before its header says" in caplog.text


def test_headers_on_standard_input() -> None:
    """16-bit WAV whose format is in an extension."""
    form = struct.pack("<HHIIHHHHI", EXTENSIBLE, 2, 16000, 64000, 4, 16, 22, 16, 3)
    form += struct.pack("<H", PCM) + bytes(14)
    header = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", 8)
    assert wav_format(io.BytesIO(header)) == PCMFormat(16000, 2, 8)


@pytest.mark.parametrize(("codec", "ending"), [
    ("pcm_s16le", "mka"), ("aac", "mp4"), ("libopus", "webm"),
])  # fmt: skip
def test_a_gap_is_where_its_times_are(codec: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    muxed(path, codec, [(SPEECH, 0.0), (SPEECH, 5.0)])
    samples, rate = audio.read(path)
    assert not samples[int(2.2 * rate) : int(4.8 * rate)].any()
    first, last = (
        np.abs(each).reshape(200, -1).mean(axis=1)  # of each hundredth of a second
        for each in (samples[: 2 * rate], samples[5 * rate : 7 * rate])
    )
    assert np.corrcoef(first, last)[0, 1] > 0.95

"""Law: all that FFmpeg plays of a file is read, at the time at which it plays, or it is said.

Whatever a file holds or is called, it is read as a local file, or refused with an AudioError.
"""

import io
import os
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from asrkit import audio
from asrkit.audio import files
from asrkit.audio.containers import Container
from asrkit.audio.files import opened
from tests.conftest import speech

RATE = 16000
SPEECH = (speech(2.0) * 20000).astype(np.int16)
DAMAGED = Path(__file__).parents[1] / "kept" / "damaged"
FLAC = {"format": "FLAC"}

Make = Callable[[Path], bytes]


def written(samples: np.ndarray = SPEECH, rate: int = RATE, **options: Any) -> bytes:
    """The samples in a format of libsndfile."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, **options)
    return file.getvalue()


def wav(stated: int | None = None) -> bytes:
    """16-bit mono WAV whose data chunk states `stated` bytes."""
    data = bytearray(written(format="WAV"))
    if stated is not None:
        data[4:8] = struct.pack("<I", min(36 + stated, 0xFFFFFFFF) if stated else 0)
        data[40:44] = struct.pack("<I", stated)
    return bytes(data)


def ogg(samples: np.ndarray = SPEECH, codec: str = "VORBIS") -> bytes:
    return written(samples, format="OGG", subtype=codec)


def muxed(
    path: Path, codec: str, *starts: float, tracks: int = 1, rate: int = RATE, layout: str = "mono",
    options: dict[str, str] | None = None,
) -> bytes:  # fmt: skip
    """Speech at each start in seconds, by default at 0, in a container of FFmpeg.

    Of several tracks the last one has the speech, the others are silent.
    """
    with av.open(str(path), "w", options=options or {}) as file:
        streams = [file.add_stream(codec, rate=rate, layout=layout) for _ in range(tracks)]
        for number, stream in enumerate(streams):
            for start in starts or (0.0,):
                samples = SPEECH * (number == tracks - 1)
                frame = av.AudioFrame.from_ndarray(samples[None], "s16", "mono")
                frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
                frame.pts = round(start * rate)
                file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
    return path.read_bytes()


def flac_of(total: int) -> bytes:
    """A FLAC file whose header counts `total` samples; a pipe's counts 0."""
    data = bytearray(written(**FLAC))
    data[21] &= 0xF0
    data[22:26] = total.to_bytes(4, "big")
    return bytes(data)


def ima(path: Path) -> bytes:
    """An ADPCM WAV file as ffmpeg writes it: 2000 bytes a second too many in its header."""
    data = bytearray(written(format="WAV", subtype="IMA_ADPCM"))
    data[28:32] = struct.pack("<I", struct.unpack("<I", data[28:32])[0] + 2000)
    return bytes(data)


def wrong_time(path: Path) -> bytes:
    """An FLV file in which a bit of a tag's time is flipped."""
    data = bytearray(muxed(path, "aac"))
    at = 13
    for _ in range(12):
        at += 15 + int.from_bytes(data[at + 1 : at + 4], "big")
    data[at + 7] ^= 1
    return bytes(data)


def changing_rates(path: Path) -> bytes:
    return muxed(path, "aac", rate=8000) + muxed(path, "aac", rate=16000, layout="stereo")


def data_of(data: bytes) -> Make:
    return lambda _: data


def of_ffmpeg(codec: str, *starts: float, times: int = 1, **options: Any) -> Make:
    return lambda path: muxed(path, codec, *starts, **options) * times


TAG = struct.pack("<4sI", b"LIST", 4) + b"abcd"
AFTER, CUT, TRACKS = "bytes after its samples", "is cut off", "has 2 audio tracks"
# name: the file, its length in seconds, and what is said of it; None: nothing
FILES: dict[str, tuple[Make, float, str | None]] = {
    **{f"joined.{end}": (data_of(written(format=end.upper()) * 2), 2.0, AFTER)
       for end in ("wav", "aiff", "flac")},
    "more.aiff": (data_of(written(format="AIFF") + wav()[44:]), 2.0, AFTER),
    **{f"cut.{end}": (data_of(written(format=end.upper())[: size + 32000]), 1.0, CUT)
       for end, size in (("wav", 44), ("aiff", 46), ("caf", 4096), ("nist", 1024))},
    "joined.mp3": (data_of(written(format="MP3") * 2), 4.0, None),
    "joined.ogg": (data_of(ogg() * 3), 6.0, None),
    "joined.opus": (data_of(ogg(np.tile(SPEECH, 2), "OPUS") * 2), 8.0, None),
    "joined_short.opus": (data_of(ogg(SPEECH[:8000], "OPUS") * 4), 0.54, "cannot be decoded"),
    "joined_kinds.ogg": (data_of(ogg() + ogg(SPEECH, "OPUS")), 2.0, "or replace stream"),
    "two_tracks.ogg": (of_ffmpeg("libopus", tracks=2), 2.0, TRACKS),
    "two_tracks.mka": (of_ffmpeg("pcm_s16le", tracks=2), 2.0, TRACKS),
    "tagged.wav": (data_of(wav() + TAG), 2.0, None),
    "joined.ts": (of_ffmpeg("aac", times=2), 4.2, None),
    "rates.aac": (changing_rates, 6.3, None),
    "ima.wav": (ima, 2.0, None),
    "size_0.wav": (data_of(wav(0)), 2.0, None),
    "size_max.wav": (data_of(wav(0xFFFFFFFF)), 2.0, None),
    "no_total.flac": (data_of(flac_of(0)), 2.0, None),
    "hole.mkv": (of_ffmpeg("pcm_s16le", 0.0, 5.0), 7.0, "gaps in its time"),
    "time.flv": (wrong_time, 2.1, None),
    "stale.wav": (data_of(wav(32000)), 1.0, "32000 bytes after its samples"),
    "cut.flac": (data_of(written(**FLAC)[:20000]), 0.9, CUT),
    "cut.ogg": (data_of(ogg(np.tile(SPEECH, 3))[:12000]), 1.7, "it lacks its end"),
    "cut.mp3": (data_of(written(np.tile(SPEECH, 2), format="MP3")[:8000]), 2.0, CUT),
    "cut.webm": (lambda path: muxed(path, "libopus")[:8000], 1.0, CUT),
    "whole.m4a": (of_ffmpeg("aac"), 2.0, None),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_all_that_plays_is_read_or_it_is_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, seconds, said = FILES[name]
    path = tmp_path / name
    path.write_bytes(make(path))
    samples, rate = audio.read(path)
    assert abs(len(samples) / rate - seconds) < (0.5 if said == CUT else 0.15)  # encoders add some
    if name == "rates.aac":  # the rate and the channels of its start
        assert (samples.shape[1], rate) == (1, 8000)
        assert np.abs(samples[-rate:]).mean() > 0.5 * np.abs(samples).mean()
    lines = {record.getMessage() for record in caplog.records}
    assert len(lines) == (said is not None)
    assert said is None or said in lines.pop()
    # The same from memory, in parts, and in its length.
    assert np.array_equal(audio.read(io.BytesIO(path.read_bytes()))[0], samples)
    part = audio.read(path, 0.2, 0.25)[0]
    assert np.array_equal(part, samples[round(0.2 * rate) :][: len(part)])
    assert len(part) == round(0.25 * rate)
    if path.name != "cut.flac":  # whose header is right but for the cut
        assert audio.info(path).num_samples == len(samples)


def test_a_wrong_name_makes_no_noise_of_a_file(tmp_path: Path) -> None:
    """libsndfile takes what it does not know and has such a name for a telephone's samples."""
    wrong = tmp_path / "x.vox"
    wrong.write_bytes(wav())
    assert len(audio.load(wrong)) == len(SPEECH)
    wrong.write_bytes(written(SPEECH[::2], 8000, format="RAW", subtype="VOX_ADPCM"))
    with pytest.raises(audio.AudioError, match="is not audio that soundfile or FFmpeg reads"):
        audio.read(wrong)


def test_a_film_without_sound_is_named(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "x.mp4"), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        for frame in (av.VideoFrame(32, 32, "yuv420p"), None):
            file.mux(stream.encode(frame))
    with pytest.raises(audio.AudioError, match=r"x\.mp4 has no audio track, only video"):
        audio.read(tmp_path / "x.mp4")


def test_late_audio_and_holes_have_the_containers_times(tmp_path: Path) -> None:
    muxed(tmp_path / "late.mkv", "pcm_s16le", 2.0, 6.0)
    expected = np.zeros(8 * RATE, np.float32)
    expected[2 * RATE : 4 * RATE] = expected[6 * RATE :] = SPEECH / 32768
    assert np.array_equal(audio.load(tmp_path / "late.mkv"), expected)


def test_a_clock_that_starts_late_or_jumps_adds_no_silence(tmp_path: Path) -> None:
    """Times of a broadcast count from anywhere, and begin anew."""
    later = muxed(tmp_path / "a.ts", "mp2", 40000.0)
    (tmp_path / "x.ts").write_bytes(later + muxed(tmp_path / "b.ts", "mp2", 5.0))
    assert 3.9 < len(audio.load(tmp_path / "x.ts")) / RATE < 4.3


def test_damaged_packets_are_silent_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = bytearray(muxed(tmp_path / "x.ts", "aac"))
    whole = len(audio.load(tmp_path / "x.ts"))
    assert not caplog.text
    for at in range(len(data) // 3, len(data) * 2 // 3, 97):
        data[at] ^= 0x55
    (tmp_path / "x.ts").write_bytes(data)
    assert abs(len(audio.load(tmp_path / "x.ts")) - whole) < 1100
    assert "packets cannot be decoded" in caplog.text


@pytest.mark.parametrize(("codec", "is_mark"), [("VORBIS", True), ("OPUS", False)])
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


def test_damage_inside_a_flac_file(caplog: pytest.LogCaptureFixture) -> None:
    """What is behind it is in its place; of a file with nothing else there is an error."""
    data = bytearray(written(**FLAC))
    at = len(data) // 2
    data[at : at + 60] = bytes(60)
    samples, _ = audio.read(io.BytesIO(data))
    assert len(samples) == len(SPEECH)
    assert np.array_equal(samples[-4096:, 0], SPEECH[-4096:] / np.float32(32768))
    assert "is damaged (CRC error" in caplog.text
    broken = io.BytesIO(data[:86] + b"\x55" * 500)
    with opened(broken) as file:
        assert file.num_samples == len(SPEECH)
    with pytest.raises(audio.AudioError, match="has a header but no samples"):
        audio.read(broken)


def test_the_default_track_is_read_and_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Screen recorders write the desktop first and the microphone second."""
    path = tmp_path / "x.mka"
    muxed(path, "pcm_s16le", tracks=2)
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


def test_channels_are_mixed_or_one_is_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, silent = tmp_path / "x.wav", 0 * SPEECH
    for channels in ([SPEECH, silent], [silent, silent, SPEECH, silent, silent, silent]):
        soundfile.write(path, np.stack(channels, 1), RATE)  # one of two speaks; a film's centre
        audio.load(path)
    soundfile.write(path, np.stack([SPEECH, -SPEECH], 1), RATE)
    assert np.array_equal(audio.load(path, channel=1), -SPEECH / np.float32(32768))
    assert not caplog.text
    assert not audio.load(path).any()
    assert "has channels that cancel each other out: their mix is 100 dB below" in caplog.text
    both = np.concatenate([block for block, _ in audio.blocks(path, 0.3, channel="split")])
    assert np.array_equal(both, audio.read(path)[0])
    with pytest.raises(audio.AudioError, match=r"x\.wav has the channels 0 to 1, got channel 2"):
        audio.load(path, channel=2)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE"])
def test_ffmpeg_gives_the_samples_of_libsndfile(subtype: str, tmp_path: Path) -> None:
    """So that a file may go from one reader to the other in the middle."""
    path = tmp_path / "x.wav"
    soundfile.write(path, np.stack([speech(0.5), speech(0.5, 1)], 1), 44100, subtype)
    other = Container(path.open("rb"), "x.wav")
    for _ in range(2):  # it can be read again
        assert np.array_equal(np.concatenate(list(other.samples(0, None))), audio.read(path)[0])
    assert other.sample_rate == 44100
    other.close()


def test_a_packet_larger_than_ffmpeg_can_hold_is_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FFmpeg reports a lack of memory for a size in the file; torture found it."""
    path = tmp_path / "x.mp4"
    flags = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    data = bytearray(muxed(path, "aac", options=flags))
    at = data.index(b"trun")
    data[at + 28 : at + 32] = b"\x7f\xff\xff\xff"  # size of a packet
    assert 0 < len(audio.load(io.BytesIO(data))) < len(audio.load(path))
    assert "is cut off: it ends 2.00 s before its header says" in caplog.text


@pytest.mark.parametrize(("name", "first", "length", "said"), [
    ("joined_tagged.mp3", 0, 61632, "is damaged"),  # libmpg123 read 3503 samples of it
    ("planes.aac", 4, 1024, "is damaged"),  # PyAV gives more planes than channels: a crash
    ("unknown_codec.flv", 0, 1024, "has 2 audio tracks"),  # a second track: a traceback
])  # fmt: skip
def test_damaged_files_that_mutation_found(
    name: str, first: int, length: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = io.BytesIO((DAMAGED / name).read_bytes()[first:])
    with opened(data) as file:
        assert file.count() == len(audio.read(data)[0]) == length
    assert said in caplog.text


def test_ffmpeg_reads_the_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative name with a colon is no protocol, and a playlist reads no other file."""
    monkeypatch.chdir(tmp_path)
    data = muxed(tmp_path / "x.m4a", "aac")
    Path("12:30.m4a").write_bytes(data)
    assert len(audio.load("12:30.m4a")) > 1.9 * RATE
    hls = "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{}x.m4a\n#EXT-X-ENDLIST\n"
    for name, text in (
        ("list.m4a", "ffconcat version 1.0\nfile x.m4a\n"),
        ("list.m3u8", hls.format("")), ("list.m3u8", hls.format("file://")),
        ("x.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n"),
    ):  # fmt: skip
        Path(name).write_text(text)
        with pytest.raises(audio.AudioError, match="is not audio"):
            audio.load(name)


def test_any_name_that_a_file_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8, what libsndfile takes for standard input, line ends."""
    monkeypatch.chdir(tmp_path)
    for name in (os.fsdecode(b"a\xff.wav"), "-", "pipe:ls", "a\nb.wav"):
        Path(name).write_bytes(wav())
        assert len(audio.load(name)) == len(SPEECH)
        Path(name).write_bytes(b"no audio")
        with pytest.raises(audio.AudioError, match="is not audio") as error:
            audio.load(name)
        assert str(error.value).isprintable()
    told = "cannot be read: File name too long|does not exist"  # of Python 3.14
    with pytest.raises(audio.AudioError, match=told) as error:
        audio.load("x" * 5000)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.wav", "does not exist"),
        ("empty.wav", r"empty.wav is empty (0 bytes)"),
        ("header.wav", "header.wav has a header but no samples"),
        ("-", "- is a pipe, which is not read here: asrkit stream - reads it"),
        ("pipe", "pipe is a pipe, which is not read here: asrkit stream - reads it"),
        ("https://h/a", "https://h/a is a URL, but asrkit reads files: download it and name the "
         "path of the file"),
        ("m/https://h/a", "m/https://h/a is a URL, but asrkit reads files: download it and name "
         "the path of the file"),
        ("a~b: 1.wav", "a~b: 1.wav does not exist"),  # a name like any other
    ],
)  # fmt: skip
def test_paths_without_audio(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("empty.wav").touch()
    Path("header.wav").write_bytes(written(SPEECH[:0], format="WAV"))
    with pytest.raises(audio.AudioError) as error:
        audio.info(path)
    assert str(error.value).endswith(message)


@pytest.mark.parametrize(("rate", "channels"), [(10, 1), (15_999, 1), (2_000_000, 1), (16000, 100)])
def test_rates_and_channels_of_no_recording(rate: int, channels: int) -> None:
    with pytest.raises(audio.AudioError, match=f"must have 1 to .* got {channels} at {rate} Hz"):
        audio.read(io.BytesIO(written(np.zeros((100, channels)), rate, format="WAV")))


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("channels", [1, 2, 7])
def test_pieces_give_the_samples_of_the_whole(
    rate: int, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: mixed down and resampled as the file is read, a piece at a time."""
    path = tmp_path / "x.flac"
    voices = [speech(1.5, seed, rate=rate) for seed in range(channels)]
    soundfile.write(path, np.stack(voices, axis=1), rate)
    samples, _ = audio.read(path, 0.25, 1.0)
    whole = audio.resample(audio.mono(samples), rate)
    for values in (2**22, 5000):
        monkeypatch.setattr(files, "BLOCK_VALUES", values)
        assert np.array_equal(audio.load(path, 0.25, 1.0), whole)
        sizes = [block.size for block, _ in audio.blocks(path, 60.0, channel="split")]
        assert max(sizes) <= values


@pytest.mark.parametrize("name", ["x.wav", "x.m4a"])
def test_too_many_samples_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    muxed(tmp_path / name, "aac" if name == "x.m4a" else "pcm_s16le")
    monkeypatch.setattr(files, "MAX_VALUES", 20_000)
    with pytest.raises(audio.AudioError, match="too many to be read at once"):
        audio.read(tmp_path / name)
    assert len(audio.read(tmp_path / name, duration=1.0)[0]) == 16_000


@pytest.mark.parametrize("data", [wav(), flac_of(0)], ids=["counted", "uncounted"])
@pytest.mark.parametrize("start", [1e308, -1e308, -1.0, 2.5, float("nan"), float("inf")])
def test_starts_outside_the_file(start: float, data: bytes) -> None:
    with pytest.raises(audio.AudioError, match=r"has 2\.00 s; start .* is not in it"):
        audio.read(io.BytesIO(data), start)
    assert len(audio.read(io.BytesIO(data), 0.0, 1e308)[0]) == 32000
    assert len(audio.load(io.BytesIO(data), start=1.5)) == 8000
    assert not len(audio.load(io.BytesIO(data), start=2.0))


@pytest.mark.parametrize("data", [wav(), flac_of(0)], ids=["counted", "uncounted"])
@pytest.mark.parametrize(("start", "duration", "said"), [
    (0.0, 2.2, "has 2.00 s; 0 to 2.2 s are not all in it; the audio there is used"),
    (1.5, 1.0, "has 2.00 s; 1.5 to 2.5 s are not all in it; the audio there is used"),
    (0.0, 2.05, None), (1.5, 0.5, None), (0.0, None, None),
])  # fmt: skip
def test_parts_that_end_outside_the_file_are_reported(
    start: float, duration: float | None, said: str | None, data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert len(audio.read(io.BytesIO(data), start, duration)[0]) == 32000 - start * 16000
    assert caplog.messages == ([f"audio in memory {said}"] if said else [])

"""Whatever a file holds or is called, it is read as a local file, or refused with an AudioError."""

import io
import os
import random
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from asrkit import audio
from asrkit.audio import files
from asrkit.audio.containers import Container, begins_as_mp3
from asrkit.audio.files import opened
from tests.conftest import speech, write_wav


def write_by_ffmpeg(path: Path, codec: str, rate: int = 16000) -> Path:
    """Two seconds of speech in a container that soundfile does not read."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.layout = "mono"
        samples = (speech(2.0, rate=rate) * 32767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = rate
        wanted = av.AudioResampler(stream.format.name, "mono", rate, stream.frame_size or None)
        for part in [*wanted.resample(frame), *wanted.resample(None), None]:
            container.mux(stream.encode(part))
    return path


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A file of each format."""
    folder = tmp_path_factory.mktemp("originals")
    paths = [folder / f"x.{ending}" for ending in ("wav", "flac", "mp3", "ogg")]
    for path in paths:
        soundfile.write(path, speech(2.0), 16000)
    opus = folder / "opus.ogg"
    soundfile.write(opus, speech(2.0), 16000, format="OGG", subtype="OPUS")
    return [
        *paths, opus, write_by_ffmpeg(folder / "x.m4a", "aac"),
        write_by_ffmpeg(folder / "x.webm", "libopus", 48000),
        write_by_ffmpeg(folder / "x.mov", "alac"),
    ]  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, most of them in the headers; at times cut off, or a piece left out."""
    changed = bytearray(data)
    reach = min(len(data), draw.choice([64, 400, len(data)]))
    for _ in range(draw.choice([1, 2, 8, 32])):
        at = draw.randrange(reach)
        changed[at] = draw.choice([0, 127, 128, 255, draw.randrange(256)])
    if draw.random() < 0.2:
        del changed[draw.randrange(len(changed)) :]
    elif draw.random() < 0.2:
        at = draw.randrange(len(changed))
        del changed[at : at + draw.randrange(200)]
    return bytes(changed)


def test_damaged_files(originals: list[Path], tmp_path: Path) -> None:
    """Odd streams, rates, tags that are no UTF-8: an AudioError of one line or samples."""
    draw, refused, count = random.Random(1), [], 150
    for _ in range(count):
        original = draw.choice(originals)
        path = tmp_path / f"damaged{original.suffix}"
        path.write_bytes(mutated(original.read_bytes(), draw))
        try:
            audio.read(path, 0.0, 1.0)
        except audio.AudioError as error:
            refused.append(str(error))
    assert 20 < len(refused) < count - 20
    assert all(str(tmp_path / "damaged") in message for message in refused)
    assert not any("\n" in message for message in refused)


def test_ffmpeg_reads_the_file_that_is_named(
    originals: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative name with a colon is no protocol."""
    monkeypatch.chdir(tmp_path)
    m4a = next(path for path in originals if path.suffix == ".m4a")
    Path("12:30.m4a").write_bytes(m4a.read_bytes())
    assert np.array_equal(audio.load("12:30.m4a"), audio.load(m4a))
    assert len(audio.load("12:30.m4a")) > 1.9 * 16000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.m4a", "ffconcat version 1.0\nfile {}\n"),
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\n{}\n#EXT-X-ENDLIST\n"),
        ("list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{}\n#EXT-X-ENDLIST\n"),
        ("list.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n"),
    ],
)
def test_a_playlist_reads_no_other_file(
    name: str, text: str, originals: list[Path], tmp_path: Path
) -> None:
    named = "x.m4a"
    m4a = next(path for path in originals if path.suffix == ".m4a")
    (tmp_path / named).write_bytes(m4a.read_bytes())
    (tmp_path / name).write_text(text.format(named))
    with pytest.raises(audio.AudioError, match="is not audio"):
        audio.load(tmp_path / name)


def test_any_name_that_a_file_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are no UTF-8, what libsndfile takes for standard input, line ends."""
    monkeypatch.chdir(tmp_path)
    wav = write_wav(tmp_path / "x.wav", speech(0.5)).read_bytes()
    for name in (os.fsdecode(b"a\xff.wav"), "-", "pipe:ls", "a\nb.wav"):
        Path(name).write_bytes(wav)
        assert len(audio.load(name)) == 8000
        Path(name).write_bytes(b"no audio")
        with pytest.raises(audio.AudioError, match="is not audio") as error:
            audio.load(name)
        assert str(error.value).isprintable()
    with pytest.raises(audio.AudioError, match="cannot be read: File name too long") as error:
        audio.load("x" * 5000)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(("rate", "channels"), [(10, 1), (2_000_000, 1), (16000, 100)])
def test_rates_and_channels_of_no_recording(rate: int, channels: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros((100, channels)), rate)
    with pytest.raises(audio.AudioError, match=f"must have 1 to .* got {channels} at {rate} Hz"):
        audio.info(tmp_path / "x.wav")


def test_audio_in_memory(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(0.5))
    samples, _ = audio.read(io.BytesIO(path.read_bytes()), 0.1, 0.2)
    assert np.array_equal(samples, audio.read(path, 0.1, 0.2)[0])
    with pytest.raises(audio.AudioError, match="audio in memory is not audio"):
        audio.read(io.BytesIO(b"no audio"))


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


def test_a_piece_is_bounded_in_samples_and_channels(tmp_path: Path) -> None:
    """Eight channels at the highest rate of FLAC: 21 MB a second."""
    path = tmp_path / "x.flac"
    soundfile.write(path, np.zeros((655350, 8), dtype=np.int16), 655350)
    sizes = [block.size for block, _ in audio.blocks(path, seconds=60.0)]
    assert sum(sizes) == 655350 * 8
    assert max(sizes) <= files.BLOCK_VALUES


def test_what_is_too_much_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_wav(tmp_path / "x.wav", np.stack([speech(1.0)] * 2, axis=1))
    monkeypatch.setattr(files, "MAX_VALUES", 20000)
    audio.read(path, duration=0.5)
    with pytest.raises(audio.AudioError, match="16000 samples of 2 channels are too many to be"):
        audio.read(path)


@pytest.mark.parametrize("start", [1e308, -1e308, -1.0, 1.5, float("nan"), float("inf")])
def test_starts_outside_the_file(start: float, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(1.0))
    with pytest.raises(audio.AudioError, match=r"has 1\.00 s; start .* is not in it"):
        audio.read(path, start)
    assert len(audio.read(path, 0.0, 1e308)[0]) == 16000


def test_an_error_of_who_reads_is_not_the_files(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "x.wav", speech(1.0))
    with pytest.raises(OSError, match="disk full"), opened(path):
        raise OSError("disk full")


@pytest.mark.parametrize(("count", "notes"), [(24_000, 0), (48_000, 1), (None, 1)])
def test_a_part_that_ends_with_a_file_reaches_its_end(count: int | None, notes: int) -> None:
    """Its reader notes there what the file lacks."""
    data = io.BytesIO()
    soundfile.write(data, speech(3.0), 16000, format="AIFF")
    container, problems = Container(io.BytesIO(data.getvalue() + bytes(99)), "x"), list[str]()
    assert sum(map(len, container.samples(0, count, problems))) == (count or 48_000)
    assert len(problems) == notes


@pytest.mark.parametrize(("head", "is_mp3"), [
    (b"ID3\4", True), (b"\xff\xfb\x90", True), (b"\xff\xe3\x90", True), (b"\xff\xe0", True),
    (b"\xff\xd8\xff", False), (b"\0\xff\xfb", False), (b"\xff", False), (b"", False),
    (b"ID2\4", False), (b"RIFF", False),
])  # fmt: skip
def test_the_first_bytes_of_mp3(head: bytes, is_mp3: bool) -> None:
    assert begins_as_mp3(io.BytesIO(head)) == is_mp3


def test_more_samples_than_the_header_counts_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_by_ffmpeg(tmp_path / "x.m4a", "aac")
    monkeypatch.setattr(files, "MAX_VALUES", 20_000)
    with pytest.raises(audio.AudioError, match="too many to be read at once"):
        audio.read(path)
    assert len(audio.read(path, duration=1.0)[0]) == 16_000


def test_a_flac_file_of_which_nothing_decodes(tmp_path: Path) -> None:
    data = io.BytesIO()
    soundfile.write(data, np.zeros(16000), 16000, format="FLAC")
    path = tmp_path / "x.flac"
    path.write_bytes(data.getvalue()[:86] + b"\x55" * 500)
    assert audio.info(path).num_samples == 16000
    with pytest.raises(audio.AudioError, match=r"x\.flac is damaged: "):
        audio.read(path)


@pytest.mark.parametrize(("name", "first", "called", "length"), [
    ("joined_tagged.mp3", 0, "a.mp3", 61632),  # from memory libmpg123 read 3503 samples of it
    ("planes.aac", 4, "a.mp3", 1024),  # by its name it was rejected
])  # fmt: skip
def test_damaged_files_are_recognised_without_a_name(
    name: str, first: int, called: str, length: int, tmp_path: Path
) -> None:
    data = (Path(__file__).parents[1] / "kept" / "damaged" / name).read_bytes()[first:]
    path = tmp_path / called
    path.write_bytes(data)
    for source in (path, io.BytesIO(data)):
        assert len(audio.read(source)[0]) == length


@pytest.mark.parametrize(("name", "length", "said"), [
    ("planes.aac", 1024, "is damaged"),  # PyAV gives more planes than channels: a crash
    ("unknown_codec.flv", 1024, "1: unknown codec"),  # a second track: a traceback
    ("guessed.mpg", 768, None),  # libmpg123 guesses 1075 samples
])  # fmt: skip
def test_damaged_files_that_mutation_found(
    name: str, length: int, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(__file__).parents[1] / "kept" / "damaged" / name
    assert audio.info(path).num_samples == len(audio.read(path)[0]) == length
    assert said is None or said in caplog.text

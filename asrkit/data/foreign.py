"""Recognition of other toolkits' files, folders and keys."""

import difflib
import gzip
import json
import lzma
import os
import re
import shlex
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from asrkit.audio.files import SUFFIXES
from asrkit.errors import printable, shown

HEAD = 1 << 16  # bytes of a file that are examined
FEW = 20  # members of a tar that are examined
MOST_NAMES = 10_000  # names of a folder that are examined
GZIP = b"\x1f\x8b"
LINES = "write one JSON object a line with id, audio and text"
AUDIO_MAGIC = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"FORM",
               b"\x1aE\xdf\xa3", b".snd", b"NIST_1A", b"caff", b"RF64")  # fmt: skip
TEXT_BEGINNINGS = {
    "<": "XML",
    "WEBVTT": "subtitles",
    'File type = "ooTextFile"': "a TextGrid of Praat",
    "#!MLF!#": "a label file of HTK",
    "---": "YAML",
    "- ": "YAML",
}
COLUMNS = {"path", "audio", "wav", "file", "file_name", "filename", "wav_filename", "sentence",
           "text", "transcript", "transcription", "client_id", "audio_filepath", "speaker",
           "duration", "id", "n_frames", "tgt_text"}  # fmt: skip
SEPARATORS = {"\t": "TSV", ",": "CSV", ";": "CSV with ;", "|": "a table with |"}
STATED = re.compile(r"\"?sep=([\t,;|])\"?", re.IGNORECASE)  # first line of a table, by Excel
TAR = re.compile(r"\.tar(?:\.\w+)?$|\.tgz$")  # endings of tar archives
# Errors of tarfile for damaged archives
TAR_FAULTS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
TRANSCRIPTS = ".trans.txt"  # endings of LibriSpeech's
COMMON_VOICE = {"train.tsv", "dev.tsv", "test.tsv", "validated.tsv"}
METADATA = ("metadata.jsonl", "metadata.csv")  # lists of an audiofolder of Hugging Face
KALDI = {"wav.scp", "text", "utt2spk", "spk2utt", "segments", "utt2dur", "reco2dur"}
SCP_LINE = re.compile(r"\S+\s+\S.*(?:\.(?:wav|flac|sph|mp3|ogg|opus|m4a|ark:\d+)|\|)\s*")

# Keys of other toolkits, without case and signs, by the key of a plain manifest.
NAMES = {
    "audio": "audiofilepath audiopath audiofile audiofilename wav wavpath wavfile wavfilename path "
    "file filename filepath",
    "id": "uttid utteranceid utt uid key",
    "text": "transcript transcription sentence txt reference ref",
    "speaker": "speakerid spk spkid speakername clientid",
    "start": "offset begin begintime starttime startsec startseconds onset",
    "duration": "dur length durationsec durationseconds",
    "sample_rate": "samplerate samplingrate sr",
    "num_channels": "numchannels channels nchannels",
}
KEYS = {key: name for name, keys in NAMES.items() for key in keys.split()}
ENDS = {"end", "endtime", "endsec", "endseconds", "stop"}
SIMILAR = 0.8  # difflib's ratio, above which a key counts as misspelt


class Foreign(NamedTuple):
    """A file or folder that is not a manifest."""

    what: str  # description, such as "a NeMo manifest"
    advice: str = LINES  # what to do with it, if `asrkit data import` does not read it
    kind: str | None = None  # kind of `asrkit data import`, or None

    def to_do(self, path: Path) -> str:
        """Return what to do with it: the command that imports it, or the advice."""
        return f"use {import_command(self.kind, path)}" if self.kind else self.advice


HUGGING_FACE = "as in Hugging Face's datasets"
MAGIC = {
    b"PAR1": Foreign(f"a parquet file, {HUGGING_FACE}", kind="huggingface"),
    b"ARROW1": Foreign(f"an Arrow file, {HUGGING_FACE}", kind="huggingface"),
    b"\xff\xff\xff\xff": Foreign(f"an Arrow stream, {HUGGING_FACE}", kind="huggingface"),
    b"PK\x03\x04": Foreign("a zip archive", "unpack it"),
    b"SQLite format 3": Foreign("an SQLite database"),
    b"%PDF": Foreign("a PDF file"),
    b"\x93NUMPY": Foreign("a NumPy array"),
}


def import_command(kind: str, path: Path) -> str:
    return f"asrkit data import {kind} {shlex.quote(printable(str(path)))} --output DIR"


def plain(key: str) -> str:
    """Return a key without case and signs: "Sample-Rate" and "sample_rate" become equal."""
    return re.sub(r"[\W_]", "", key).lower()


def meant(key: str, names: Collection[str]) -> str | None:
    """Return the key of a plain manifest for another toolkit's key or a misspelt key, or None."""
    bare = plain(key)
    if bare in ENDS:
        return "duration"
    if bare in KEYS:
        return KEYS[bare]
    for name in names:
        own = plain(name)
        if (
            sorted(own) == sorted(bare)
            or difflib.SequenceMatcher(None, own, bare).ratio() > SIMILAR
        ):
            return name
    return None


def wrong_keys(values: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Describe keys of a line that should be one of `names`, if the line lacks that name."""
    found = {}
    for key in values.keys() - set(names):
        name = meant(key, names) if values[key] is not None else None
        if name is not None and values.get(name) is None:
            found[key] = f"{name} (end minus start)" if plain(key) in ENDS else name
    if not found:
        return None
    pairs = sorted(found.items())
    return ", ".join(f"{shown(key)} is not a key here: write {name}" for key, name in pairs[:5])


def described(path: Path) -> str | None:
    """Return what a file or folder is that is not a manifest, with advice; None if unknown."""
    found = recognized(path)
    return found and f"{found.what}: {found.to_do(path)}"


def recognized(path: Path) -> Foreign | None:
    """Return what a file or folder is that is not a manifest; None if unknown."""
    if path.is_dir():
        is_shar = any(name.startswith(("cuts.", "recording.")) for name in names_in(path))
        return None if is_shar else next(kinds_of_folder(path), None)
    if not path.is_file():  # opening a pipe would wait for its writer
        return None
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            zipped = head.startswith(GZIP)
            if zipped:
                file.seek(0)
                head = gzip.GzipFile(fileobj=file).read(HEAD)
    except (OSError, EOFError, zlib.error):
        return None
    binary = tar_kind(path) if head[257:262] == b"ustar" else binary_kind(head)
    if binary or (path.suffix == ".gz" and not zipped):
        return binary
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    lines = [line for line in head.decode(encoding, "replace").splitlines() if line.strip()][:20]
    if not lines or "\0" in lines[0]:
        return None
    if lines[0].lstrip().startswith(("{", "[")):
        return json_kind(lines, zipped)
    if any(line.startswith("{") for line in lines):
        return None
    return text_kind(path, lines)


def binary_kind(head: bytes) -> Foreign | None:
    """Return the kind of a binary file by its first bytes."""
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    if head.startswith(AUDIO_MAGIC) or head[4:8] == b"ftyp":
        advice = "a manifest lists audio files; to decode one, use asrkit decode"
        return Foreign("an audio file", advice)
    return None


def tar_kind(path: Path) -> Foreign:
    """Return the kind of a tar archive by its first members."""
    try:
        with tarfile.open(path) as tar:
            names = [os.path.splitext(member.name) for member in islice(tar, FEW)]
    except TAR_FAULTS:
        names = []
    sound = {name for name, ending in names if ending.lower() in SUFFIXES}
    is_shar = path.name.startswith("recording.")
    if not is_shar and any(ending in (".txt", ".json") and name in sound for name, ending in names):
        return Foreign("a tar of WebDataset", kind="webdataset")
    return Foreign(
        "a tar archive", "unpack it, or name NeMo's manifest or the folder of lhotse's Shar"
    )


def json_kind(lines: list[str], zipped: bool) -> Foreign | None:
    """Return the kind of a file of JSON that is not JSON lines of utterances."""
    text = "".join(lines[:2]).replace(" ", "").replace("\t", "")
    if text.startswith("[{"):
        return Foreign("a JSON array", "write each object on a separate line, without commas")
    try:
        values = json.loads(lines[0])
    except (ValueError, RecursionError):
        several = len(lines) > 2 and lines[0].rstrip().endswith(("{", ",", ":"))
        return Foreign("JSON over several lines") if several else None
    return object_kind(values, zipped) if isinstance(values, dict) and values else None


def object_kind(values: dict[str, Any], zipped: bool) -> Foreign | None:
    """Return the kind of a JSON-lines file by its first object."""
    keys = f"keys {shown(', '.join(map(str, values)))[1:-1]}"
    if "sources" in values and "sampling_rate" in values:
        return Foreign(f"lhotse's recordings ({keys})", kind="lhotse")
    if "recording_id" in values and "type" not in values:
        advice = "name the file of its recordings, or the folder of both"
        return Foreign(f"lhotse's supervisions ({keys})", advice)
    if "audio_filepath" in values:
        return Foreign(f"a NeMo manifest ({keys})", kind="nemo")
    if {"key", "wav", "txt"} <= values.keys():
        return Foreign(f"a WeNet list ({keys})", kind="wenet")
    if isinstance(values.get("audio"), dict):
        return Foreign(f"rows of Hugging Face's datasets ({keys})", kind="jsonl")
    if all(isinstance(value, dict) for value in values.values()):
        return Foreign("one JSON object of utterances, as in SpeechBrain and ESPnet")
    if zipped and "id" in values and isinstance(values.get("audio"), str):
        advice = "unpack it with gunzip; only lhotse's may be gzipped"
        return Foreign("a plain manifest, gzipped", advice)
    has_audio = any(KEYS.get(plain(str(key))) == "audio" for key in values)
    if has_audio and not {"audio", "type"} & values.keys():  # lhotse's cuts have a type
        return Foreign(f"JSON lines with other names ({keys})", kind="jsonl")
    return None


def text_kind(path: Path, lines: list[str]) -> Foreign:
    """Return the kind of a text file that is not JSON."""
    for beginning, kind in TEXT_BEGINNINGS.items():
        if lines[0].startswith(beginning):
            return Foreign(kind)
    if path.name == "wav.scp" or all(map(SCP_LINE.fullmatch, lines)):
        return Foreign("Kaldi's wav.scp", f"use {import_command('kaldi', path.parent)}")
    if path.name in KALDI:
        return Foreign(f"Kaldi's {path.name}", f"use {import_command('kaldi', path.parent)}")
    if sign := separator(lines):
        header = lines[1 if STATED.fullmatch(lines[0]) and lines[1:] else 0]
        cells = [cell.strip('" \t').lower() for cell in header.split(sign)]
        what = f"{SEPARATORS[sign]} (columns {shown(', '.join(cells))[1:-1]})"
        return Foreign(what, kind="table")
    if path.suffix.lower() in (".csv", ".tsv"):
        return Foreign("a table", kind="table")
    return Foreign(f"text and not JSON lines (it begins with {shown(lines[0], 40)})")


def separator(lines: list[str]) -> str | None:
    """Return the character between the columns of a table, by its first lines, or None."""
    if lines and (stated := STATED.fullmatch(lines[0])):
        return stated[1]
    for sign in SEPARATORS:
        cells = [cell.strip('" \t').lower() for cell in lines[0].split(sign)]
        regular = len(lines) > 1 and len({line.count(sign) for line in lines}) == 1
        if len(cells) > 1 and (COLUMNS & set(cells) or (regular and sign in "\t|")):
            return sign
    return None


def names_in(folder: Path) -> list[str]:
    """Return the first MOST_NAMES names in a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(each.name for each in islice(entries, MOST_NAMES))


def metadata_in(folder: Path) -> list[Path]:
    """Return the lists of an audiofolder of Hugging Face, of the folder and two levels below."""
    places = (each for above in ("", "*/", "*/*/") for name in METADATA
              for each in sorted(folder.glob(above + name)) if each.is_file())  # fmt: skip
    return [place for place in places if "file_name" in first_line(place)]


def first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(HEAD).decode(errors="replace")


def kinds_of_folder(path: Path) -> Iterator[Foreign]:
    """Yield the kinds that a folder can be, the likeliest first."""
    names = names_in(path)
    if "clips" in names and COMMON_VOICE & set(names):
        yield Foreign("a folder of Common Voice", kind="commonvoice")
    if languages := [name for name in names if (path / name / "clips").is_dir()]:
        advice = f"name the folder of one language, such as {shown(path / languages[0])}"
        yield Foreign("a release of Common Voice", advice)
    if metadata_in(path):
        yield Foreign(f"an audiofolder, {HUGGING_FACE}", kind="audiofolder")
    if {"metadata.csv", "wavs"} <= set(names):
        yield Foreign("a folder like LJSpeech", kind="ljspeech")
    if "wav.scp" in names:
        yield Foreign("a data folder of Kaldi", kind="kaldi")
    tars = [name for name in names if TAR.search(name)]
    if tars and tar_kind(path / tars[0]).kind:
        yield Foreign("a folder of WebDataset", kind="webdataset")
    lists = [name for name in names if name.endswith((".jsonl", ".jsonl.gz", "manifest.json"))]
    if any("recordings" in name for name in lists):
        yield Foreign("lhotse's recordings and supervisions", kind="lhotse")
    if lists:
        yield Foreign("a folder", f"name a manifest in it, such as {shown(path / lists[0])}")
    inside = list(islice((name for _, _, names in os.walk(path) for name in names), MOST_NAMES))
    if any(name.endswith((".arrow", ".parquet")) for name in inside):
        yield Foreign("a dataset of Hugging Face", kind="huggingface")
    if any(name.endswith(TRANSCRIPTS) for name in inside):
        yield Foreign("a folder like LibriSpeech", kind="librispeech")
    if count := sum(1 for name in inside if Path(name).suffix.lower() in SUFFIXES):
        more = "at least " if len(inside) == MOST_NAMES else ""
        yield Foreign(f"a folder of {more}{count} recordings without a manifest", kind="folder")

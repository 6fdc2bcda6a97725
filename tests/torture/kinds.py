"""The kinds of inputs: valid examples of each, and how asrkit reads one."""

import asyncio
import gzip
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import soundfile
import torch
import yaml

import asrkit
from asrkit.build import build_fusion, build_hotwords, build_model, build_normalizer
from asrkit.commands.data import main as data
from asrkit.config import ConfigError, load_config, parse_language_model, parse_search
from asrkit.data.corpora.registry import READERS
from asrkit.data.recordings import load_recordings
from asrkit.errors import UserError
from asrkit.interop import import_checkpoint
from asrkit.lm.hotwords import read_hotwords
from asrkit.model_file import load_model, read_config_of, read_terms_of
from asrkit.runtime.load import recognizer_of
from asrkit.serve.converse import LeftError
from asrkit.serve.dialects.wyoming import EventLine
from asrkit.training.checkpoints import read_checkpoint
from tests.torture.audio import AUDIO
from tests.torture.cage import Part
from tests.torture.live import LIVE, recognizer
from tools.nemo_checkpoint import settings, weights, write

PROJECT = Path(__file__).parents[2]
KEPT, TINY, FIXTURES = (PROJECT / "tests" / name for name in ("kept", "lm", "fixtures"))
TEXTS = ("ab", "b a", "c")


def copies(*names: str, root: Path = KEPT) -> Callable[[Path], None]:
    """Return a function that copies kept files into a folder."""

    def seeds(folder: Path) -> None:
        for name in names:
            for path in sorted(root.glob(name)):
                (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)

    return seeds


@cache
def noise() -> np.ndarray:
    """Return half a second of noise."""
    return (0.1 * np.random.default_rng(0).standard_normal(8000)).astype(np.float32)


def command(status: int) -> str:
    """Reject the input if a command has rejected it."""
    if status == 2:
        raise ConfigError("rejected by the command")
    return ""


def model(path: Path, said: list[str]) -> str:
    for read in (read_terms_of, read_config_of):
        with suppress(UserError):  # the next reader may accept it
            read(path)
    recognizer_of(load_model(path)).transcribe(noise(), 16000)
    return ""


def checkpoint(path: Path, said: list[str]) -> str:
    read_checkpoint(path)
    return ""


def config_seeds(folder: Path) -> None:
    copies("*.yaml", root=PROJECT / "conf")(folder)
    for number, path in enumerate(sorted(folder.iterdir())[:4]):
        values = yaml.safe_load(path.read_text())
        lines = [f"{s}.{k}={json.dumps(v)}" for s in values for k, v in values[s].items()]
        (folder / f"{number}.overrides").write_text("\n".join(lines))


def config(path: Path, said: list[str]) -> str:
    """Read a configuration, or overrides of one, and build its network without memory."""
    if path.suffix == ".yaml":
        found = load_config(path, [])
    else:
        lines = path.read_text(errors="surrogateescape").split("\n")
        found = load_config(PROJECT / "conf" / "an4.yaml", lines)
    with torch.device("meta"):
        build_model(found.model, 100)
    return ""


def manifest_seeds(folder: Path) -> None:
    copies("shards")(folder)
    (folder / "plain").mkdir()
    copies("train.jsonl", "audio")(folder / "plain")


def manifest(path: Path, said: list[str]) -> str:
    """Read a manifest, or a folder of shards, like training, and check it."""
    path = path / "train.jsonl" if (path / "train.jsonl").exists() else path
    recordings = load_recordings(str(path), [])
    said += (each.id for each in recordings)
    for place in range(min(3, len(recordings))):
        try:
            recordings.load(place)
        except asrkit.audio.AudioError as error:
            said.append(str(error))
    return command(data(["check", str(path), "--no-audio"]))


def corpus_seeds(folder: Path) -> None:
    """Write a small corpus of each kind that `asrkit data import` reads."""
    for name in READERS:
        (folder / name / "wavs").mkdir(parents=True)
        for i in range(4):
            soundfile.write(folder / name / "wavs" / f"1-2-{i}.wav", noise(), 16000)
    ids = [f"1-2-{i}" for i in range(4)]
    rows = [(i, f"wavs/{i}.wav", text) for i, text in zip(ids, TEXTS * 2, strict=False)]

    def put(name: str, text: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def lines(form: str) -> str:
        return "".join(form.format(i=i, a=a, t=t) + "\n" for i, a, t in rows)

    put("folder/wavs/1-2-0.txt", "ab\n")
    put("folder/wavs/1-2-1.srt", "1\n00:00:00,100 --> 00:00:00,400\nb a\n")
    put("folder/wavs/1-2-2.vtt", "WEBVTT\n\n00:00.000 --> 00:00.400\nc\n")
    grid = ('File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 0.5\n'
            'tiers? <exists>\nsize = 1\nitem []:\n item [1]:\n class = "IntervalTier"\n'
            ' name = "words"\n xmin = 0\n xmax = 0.5\n intervals: size = 1\n intervals [1]:\n'
            ' xmin = 0\n xmax = 0.4\n text = "ab"\n')  # fmt: skip
    put("folder/wavs/1-2-3.TextGrid", grid)
    put("table/source.csv", "id,audio,text\n" + lines("{i},{a},{t}"))
    form = '{{"id": "{i}", "audio": "{a}", "text": "{t}"}}'
    put("manifest/source.jsonl", lines(form))
    form = '{{"audio_filepath": "{a}", "text": "{t}", "duration": 0.5}}'
    put("nemo/source.json", lines(form))
    put("jsonl/source.list", lines('{{"key": "{i}", "wav": "{a}", "txt": "{t}"}}'))
    put("kaldi/wav.scp", lines("{i} {a}"))
    put("kaldi/text", lines("{i} {t}"))
    put("kaldi/utt2spk", lines("{i} s"))
    put("librispeech/1/2/1-2.trans.txt", lines("{i} {t}"))
    for path in (folder / "librispeech" / "wavs").iterdir():
        path.rename(folder / "librispeech" / "1" / "2" / path.name)
    form = ('{{"id": "{i}", "sources": [{{"type": "file", "channels": [0], "source": "{a}"}}], '
            '"sampling_rate": 16000, "num_samples": 8000, "duration": 0.5}}')  # fmt: skip
    put("lhotse/recordings.jsonl", lines(form))
    form = ('{{"id": "{i}", "recording_id": "{i}", "start": 0.0, "duration": 0.5, "channel": 0, '
            '"text": "{t}"}}')  # fmt: skip
    put("lhotse/supervisions.jsonl", lines(form))
    import pyarrow
    from pyarrow import parquet

    audio = [{"bytes": (folder / "table" / a).read_bytes(), "path": None} for _, a, _ in rows]
    table = pyarrow.table({"audio": audio, "text": [t for _, _, t in rows]})
    parquet.write_table(table, folder / "huggingface" / "train.parquet")
    shutil.rmtree(folder / "huggingface" / "wavs")


def corpus(path: Path, said: list[str]) -> str:
    source = next(path.glob("source.*"), path)
    output = path.parent / "output"
    return command(data(["import", path.name, str(source), "--output", str(output)]))


def language_seeds(folder: Path) -> None:
    copies("*.arpa", root=TINY)(folder)
    (folder / "tiny.arpa.gz").write_bytes(gzip.compress((TINY / "tiny.arpa").read_bytes(), mtime=0))


@cache
def small() -> Any:
    return load_model("small-en-alnum")


def language(path: Path, said: list[str]) -> str:
    file = small()
    fusion = build_fusion(
        parse_language_model(str(path)), parse_search("prefix_beam"), file.tokenizer
    )
    state = fusion.start()
    for token in file.tokenizer.encode("one two a b"):
        state, score = fusion.step(state, token)
        if not np.isfinite(score):
            return f"a score is {score}"
    return "" if np.isfinite(fusion.finish(state)) else "the last score is not finite"


def hotword_seeds(folder: Path) -> None:
    (folder / "a.txt").write_text("seven three\n# note\none\t3.5\nalpha bravo\t-1\n")
    (folder / "b.txt").write_text("".join(f"{a} {b}\n" for a in "abcdef" for b in "ghijk"))


def hotwords(path: Path, said: list[str]) -> str:
    file = small()
    found = build_hotwords(read_hotwords(path), file.tokenizer, build_normalizer(file.config.text))
    state, total = found.start(), 0.0
    for token in file.tokenizer.encode("seven three one"):
        state, score = found.step(state, token)
        total += score
    return "" if np.isfinite(total + found.finish(state)) else "a score is not finite"


def stream_seeds(folder: Path) -> None:
    for kind in ("plain", "segments"):
        session = recognizer(kind).start(sample_rate=16000 if kind == "plain" else 8000)
        for number in range(4):
            session.accept(np.tile(noise(), 3)[: 5000 * number])
            (folder / f"{kind}{number}.bin").write_bytes(session.save())


def stream(path: Path, said: list[str]) -> str:
    kind = "plain" if path.name.startswith("plain") else "segments"
    session = recognizer(kind).restore(path.read_bytes())
    try:
        session.accept(noise())
    except RuntimeError as error:  # a mutation that the stream has ended is a valid stream
        if "has ended" not in str(error):
            raise
    session.save()
    session.finish()
    return ""


def foreign_seeds(folder: Path) -> None:
    """Copy or write checkpoints of NeMo, and copy folders of WeNet."""
    for path in sorted(FIXTURES.glob("*")):
        if (path / "model.nemo").exists():
            shutil.copyfile(path / "model.nemo", folder / f"{path.name}.nemo")
        elif (path / "final.pt").exists():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("*.npz"))
    shutil.copytree(KEPT / "wenet", folder / "wenet-kept")
    shape = settings(1, 16, 8, 12)
    write(folder / "tiny.nemo", shape, weights(1, 16, 8, 12, False))


def foreign(path: Path, said: list[str]) -> str:
    kind = "nemo" if path.suffix == ".nemo" else "wenet"
    recognizer_of(import_checkpoint(kind, path).file).transcribe(noise(), 16000)
    return ""


def export(path: Path, said: list[str]) -> str:
    loaded = asrkit.load(
        KEPT / "models" / "exported.safetensors", backend=path,
        chunk_size="full" if "full" in path.name else 4, left_context=8, right_context=0,
    )  # fmt: skip
    loaded.transcribe(noise(), 16000)
    return ""


def wyoming_seeds(folder: Path) -> None:
    rate = {"rate": 16000, "width": 2, "channels": 1}
    events: list[tuple[dict[str, Any], bytes]] = [
        ({"type": "describe"}, b""),
        ({"type": "transcribe", "data": {"language": "en"}}, b""),
        ({"type": "audio-start", "data": rate}, b""),
        ({"type": "audio-chunk", "data": rate}, bytes(3200)), ({"type": "audio-stop"}, b""),
    ]  # fmt: skip
    text = b"".join(
        json.dumps(head | {"payload_length": len(body)}).encode() + b"\n" + body
        for head, body in events
    )
    (folder / "call.bin").write_bytes(text)


def wyoming(path: Path, said: list[str]) -> str:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(path.read_bytes())
        reader.feed_eof()
        line = EventLine(reader, Mock(), 1 << 20)
        while True:
            await line.receive()

    with suppress(LeftError):
        asyncio.run(read())
    return ""


PARTS = {
    "audio": AUDIO,
    "models": Part(copies("models/*.safetensors"), model),
    "checkpoints": Part(copies("out/checkpoints/*.pt"), checkpoint),
    "configs": Part(config_seeds, config),
    "manifests": Part(manifest_seeds, manifest),
    "imports": Part(corpus_seeds, corpus),
    "languages": Part(language_seeds, language),
    "hotwords": Part(hotword_seeds, hotwords),
    "streams": Part(stream_seeds, stream),
    "foreign": Part(foreign_seeds, foreign, 2048),
    "exports": Part(copies("models/*.onnx"), export),
    "wyoming": Part(wyoming_seeds, wyoming),
    **LIVE,
}

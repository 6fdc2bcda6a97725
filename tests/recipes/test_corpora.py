"""The recipes for real corpora: archives of the original form in, checked manifests out."""

import importlib.util
import io
import json
import sys
import tarfile
import threading
import zipfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

from tests.conftest import RECORDINGS

ROOT = Path(__file__).resolve().parents[2]
AN4_TEXTS = {"an4_clstk/fash/an251-fash-b": "YES", "an4_clstk/fejs/cen1-fejs-b": "S C A V"}
AN4_TEST = {"an4test_clstk/fcaw/an406-fcaw-b": "RUBOUT G M"}
FSDD_NAMES = ["7_theo_4", "0_george_5", "1_george_9", "2_george_10", "9_theo_49"]

Rows = list[dict[str, object]]


def load_recipe(name: str, script: str = "prepare") -> ModuleType:
    """The script as a module; all are called prepare.py, so import cannot tell them apart."""
    path = ROOT / "recipes" / name / f"{script}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{script}", path)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AN4, FSDD = load_recipe("an4"), load_recipe("fsdd")


def make_samples(seed: int, rate: int) -> np.ndarray:
    """A quiet tone with some noise, 16 bit, a little over 0.2 s; the length depends on the seed."""
    time = np.arange(rate // 5 + seed * 7)
    noise = np.random.default_rng(seed).normal(0, 20, len(time))
    return (2000 * np.sin(time / 9) + noise).astype(np.int16)


def make_an4(folder: Path, raw: str | None = None) -> dict[str, np.ndarray]:
    """The unpacked original under `folder`/an4 as sphere files, or raw ones of a byte order."""
    etc = folder / "an4/etc"
    etc.mkdir(parents=True)
    (folder / "an4/LICENSE").write_text("free for use for any purpose\n")
    audio = {}
    for part, texts, form in (
        ("train", AN4_TEXTS, "<s> {} </s> ({})\n"),
        ("test", AN4_TEST, "{} ({})\n"),
    ):
        lines = [form.format(text, file_id.split("/")[-1]) for file_id, text in texts.items()]
        (etc / f"an4_{part}.transcription").write_text("".join(lines))
        (etc / f"an4_{part}.fileids").write_text("".join(f"{file_id}\n" for file_id in texts))
        for file_id in texts:
            samples = audio[file_id.split("/")[-1]] = make_samples(len(audio), 16000)
            path = folder / "an4/wav" / file_id
            path.parent.mkdir(parents=True, exist_ok=True)
            if raw:
                samples.astype(raw).tofile(f"{path}.raw")
            else:
                soundfile.write(f"{path}.sph", samples, 16000, format="NIST", subtype="PCM_16")
    return audio


def make_fsdd(folder: Path) -> dict[str, np.ndarray]:
    """The unpacked original, in the folder that its hosting gives the archive."""
    recordings = folder / "free-spoken-digit-dataset-master/recordings"
    recordings.mkdir(parents=True)
    audio = {name: make_samples(seed, 8000) for seed, name in enumerate(FSDD_NAMES)}
    for name, samples in audio.items():
        soundfile.write(recordings / f"{name}.wav", samples, 8000, subtype="PCM_16")
    return audio


def pack_an4(folder: Path) -> Path:
    """An archive like an4_sphere.tar.gz."""
    archive = folder / "an4_sphere.tar.gz"
    with tarfile.open(archive, "w:gz") as pack:
        pack.add(folder / "an4", "an4")
    return archive


def pack_fsdd(folder: Path) -> Path:
    """An archive like master.zip."""
    archive = folder / "master.zip"
    with zipfile.ZipFile(archive, "w") as pack:
        for path in sorted(folder.rglob("*.wav")):
            pack.write(path, path.relative_to(folder))
    return archive


def make_prepared(folder: Path) -> Path:
    """A prepared folder: two manifests and their audio."""
    for split, key in (("train", "a-1"), ("dev", "b-1")):
        path = folder / "audio" / f"{key}.flac"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, make_samples(0, 16000), 16000)
        row = {"id": key, "audio": f"audio/{key}.flac", "duration": 0.2, "text": "YES é"}
        line = json.dumps(row | {"speaker": key[0]}, ensure_ascii=False)
        (folder / f"{split}.jsonl").write_text(line + "\n", encoding="utf-8")
    return folder


def change_row(folder: Path, **values: object) -> None:
    """Rewrite fields of the one line of a prepared folder's train.jsonl."""
    path = folder / "train.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values) + "\n")


def read_rows(path: Path) -> Rows:
    """The lines of a manifest."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check_audio(rows: Rows, expected: dict[str, np.ndarray], rate: int) -> None:
    """Every line names audio with the samples that went in, and its duration."""
    for row in rows:
        samples, sample_rate = soundfile.read(row["audio"], dtype="int16")
        assert sample_rate == rate
        np.testing.assert_array_equal(samples, expected[str(row["id"])])
        assert row["duration"] == pytest.approx(len(samples) / rate, abs=1e-4)
        assert Path(str(row["audio"])).is_absolute()


def refuse(module: ModuleType, arguments: Sequence[object], capsys: pytest.CaptureFixture) -> str:
    """Run a recipe that must refuse: exit code 2 and one line, which is returned."""
    assert module.main([str(argument) for argument in arguments]) == 2
    message = capsys.readouterr().err.split("\r")[-1].strip().splitlines()[-1]
    assert message.startswith("recipes/")
    return message


def test_finished_archive_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_fsdd(tmp_path / "in")
    archive, out = pack_fsdd(tmp_path / "in"), tmp_path / "out"
    arguments = ["--output-dir", str(out), "--download", "--url", str(archive)]
    assert FSDD.main(arguments) == 0
    assert capsys.readouterr().err == ""  # no bar where nobody looks
    archive.unlink()
    assert FSDD.main(arguments) == 0
    assert "fetched before" in capsys.readouterr().out


def test_prepared_folder(tmp_path: Path) -> None:
    folder = make_prepared(tmp_path / "in")
    for module, out in ((AN4, tmp_path / "a"), (FSDD, tmp_path / "b")):
        assert module.main(["--output-dir", str(out), "--data-dir", str(folder)]) == 0
        check_audio(read_rows(out / "train.jsonl"), {"a-1": make_samples(0, 16000)}, 16000)
        assert read_rows(out / "dev.jsonl")[0]["text"] == "YES é"
        assert sorted(path.name for path in out.iterdir()) == ["dev.jsonl", "train.jsonl"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"duration": 0.25}, "duration 0.25, not 0.2"),
        ({"duration": float("nan")}, "duration nan, not 0.2"),
        ({"duration": "long"}, "train.jsonl:1"),
        ({"text": " "}, "has no text"),
        ({"text": "\ud800"}, "train.jsonl:1"),
        ({"text": None}, "give one JSON object with id, audio, duration, text, speaker"),
        ({"id": "b-1"}, "id b-1 comes twice"),
        ({"audio": "audio/none.flac"}, "audio/none.flac"),
        ({"audio": "train.jsonl"}, "cannot read audio file"),
    ],
)
def test_wrong_manifest_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture, values: dict[str, object], message: str
) -> None:
    folder = make_prepared(tmp_path / "in")
    change_row(folder, **values)
    assert message in refuse(AN4, ["--output-dir", tmp_path / "out", "--data-dir", folder], capsys)
    assert not (tmp_path / "out").exists()


def test_missing_or_misnamed_audio_of_the_original(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    make_an4(tmp_path)
    (tmp_path / "an4/wav/an4_clstk/fash/an251-fash-b.sph").unlink()
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", tmp_path]
    assert "an251-fash-b.sph" in refuse(AN4, arguments, capsys)
    make_fsdd(tmp_path)
    recordings = tmp_path / "free-spoken-digit-dataset-master/recordings"
    (recordings / "9_theo_49.wav").rename(recordings / "9_theo_50.wav")
    assert "9_theo_50.wav: the name should be" in refuse(FSDD, arguments, capsys)


def test_bad_url(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/page.html").write_text("<html>")
    for url, message in (
        ((tmp_path / "none.zip").as_uri(), "check the connection, or name another copy with --url"),
        (tmp_path / "none.zip", "cannot fetch file:///"),
        ("nonsense://host/x.zip", "unknown url type"),
        (tmp_path / "in/page.html", "delete it and fetch a good copy"),
    ):
        arguments = ["--output-dir", tmp_path / "out", "--download", "--url", url]
        assert message in refuse(FSDD, arguments, capsys)
    assert not list(tmp_path.glob("out/*.jsonl"))


class ShortServer(BaseHTTPRequestHandler):
    """Promises more bytes than it sends, as a connection does that breaks off."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"PK" * 5)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def test_broken_connection(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with HTTPServer(("127.0.0.1", 0), ShortServer) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/x.zip"
        arguments = ["--output-dir", tmp_path, "--download", "--url", url]
        assert "got 10 of 100 bytes" in refuse(FSDD, arguments, capsys)
        thread.join()
    assert not (tmp_path / "downloads/x.zip").exists()


def test_hostile_and_truncated_archives_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with tarfile.open(tmp_path / "up.tar.gz", "w:gz") as pack:
        entry = tarfile.TarInfo("../../evil")
        entry.size = 4
        pack.addfile(entry, io.BytesIO(b"evil"))
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as pack:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "../../.."
        pack.addfile(entry)
    with zipfile.ZipFile(tmp_path / "up.zip", "w") as pack:
        pack.writestr("../../evil", "evil")
    with zipfile.ZipFile(tmp_path / "root.zip", "w") as pack:
        pack.writestr(str(tmp_path / "evil"), "evil")
    for name in ("up.tar.gz", "link.tar.gz", "up.zip", "root.zip"):
        out = tmp_path / "out" / name
        arguments = ["--output-dir", out, "--download", "--url", tmp_path / name]
        assert "outside the destination" in refuse(AN4, arguments, capsys)
    assert not list(tmp_path.rglob("evil"))
    make_an4(tmp_path)
    archive = pack_an4(tmp_path)
    archive.write_bytes(archive.read_bytes()[:-3000])
    assert "cannot unpack" in refuse(AN4, [*arguments[:-1], archive], capsys)


@pytest.mark.parametrize(("name", "train", "dev"), [("an4", 16, 12), ("fsdd", 6, 5)])
def test_real_corpora(tmp_path: Path, name: str, train: int, dev: int) -> None:
    module = {"an4": AN4, "fsdd": FSDD}[name]
    assert module.main(["--output-dir", str(tmp_path), "--data-dir", str(RECORDINGS / name)]) == 0
    assert len(read_rows(tmp_path / "train.jsonl")) == train
    assert len(read_rows(tmp_path / "dev.jsonl")) == dev

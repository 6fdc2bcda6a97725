"""Decoding a corpus in shards: the same as in one go, whoever is stopped, killed or hostile."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soundfile

from asrkit.data.labelled import Labelled
from asrkit.errors import UserError
from asrkit.extras import pip_install
from asrkit.runtime.formats import FORMATS
from asrkit.transcription import shards as corpus
from asrkit.transcription import workers
from asrkit.transcription.leases import ATTEMPTS
from asrkit.transcription.shards import ShardedCorpus, header, shares
from tests.conftest import PROJECT, speech, write_manifest
from tests.running import run, talkative_model

JOINING = [form for form in FORMATS if FORMATS[form].joins]
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Six recordings, of which one is no audio."""
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        soundfile.write(f"{number}.wav", speech(1.0 + number / 5, seed=number), 16000)
    Path("4.wav").write_bytes(b"no audio")
    lines = [{"id": f"u{n}", "audio": f"{n}.wav", "text": "abc"} for n in range(6)]
    write_manifest(Path("all.jsonl"), *lines)
    return ["--model", str(talkative_model(Path("m.safetensors"))), "--manifest", "all.jsonl"]


SHARDED = ["--shards", "3", "--output-dir", "out"]


def files() -> list[Path]:
    return sorted(Path("out/shards").glob("*.json"))


@pytest.mark.parametrize("form", JOINING)
def test_the_same_as_in_one_go(form: str, command: list[str], capsys: Printed) -> None:
    assert run("decode", *command, "--format", form) == 1
    plain = capsys.readouterr()
    assert run("decode", *command, "--format", form, *SHARDED) == 1
    sharded = capsys.readouterr()
    text = Path(f"out/all.{form}").read_text(encoding="utf-8")
    if form == "jsonl":  # the last digit of a confidence depends on the batch
        texts, plain_texts = (
            [(each["id"], each["text"]) for each in map(json.loads, all_.splitlines())]
            for all_ in (text, plain.out)
        )
        assert texts == plain_texts
    else:
        assert text == plain.out
    assert sharded.err.startswith(plain.err)  # what is left out, and the error rates
    assert "5 utterances, 0.00 hours, RTFx " in sharded.err
    assert "1 left out: out/all." in sharded.err


def test_an_edited_language_model_or_postprocess_is_decoded_anew(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same name: their content counts."""
    monkeypatch.syspath_prepend(".")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for probability, case in (("-2", "upper"), ("-2", "lower"), ("-3", "lower"), ("-2", "upper")):
        Path("mine.py").write_text(f"def fix(text):\n    return text.{case}()\n")
        sys.modules.pop("mine", None)
        Path("lm.arpa").write_text(
            "\\data\\\nngram 1=4\n\n\\1-grams:\n-99\t<s>\n-1\t</s>\n-5\t<unk>\n"
            f"{probability}\tja\n\n\\end\\\n"
        )
        options = ["--search", "prefix_beam", "--lm", "lm.arpa", "--postprocess", "mine:fix"]
        assert run("decode", *command, *SHARDED, *options) == 1
        found.append((Path("out/all.txt").read_text(), len(files())))
    texts, counts = zip(*found, strict=True)
    assert texts[0] != texts[1]
    assert texts[0].lower() == texts[1]
    assert texts[3] == texts[0]
    assert counts == (3, 6, 9, 9)  # the last one's parts are there


def test_what_is_done_is_not_done_again(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("decode", *command, *SHARDED)
    before, decoded = files(), []
    assert len(before) == 3
    monkeypatch.setattr(ShardedCorpus, "decode", lambda self, name, do=ShardedCorpus.decode: (
        decoded.append(name), do(self, name)))  # fmt: skip
    Path("out/all.txt").unlink()
    run("decode", *command, *SHARDED)
    assert not decoded
    assert Path("out/all.txt").exists()
    run("decode", *command, *SHARDED, "--search", "prefix_beam")
    assert len(decoded) == 3
    assert len(files()) == 6  # neither model nor options mix


def hostile(path: Path, kind: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if kind == "garbage":
        path.write_bytes(os.urandom(1000))
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "another shard's":
        path.write_bytes(files()[-1].read_bytes())
    elif kind == "a link":
        Path("other").write_bytes(data)
        path.symlink_to(Path("other").absolute())
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        body = json.dumps([[["u0", 1.0, 5, "made up\n"]], 1.0]).encode()
        path.write_bytes(header(path.stem, body) + b"\n" + body)


@pytest.mark.parametrize(
    "kind", ["garbage", "truncated", "another shard's", "a link", "a pipe", "other types"]
)
def test_what_is_no_result_is_decoded_again(kind: str, command: list[str], capsys: Printed) -> None:
    run("decode", *command, *SHARDED)
    text = Path("out/all.txt").read_text()
    hostile(files()[0], kind)
    before = Path("other").read_bytes() if kind == "a link" else b""
    status = run("decode", *command, *SHARDED)
    if kind == "a pipe":  # which is not for us to remove
        assert status == 2
        assert "is not a file" in capsys.readouterr().err
        return
    assert Path("out/all.txt").read_text() == text
    assert not files()[0].is_symlink()
    assert kind != "a link" or Path("other").read_bytes() == before


def test_every_cut_is_noticed(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without the checksum some cut or changed results would be believed."""
    found: list[ShardedCorpus] = []
    monkeypatch.setattr(ShardedCorpus, "join", lambda self, path, do=ShardedCorpus.join: (
        found.append(self), do(self, path))[1])  # fmt: skip
    run("decode", *command, *SHARDED)
    path = files()[0]
    data, read = path.read_bytes(), found[0].read
    assert read(path.stem)
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert read(path.stem) is None
    changed = data.replace(b"\\n", b"z\\n", 1)
    path.write_bytes(changed)
    assert read(path.stem) is None
    monkeypatch.setattr(corpus, "header", lambda name, body: changed.split(b"\n")[0])
    assert read(path.stem)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_releases_the_lease(
    number: int, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            ShardedCorpus, "entry", lambda *_: os.kill(os.getpid(), number) or time.sleep(5)
        )
        assert run("decode", *command, *SHARDED) == 130
    (lease,) = Path("out/shards").glob("*.lease.*")
    assert lease.stat().st_mtime == 0
    assert run("decode", *command, *SHARDED) == 1  # at once
    assert not list(Path("out/shards").glob("*.lease.*"))


def test_a_shard_that_ends_its_processes_is_named(command: list[str], capsys: Printed) -> None:
    run("decode", *command, *SHARDED)
    path, joined = files()[1], Path("out/all.txt")
    path.unlink()
    joined.unlink()
    for attempt in range(ATTEMPTS):
        lease = path.with_name(f"{path.stem}.lease.{attempt}")
        lease.touch()
        os.utime(lease, (1000, 1000))
    capsys.readouterr()
    assert run("decode", *command, *SHARDED) == 1
    assert f"{ATTEMPTS} processes ended while they decoded u2 to u3" in capsys.readouterr().err
    assert not joined.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "--workers and --engine need --shards N"),
        (["--shards", "2"], "--shards needs a --manifest and an --output-dir"),
        ([*SHARDED, "a.wav"], "takes no files"),
        ([*SHARDED, "--format", "srt"], "--format must be one of txt, jsonl, ctm, rttm, csv"),
        (["--shards", "2", "--output-dir", ".", "--format", "jsonl"], "all.jsonl is read"),
    ],
)
def test_options_that_do_not_fit(
    options: list[str], message: str, command: list[str], capsys: Printed
) -> None:
    assert run("decode", *command, *options) == 2
    assert message in capsys.readouterr().err


def test_shares_are_of_similar_durations() -> None:
    jobs = [Labelled(str(n), "", None, 0.0, float(n)) for n in range(1, 41)]
    parts = shares(jobs, 4)
    assert [job for part in parts for job in part] == jobs
    seconds = [sum(job.duration or 0.0 for job in part) for part in parts]
    assert max(seconds) - min(seconds) < 60
    assert [len(part) for part in shares([job._replace(duration=None) for job in jobs], 4)] == [
        10
    ] * 4
    assert len(shares(jobs[:2], 100)) == 2


def test_a_large_corpus_is_divided_at_once() -> None:
    """30 000 recordings took 12 s, a million would have taken hours: each looked at all others."""
    jobs, start = [Labelled("", "", duration=1.0)] * 30_000, time.process_time()
    assert [len(part) for part in shares(jobs, 3)] == [10_000] * 3
    assert time.process_time() - start < 2


def test_two_commands_share_a_folder(command: list[str], capfd: Printed) -> None:
    """Both write the whole result."""
    run("decode", *command)
    plain = capfd.readouterr().out
    call = [sys.executable, "-m", "asrkit.decode", *command, *SHARDED]
    other = subprocess.Popen(call, env=os.environ | {"PYTHONPATH": str(PROJECT)})
    while not list(Path(".").glob("out/shards/*.lease.0")):
        time.sleep(0.01)
    assert run("decode", *command, *SHARDED) == 1
    assert other.wait(60) == 1
    assert Path("out/all.txt").read_text() == plain
    assert "stopped" not in capfd.readouterr().err


def kill_an_owner(killed: set[str]) -> None:
    """Kill a process in its first attempt at a shard, and remember its number."""
    for lease in Path("out/shards").glob("*.lease.0"):
        with suppress(FileNotFoundError, ProcessLookupError):  # just finished
            _, _, process = lease.read_text().rpartition(" ")
            if process and process not in killed:
                os.kill(int(process), signal.SIGKILL)
                killed.add(process)
                return


@pytest.fixture
def many(command: list[str], capfd: Printed) -> str:
    """What decode writes of a manifest of 240 lines."""
    lines = Path("all.jsonl").read_text().splitlines()
    repeated = [json.loads(line) | {"id": f"v{n}"} for n in range(40) for line in lines]
    write_manifest(Path("all.jsonl"), *repeated)
    run("decode", *command)
    return capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "kills"), [("processes", 6), ("ray", 1)])
def test_workers_are_killed(engine: str, kills: int, command: list[str], many: str) -> None:
    """Nothing is lost or doubled: others are started, and take over."""
    if engine == "ray":
        pytest.importorskip("ray", reason=pip_install("ray"))
    call = [sys.executable, "-m", "asrkit.decode", *command, "--output-dir", "out", "--shards",
            "40", "--workers", "2", "--lease-seconds", "0.5", "--engine", engine]  # fmt: skip
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen(call, env=os.environ | {"PYTHONPATH": path})
    killed: set[str] = set()
    while parent.poll() is None and len(killed) < kills:
        kill_an_owner(killed)
        time.sleep(0.05)  # a shard takes less than a second
    parent.wait(200)
    assert len(killed) == kills
    assert parent.returncode == 1
    assert Path("out/all.txt").read_text() == many


def wait_for_workers() -> None:
    with workers.processes(argparse.Namespace(workers=2, argv=[]), 1) as look:
        while True:
            look()


@pytest.mark.parametrize(
    ("end", "starts"), [("raise SystemExit(3)", 2), ("os.kill(os.getpid(), 9)", 5)]
)
def test_workers_that_all_end_are_an_error(
    end: str, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a signal kills are started again, ATTEMPTS times for each shard."""
    program = f"import os; open({str(tmp_path / 'starts')!r}, 'a').write('x'); {end}"
    monkeypatch.setattr(workers, "command", lambda argv: [sys.executable, "-S", "-c", program])
    with pytest.raises(UserError, match="all workers ended before the work was done"):
        wait_for_workers()
    assert len((tmp_path / "starts").read_text()) == starts


def test_workers_that_end_at_once_are_started_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a worker may end before it is looked at."""
    started = list[Any]()

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(SimpleNamespace(poll=lambda: -9, wait=lambda s: -9, terminate=lambda: None))
        return started[-1]

    monkeypatch.setattr(workers.subprocess, "Popen", start)
    with pytest.raises(UserError, match="all workers ended before the work was done"):
        wait_for_workers()
    assert len(started) == 2 + workers.ATTEMPTS


def test_a_result_that_vanishes_before_it_is_joined(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    def join(corpus: ShardedCorpus, path: Path, join: Any = ShardedCorpus.join) -> Any:
        files()[1].unlink()
        return join(corpus, path)

    monkeypatch.setattr(ShardedCorpus, "join", join)
    assert run("decode", *command, *SHARDED) == 2
    assert "was removed or changed: run this again" in capsys.readouterr().err
    assert not Path("out/all.txt").exists()

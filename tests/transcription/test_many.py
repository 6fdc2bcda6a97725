"""Decoding in pieces, by processes and after a stop: nothing is lost, doubled, decoded again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import soundfile

import asrkit
from asrkit.data.inputs import file_of
from asrkit.data.recording import Recording
from asrkit.errors import UserError
from asrkit.runtime import Result
from asrkit.transcription import batches
from asrkit.transcription.batches import Decoded, outcomes, together
from asrkit.transcription.journal import NAME, Journal
from asrkit.transcription.output import Heard, Output
from tests.conftest import PROJECT, read_rows, speech, write_manifest, write_wav
from tests.running import LETTERS, run, talkative_model, wait_until

Printed = pytest.CaptureFixture[str]
OUT = ["--output-dir", "out"]
ALL = [f"u{n}" for n in range(6)]
BAD = "u4"
RECORDINGS = 120


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Six recordings, of which one is no audio."""
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        soundfile.write(f"{number}.wav", speech(1.0 + number / 5, seed=number), 16000)
    Path("4.wav").write_bytes(b"no audio")
    lines = [{"id": name, "audio": f"{name[1]}.wav", "text": "abc"} for name in ALL]
    write_manifest(Path("all.jsonl"), *lines)
    return ["--model", str(talkative_model(Path("m.safetensors"))), "--manifest", "all.jsonl"]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A function that returns the ids of the recordings that were decoded since its last call."""
    ids: list[str] = []

    def outcomes(recognizer: Any, jobs: Any, *more: Any, real: Any = batches.outcomes) -> Any:
        ids.extend(job.id for job in jobs)
        return real(recognizer, jobs, *more)

    def since() -> list[str]:
        found, ids[:] = [*ids], []
        return found

    monkeypatch.setattr(batches, "outcomes", outcomes)
    return since


def written() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(Path("out").glob("[!.]*"))}


def keys() -> list[str]:
    """Return the keys of the recordings in the journal."""
    path = Path("out", NAME)
    found = path.read_bytes().splitlines() if path.is_file() else []
    return [json.loads(line)[1] for line in found if line.endswith(b"]]]")]


def test_what_is_done_is_not_done_again(
    command: list[str], read: Callable[[], list[str]], capsys: Printed
) -> None:
    """Unless it is missing, or its audio, model or options change; a bad file is tried again."""
    assert run("decode", *command, *OUT) == 1
    first, texts, said = read(), written(), capsys.readouterr().err
    assert (first, len(texts)) == (ALL, 5)
    assert run("decode", *command, *OUT) == 1
    again = capsys.readouterr().err
    assert "5 of 6 recordings are in out and are not decoded again" in again
    assert set(said.splitlines()) < set(again.splitlines())  # the bad one, and the error rates
    assert (read(), written()) == ([BAD], texts)
    Path("out/u1.txt").unlink()
    soundfile.write("2.wav", speech(2.5, seed=9), 16000)
    run("decode", *command, *OUT)
    assert read() == ["u1", "u2", BAD]
    assert {**texts, "u2.txt": ""} == {**written(), "u2.txt": ""}
    assert texts != written()
    beam = ["--search", "prefix_beam"]
    for options in (beam, ["--format", "jsonl"]):
        for expected in (ALL, [BAD]):
            run("decode", *command, *OUT, *options)
            assert read() == expected
    talkative_model(Path("m.safetensors"), labels=LETTERS[::-1])  # the same name
    run("decode", *command, *OUT)
    assert read() == ALL


def test_a_function_without_identity(
    command: list[str], read: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:  # fmt: skip
    """It may have changed: everything is decoded again, and a line says so."""
    monkeypatch.syspath_prepend(".")
    Path("plain.py").write_text("fix = lambda text: text\n")
    for _ in range(2):
        run("decode", *command, *OUT, "--postprocess", "plain:fix")
        assert read() == ALL
        assert "everything is decoded again: streams of a recognizer" in capsys.readouterr().err


def test_audio_that_changes_during_its_decode_is_decoded_again(
    command: list[str], read: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transcript is that of the old audio."""
    monkeypatch.syspath_prepend(".")
    Path("copying.py").write_text(
        "import os\n\ndef fix(text):\n    if os.path.exists('new.wav'):\n"
        "        os.replace('new.wav', '1.wav')\n    return text\n"
    )
    soundfile.write("new.wav", speech(2.5, seed=9), 16000)
    found = []
    for expected in (ALL, ["u1", BAD], [BAD]):
        run("decode", *command, *OUT, "--postprocess", "copying:fix")
        assert read() == expected
        found.append(written())
    assert found[0] != found[1] == found[2]


def test_a_cut_journal_has_its_whole_lines(tmp_path: Path) -> None:
    """And no others, wherever the killed process stopped; another run appends to it."""
    jobs = [Recording(id=name, audio=f"{name}.wav") for name in ("a", "b")]
    output, heard = Output("txt", str(tmp_path), jobs), [Heard("x \n", 0.5)]

    def append(job: Recording) -> None:
        output.path(job).write_text(job.id)
        journal = Journal(output, {})  # each a run of its own
        assert not journal.find([job])
        journal.add([job], heard)

    for job in jobs:
        append(job)
    path = tmp_path / NAME
    data = path.read_bytes()
    ends = [data.index(b"\n", 1), len(data)]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        journal = Journal(output, {})
        assert sum(journal.find([job]) == heard for job in jobs) == sum(size >= e for e in ends)
    path.write_bytes(data[:-1])
    append(jobs[1])
    assert all(Journal(output, {}).find([job]) == heard for job in jobs)
    assert not Journal(output, {"beam": 4}).find([jobs[0]])


@pytest.mark.parametrize(
    ("in_order", "expected"), [(True, [(0, [0]), (1, [1, 2]), (2, [3])]),
                               (False, [(2, [3]), (0, [0]), (1, [1, 2])])],
)  # fmt: skip
def test_groups_are_yielded_whole(in_order: bool, expected: list[tuple[int, list[int]]]) -> None:
    found = [Decoded(number, UserError("")) for number in (3, 2, 0, 1)]
    groups = together(found, [1, 2, 1], in_order)
    assert [(at, [each.number for each in group]) for at, group in groups] == expected


@pytest.fixture
def many(command: list[str]) -> list[str]:
    """A command that takes 5 s for its recordings ."""
    listed = read_rows(Path("all.jsonl"))
    repeated = [listed[n % 6] | {"id": f"v{n}"} for n in range(RECORDINGS)]
    write_manifest(Path("all.jsonl"), *repeated)
    Path("slow.py").write_text(
        "import time\n\ndef fix(text):\n    time.sleep(0.05)\n    return text\n"
    )
    return [*command, "--format", "jsonl", "--postprocess", "slow:fix"]


@pytest.fixture
def expected(many: list[str], capfd: Printed) -> str:
    """The output of one process."""
    assert run("decode", *many) == 1
    return capfd.readouterr().out


@contextmanager
def started(many: list[str], *options: str) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    call = [sys.executable, "-m", "asrkit.decode", *many, *OUT, "--workers", "2", *options]
    process = subprocess.Popen(
        call, env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def workers(session: int) -> list[int]:
    """Return the processes that decode."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_one = b"--multiprocessing-fork" in (folder / "cmdline").read_bytes()
            if is_one and os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def assert_complete(expected: str) -> None:
    """Check that the transcripts are those of one process, and the journal has each once."""
    header = expected.splitlines(keepends=True)[0]
    rows = [text.removeprefix(header) for text in written().values()]
    assert sorted("".join(rows).splitlines()) == sorted(expected.removeprefix(header).splitlines())
    assert len(rows) == len(keys()) == len({*keys()}) == RECORDINGS * 5 // 6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
def test_a_worker_is_killed(many: list[str], expected: str) -> None:
    """Nothing is lost or doubled: the same command decodes what is left."""
    with started(many) as parent:
        wait_until(keys, 300)
        os.kill(workers(parent.pid)[0], signal.SIGKILL)
        _, told = parent.communicate(timeout=300)
    assert parent.returncode == 2
    assert told.splitlines()[-1].startswith("asrkit decode: a worker was killed near 'v")
    assert "the same command decodes what is left" in told
    assert 0 < len(keys()) < RECORDINGS * 5 // 6
    with started(many) as parent:
        _, told = parent.communicate(timeout=300)
    assert parent.returncode == 1, told
    assert f"v{RECORDINGS - 2}: " in told  # a bad one
    assert_complete(expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds workers in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_is_killed(
    number: int, many: list[str], expected: str, read: Callable[[], list[str]]
) -> None:
    """Its workers end, and the same command decodes what is left."""
    with started(many) as parent:
        wait_until(lambda: len(keys()) >= 20, 300)
        assert workers(parent.pid)
        parent.send_signal(number)
        parent.wait(60)
    assert parent.returncode == (130 if number == signal.SIGINT else -number)
    wait_until(lambda: not workers(parent.pid))
    done = len(keys())
    assert 20 <= done < RECORDINGS * 5 // 6  # control
    assert run("decode", *many, *OUT) == 1
    assert len(read()) == RECORDINGS - done
    assert_complete(expected)


def test_a_long_recording_is_decoded_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_wav(tmp_path / "a.wav", speech(3.5))
    recognizer = asrkit.load(talkative_model(tmp_path / "m.safetensors"))
    (whole,) = outcomes(recognizer, [file_of(str(path))], 60.0)
    monkeypatch.setattr("asrkit.data.recording.PIECE_SECONDS", 1.0)
    monkeypatch.setattr(batches, "at_16_khz", None)  # which would read the whole recording
    (pieces,) = outcomes(recognizer, [file_of(str(path))], 60.0)
    assert isinstance(pieces.result, Result)
    assert isinstance(whole.result, Result)
    assert pieces.result.text == whole.result.text != ""
    assert pieces.seconds == whole.seconds == pytest.approx(3.5)

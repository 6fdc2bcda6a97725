"""Every option of every command: its help, and the error for a wrong value; Ctrl-C twice."""

import argparse
import errno
import io
import sys
from pathlib import Path

import pytest

from asrkit.__main__ import COMMANDS
from asrkit.cli.parser import (
    LONGEST_LINE,
    Parser,
    Target,
)
from tests.conftest import speech, write_manifest, write_wav
from tests.running import python, run, talkative_model

ODD = ["x", "", "nan", "-1e99", "1e99", "9" * 5000, "\x1b]0;title\x07", "\ud800", "x" * 10**6]


def parser_of(command: str, monkeypatch: pytest.MonkeyPatch) -> Parser:
    """The parser that a command makes."""
    made: list[Parser] = []

    def note(self: Parser, argv: object) -> argparse.Namespace:
        made.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "parse_intermixed_args", note)
        assert run(*command.split()) == 130
    return made[0]


def one_line(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command has printed on standard error: a line that a terminal can show."""
    shown = capsys.readouterr().err
    assert shown.startswith(f"asrkit {command}: ")
    assert shown.endswith("\n")
    assert shown[:-1].isprintable()
    assert len(shown) < 500
    return shown


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_explained_and_bounded(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = parser_of(command, monkeypatch)
    capsys.readouterr()
    assert all(len(line) <= 100 for line in parser.format_help().splitlines())
    assert not parser.allow_abbrev
    for option in parser._actions:
        assert option.help or option.choices or option.metavar
        assert option.type not in (int, float)  # of any size
        if option.type in (None, Path, Target) or not option.option_strings:
            continue
        is_name = option.dest == "backends"  # which means something later
        for value in ODD:
            if value == "x" and is_name:
                break
            name = option.option_strings[0]
            assert run(*command.split(), f"{name}={value}") == 2
            assert name in one_line(command, capsys)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--no-such-option", "\x1b]0;title\x07" * 10**5])
def test_unknown_arguments(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command.split(), option) == 2
    shown = capsys.readouterr().err
    assert shown.rstrip("\n").replace("\n", "").isprintable()
    assert len(shown) < 2 * LONGEST_LINE


@pytest.mark.parametrize("command", ["decode", "evaluate", "export", "verify"])
def test_contexts(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = talkative_model(tmp_path / "m.safetensors")
    manifest = write_manifest(tmp_path / "m.jsonl", {"id": "x", "audio": "x.wav", "text": "a"})
    others = {"decode": ["--manifest", manifest], "export": ["--output", tmp_path / "x.ts"]}
    rest = others.get(command, [manifest])
    for option in ("--chunk-ms", "--left-ms")[: 1 + (command != "verify")]:
        for value in ["-40", "100", "9" * 5000, "\x1b"]:
            assert run(command, "--model", model, *rest, f"{option}={value}") == 2
            assert f"{option} must be " in one_line(command, capsys)


def test_a_file_that_is_read_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An n-gram took the place of its texts, an export that of the model."""
    monkeypatch.chdir(tmp_path)
    model = talkative_model(Path("m.safetensors"))
    texts = Path("texts")
    texts.write_text("ab\n")
    for read, command in [
        (texts, ["ngram", texts, "--output"]),
        (model, ["pack", "--model", model, "--output"]),
        (model, ["export", "--model", model, "--output"]),
    ]:
        before = read.read_bytes()
        assert run(str(command[0]), *command[1:], f"./{read}") == 2
        assert f"{read} is read" in one_line(str(command[0]), capsys)
        assert read.read_bytes() == before


def test_streams_that_are_closed_or_write_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wav = write_wav(tmp_path / "ö.wav", speech(2.0))
    arguments = ["--model", talkative_model(tmp_path / "m.safetensors"), "--format", "jsonl", wav]
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", None)
    assert run("decode", *arguments) == 0
    shown.seek(0)
    assert '\\xf6.wav", "text": ' in shown.read()
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    assert run("stream", *arguments[:2], "-") == 2  # standard input is empty


@pytest.mark.parametrize("name", ["a/b", b"a/b", None])
def test_an_error_of_the_disk_is_one_line(
    name: str | bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard gives the name of its file as bytes."""

    def work(options: argparse.Namespace) -> int:
        raise FileNotFoundError(errno.ENOENT, "no such file", name)

    assert Parser("asrkit x", "Do.", "asrkit x").run(work, []) == 2
    place = "a/b: " if name else ""
    assert capsys.readouterr().err == f"asrkit x: {place}no such file\n"


PROGRAM = """
import os, signal, sys, threading, time
from asrkit.cli.parser import Parser

def command(options):
    def later():  # while the process waits for this thread to end
        time.sleep(0.3)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        time.sleep(20)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=later).start()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)

raise SystemExit(Parser("asrkit x", "X: y", "z").run(command, []))
"""


def test_a_second_interrupt_ends_a_command_without_a_traceback() -> None:
    done = python(PROGRAM)
    assert done.returncode == 130
    assert done.stderr == "asrkit x: stopped\n"

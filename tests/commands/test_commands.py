"""The commands as a user meets them: help, output, exit status, and one line for a mistake."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import asrkit
from asrkit.__main__ import COMMANDS, main
from tests.conftest import PROJECT, speech, write_manifest, write_wav
from tests.running import run
from tests.test_model_file import edit

POLICY = "OMP_WAIT_POLICY"
Shown = Callable[..., str]
Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as stop:
        run(*command.split(), "--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"usage: asrkit {command}" in shown


def test_asrkit_alone(capsys: Output) -> None:
    for argv in ([], ["-h"], ["--help"], ["data"], ["data", "--help"]):
        assert main(argv) == 0
        shown = capsys.readouterr().out
        assert all(f"  {command}" in shown for command in COMMANDS)
        assert max(map(len, shown.splitlines())) <= 80
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"asrkit {asrkit.__version__}\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bake", "the command must be one of stream, decode, serve, "),
        ("decod", "got 'decod'; did you mean 'decode'?"),
        ("data chek x", "got 'data chek'; did you mean 'data check'?"),
        ("\x1b]0;title", r"got '\x1b]0;title'"),
        ("x" * 10**6, "xxx…xxx"),
    ],
)
def test_an_unknown_command(command: str, message: str, capsys: Output) -> None:
    assert main(command.split(" ")) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) == 1
    assert len(shown) < 400


@pytest.mark.parametrize(
    ("arguments", "before", "policy"),
    [
        (["-m", "asrkit", "pack", "--model", "m.safetensors", "--output", "x"], {}, "PASSIVE"),
        (["-m", "asrkit", "train", "--config", "yesno"], {POLICY: "ACTIVE"}, "ACTIVE"),
        (["-c", "import asrkit.model"], {}, "None"),  # control: a library sets no variable
    ],
)
def test_a_command_sets_the_wait_policy_before_torch_is_imported(
    arguments: list[str], before: dict[str, str], policy: str, tmp_path: Path
) -> None:
    """OpenMP reads the variable when torch is imported. Here torch prints it instead, and ends."""
    program = f"import os, sys; print(os.environ.get({POLICY!r})); sys.exit(7)"
    (tmp_path / "torch.py").write_text(program)
    others = {name: value for name, value in os.environ.items() if name != POLICY}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        env=others | before | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (f"{policy}\n", 7)


def test_without_a_model_the_ready_one_is_named(capsys: Output) -> None:
    assert main(["decode", "x.wav"]) == 2
    assert "such as --model small-en-alnum, which is in the package" in capsys.readouterr().err


def test_decode(model: Path, wav: Path, shown: Shown) -> None:
    """Files may stand on both sides of options."""
    text = shown("decode", "--model", model, wav).strip()
    assert text
    lines = shown("decode", wav, "--model", model, "--format", "jsonl", wav).splitlines()
    assert [json.loads(line)["text"] for line in lines] == [text, text]
    assert json.loads(lines[0])["words"][0].keys() == {"text", "start", "end", "confidence"}


def test_decode_a_manifest(model: Path, tmp_path: Path, capsys: Output) -> None:
    """In the manifest's order whatever the batches; with the WER; parts of files; long files."""
    utterances = []
    for i, seconds in enumerate([0.5, 3.0, 1.0, 61.0, 0.0, 2.0]):
        write_wav(tmp_path / f"{i}.flac", speech(max(seconds, 0.02), seed=i))
        utterances.append({"id": f"u{i}", "audio": f"{i}.flac", "text": "a b"})
    utterances.append({"id": "part", "audio": "3.flac", "text": "a", "start": 2.0, "duration": 1.0})
    manifest = write_manifest(tmp_path / "m.jsonl", *utterances)
    assert run("decode", "--model", model, "--manifest", manifest, "--batch-seconds", 4) == 0
    shown = capsys.readouterr()
    texts = dict(line.split("\t") for line in shown.out.splitlines())
    assert [*texts] == [u["id"] for u in utterances]
    assert all(part in shown.err for part in ("WER", "CER", "of 13:"))
    assert "without" not in shown.err
    assert run("decode", "--model", model, tmp_path / "1.flac") == 0
    assert capsys.readouterr().out.strip() == texts["u1"]
    some = write_manifest(tmp_path / "some.jsonl", *utterances[:2], {"id": "x", "audio": "1.flac"})
    assert run("decode", "--model", model, "--manifest", some) == 0
    assert "of 4: " in (told := capsys.readouterr().err)
    assert told.count(" without 1 lacking a text\n") == 2


@pytest.mark.parametrize("command", ["decode", "stream", "verify", "info", "export", "pack"])
def test_bad_models(command: str, model: Path, wav: Path, refused: Shown) -> None:
    named = [model] if command == "info" else ["--model", model]
    rest = {"info": [], "export": ["--output", "x"], "pack": ["--output", "x"]}.get(command, [wav])
    edit(model, format_version=7)
    version = refused(command, *named, *rest)
    assert "of a later asrkit: 'format_version'" in version
    model.write_bytes(model.read_bytes()[:1000])
    assert "is damaged or not a .safetensors file" in refused(command, *named, *rest)
    model.unlink()
    missing = refused(command, *named, *rest)
    assert missing.startswith(f"asrkit {command}: no model file {model}: give a file of asrkit")


FULL = ["--chunk-ms", "full"]


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("decode", [], "nothing to decode: name audio files, or a --manifest"),
        ("decode", ["--search", "bean", "x.wav"], "'search.kind': must be one of greedy, prefix_"),
        ("decode", ["--search", "{kind: x", "x.wav"], "--search must be a kind or YAML, got"),
        ("decode", ["--beam", "4", "x.wav"], "--beam has no effect with --search greedy"),
        ("decode", ["--max-segment-ms", "9", "x.wav"], "no effect without --endpoint-ms: leave"),
        ("decode", ["--endpoint-ms", "soon", "x.wav"], "--endpoint-ms: must be off or a whole"),
        ("decode", ["--word-bonus=-1e3", "x.wav"], "from -20.0 to 20.0, got '-1e3'"),
        ("decode", ["--chunk", "40", "x.wav"], "unrecognized arguments: --chunk"),
        ("decode", ["--chunck-ms=40", "x.wav"], "did you mean --chunk-ms?"),
        ("listen", ["http://x", "x.wav"], "arguments: --model; --help"),  # which is not near
        ("decode", ["--postprocess", "shout", "x.wav"], "no postprocess 'shout'"),
        ("decode", ["--manifest", "none.jsonl"], "none.jsonl does not exist"),
        ("stream", [], "needs one source: FILE, --mic, or -"),
        ("stream", ["-", "x.wav"], "needs one source: FILE, --mic, or -"),
        ("stream", ["x.wav", "--mic"], "needs one source: FILE, --mic, or -"),
        ("stream", ["x.wav", "--mic-device", "1"], "--mic-device has no effect without --mic"),
        ("stream", ["--mic", "--simulate-realtime"], "-realtime has no effect with --mic"),
        ("decode", ["--format", "doc", "x.wav"], "--format must be one of txt, jsonl"),
        ("decode", ["--output-dir", "text.wav/x", "x.wav"], "a folder, but text.wav is a file"),
        ("decode", ["--end-of-turn", "now", "x.wav"], "end_of_turn must be low, medium, high"),
        ("export", ["--what", "all", "--output", "x.ts"], "--what must be ctc or encoder or model"),
        # Options without effect beside another one.
        ("decode", [*FULL, "--left-ms", "640", "x.wav"], "--left-ms has no effect with"),
        ("decode", [*FULL, "--right-ms", "160", "x.wav"], "--right-ms has no effect with"),
        ("decode", [*FULL, "--second-pass", "full", "x.wav"], "--second-pass has no effect with"),
        ("decode", ["--second-search", "greedy", "x.wav"], "has no effect without a second pass"),
        ("evaluate", ["--second-search", "greedy", "x.jsonl"], "effect without a second pass"),
        ("stream", [*FULL, "--second-search", "greedy", "x.wav"], "effect without a second pass"),
        ("stream", [*FULL, "--second-pass", "640", "x.wav"], "larger context than the first pass"),
        ("stream", [*FULL, "--second-pass", "30", "x.wav"], "--second-pass must be a multiple of"),
        ("stream", ["text.wav"], "text.wav is not audio that soundfile or FFmpeg"),
        ("export", ["--manifest", "x.jsonl", "--output", "x.ts"], "no effect with --format onnx"),
    ],
)  # fmt: skip
def test_bad_options(
    command: str, options: list[str], message: str, model: Path, wav: Path,
    refused: Shown, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(wav.parent)
    Path("text.wav").write_text("these are not samples\n" * 20)
    write_manifest(Path("x.jsonl"), {"id": "x", "audio": "x.wav", "text": "a"})
    assert message in refused(command, "--model", model, *options)


def test_control_full_context_is_that_of_the_others_in_a_list(
    model: Path, wav: Path, shown: Shown
) -> None:
    """The left context is for the chunks; stream's second pass is its default."""
    manifest = write_manifest(wav.with_name("x.jsonl"), {"id": "x", "audio": "x.wav", "text": "a"})
    chunks = ["--chunk-ms", "full,320", "--left-ms", "640", "--second-pass", "full"]
    told = shown("evaluate", "--model", model, *chunks, "--second-search", "prefix_beam", manifest)
    assert [line.split()[0] for line in told.splitlines()[1:3]] == ["full", "320"]
    assert shown("stream", "--model", model, *FULL, wav)


def test_pack(model: Path, wav: Path, shown: Shown, refused: Shown) -> None:
    """Half the bytes, still everything in one file, and streaming still equals offline."""
    small = model.with_name("small.safetensors")
    told = shown("pack", "--model", model, "--output", small)
    assert "weights in float16" in told
    assert f"without torch: asrkit export --model {small} --format onnx\n" in told
    assert small.stat().st_size < 0.55 * model.stat().st_size
    out = shown("verify", "--model", small, "--chunk-ms", 320, wav)
    assert "streaming equals offline" in out
    shown("pack", "--model", small, "--output", model)  # nothing more is lost
    assert model.read_bytes() == small.read_bytes()
    said = refused("pack", "--model", wav, "--output", small)
    assert "is damaged or not a .safetensors file" in said


def test_info(model: Path, shown: Shown) -> None:
    out = shown("info", model)
    for part in ("format version 1", "chunks of full, 160 ms", "dev_wer", "num_layers: 3"):
        assert part in out

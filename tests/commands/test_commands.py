"""The commands as a user meets them: help, output, exit status, and one line for a mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

import asrkit
from asrkit.__main__ import COMMANDS, main
from tests.conftest import PROJECT, speech, write_manifest
from tests.running import ONE_PASS, PARSERS, run, talkative_model
from tests.test_model_file import edit

POLICY = "OMP_WAIT_POLICY"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return talkative_model(tmp_path / "m.safetensors")


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "x.wav", speech(2.0), 16000)
    return tmp_path / "x.wav"


@pytest.mark.parametrize("command", PARSERS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run(*command.split(), "--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"usage: asrkit {command}" in shown


def test_asrkit_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["-h"], ["--help"]):
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
        ("\x1b]0;title", r"got '\x1b]0;title'"),
        ("x" * 10**6, "xxx…xxx"),
    ],
)
def test_an_unknown_command(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert len(shown.splitlines()) == 1
    assert len(shown) < 400


@pytest.mark.parametrize(
    ("arguments", "before", "policy"),
    [
        (["-m", "asrkit", "decode", "--model", "m.safetensors", "x.wav"], {}, "PASSIVE"),
        (["-m", "asrkit", "data", "check", "train.jsonl"], {}, "PASSIVE"),
        (["-m", "asrkit.train", "--config", "yesno"], {}, "PASSIVE"),
        (["-m", "asrkit.train", "--config", "yesno"], {POLICY: "ACTIVE"}, "ACTIVE"),
        (["-c", "import asrkit.model"], {}, "None"),  # control: a library sets no variable
    ],
)
def test_a_command_sets_the_wait_policy_before_torch_is_imported(
    arguments: list[str], before: dict[str, str], policy: str, tmp_path: Path
) -> None:
    """OpenMP reads the variable when torch is imported. Here torch prints it instead, and ends."""
    (tmp_path / "torch.py").write_text(
        f"import os, sys; print(os.environ.get({POLICY!r})); sys.exit(7)"
    )
    others = {name: value for name, value in os.environ.items() if name != POLICY}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        env=others | before | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}"},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (f"{policy}\n", 7)


def test_stopped_while_torch_is_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "asrkit.cli.recognizer", Stopped("asrkit.cli.recognizer"))
    assert main(["decode", "--model", "m.safetensors", "x.wav"]) == 130
    assert capsys.readouterr().err == "asrkit decode: stopped\n"


def test_decode(model: Path, wav: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decode", "--model", model, wav) == 0
    text = capsys.readouterr().out.strip()
    assert text
    assert run("decode", "--model", model, "--format", "jsonl", wav, wav) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == [text, text]
    assert lines[0]["words"][0].keys() == {"text", "start", "end", "confidence"}
    for options in (["--chunk-ms", "full"], ["--chunk-ms", "320", "--left-ms", "640"]):
        assert run("decode", "--model", model, *options, wav) == 0


def test_files_on_both_sides_of_options(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("decode", wav, "--model", model, wav) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


@pytest.mark.parametrize("search", ["prefix_beam", "{kind: prefix_beam, skip_blank_prob: 1}"])
def test_another_search(
    search: str, model: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same in files and in streams, and wider beams find other texts."""
    texts = []
    for beam in (1, 20):
        options = ["--model", model, "--search", search, "--beam", beam]
        assert run("decode", *options, wav) == 0
        texts.append(capsys.readouterr().out)
        assert run("stream", *ONE_PASS, *options, wav) == 0
        assert capsys.readouterr().out == texts[-1]
    assert texts[0] != texts[1]


def test_decode_a_manifest(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the manifest's order whatever the batches; with the WER; parts of files; long files."""
    utterances = []
    for i, seconds in enumerate([0.5, 3.0, 1.0, 61.0, 0.0, 2.0]):
        soundfile.write(tmp_path / f"{i}.flac", speech(max(seconds, 0.02), seed=i), 16000)
        utterances.append({"id": f"u{i}", "audio": f"{i}.flac", "text": "a b"})
    utterances.append({"id": "part", "audio": "3.flac", "text": "a", "start": 2.0, "duration": 1.0})
    manifest = write_manifest(tmp_path / "m.jsonl", *utterances)
    assert run("decode", "--model", model, "--manifest", manifest, "--batch-seconds", 4) == 0
    shown = capsys.readouterr()
    ids = [line.split("\t")[0] for line in shown.out.splitlines()]
    assert ids == [u["id"] for u in utterances]
    assert "WER" in shown.err
    assert "CER" in shown.err
    assert "of 13:" in shown.err
    texts = dict(line.split("\t") for line in shown.out.splitlines())
    assert run("decode", "--model", model, tmp_path / "1.flac") == 0
    assert capsys.readouterr().out.strip() == texts["u1"]


def test_decode_leaves_out_what_no_file_can_hold(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = ({"id": text, "audio": wav.name, "text": text} for text in ("a", "\ud800"))
    manifest = write_manifest(wav.with_name("m.jsonl"), good, bad)
    assert run("decode", "--model", model, "--manifest", manifest, "--format", "jsonl") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["id"] == "a"
    assert r"m.jsonl:2: 'id': cannot be written as UTF-8, got '\ud800'" in shown.err
    write_manifest(manifest, good)  # control
    assert run("decode", "--model", model, "--manifest", manifest) == 0


def bad_inputs(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files and the errors for them."""
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.wav").write_text("these are not samples\n" * 20)
    samples = speech(1.0)
    samples[5000:5100] = np.nan
    soundfile.write(folder / "nan.wav", samples, 16000, subtype="FLOAT")
    return {
        "missing": (folder / "missing.wav", "does not exist"),
        "empty": (folder / "empty.wav", "is empty (0 bytes)"),
        "text": (folder / "text.wav", "is not audio that soundfile or FFmpeg reads"),
        "nan": (folder / "nan.wav", "samples must be finite, but sample"),
    }


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "nan"])
def test_bad_audio(
    kind: str, model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are decoded all the same; the exit status says that not all were."""
    path, message = bad_inputs(tmp_path)[kind]
    assert run("decode", "--model", model, path, wav) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert str(path) in shown.err
    assert shown.out.startswith(str(wav))
    assert run("stream", "--model", model, path) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_short_and_truncated_audio(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile.write(tmp_path / "short.wav", speech(0.05), 16000)
    soundfile.write(tmp_path / "x.mp3", speech(4.0), 16000)
    data = (tmp_path / "x.mp3").read_bytes()
    (tmp_path / "cut.mp3").write_bytes(data[: len(data) // 2])
    assert run("decode", "--model", model, tmp_path / "short.wav", tmp_path / "cut.mp3") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("command", ["decode", "stream", "verify", "info", "export", "pack"])
def test_bad_models(
    command: str, model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {
        "decode": ["--model", model, wav],
        "stream": ["--model", model, wav],
        "verify": ["--model", model, wav],
        "info": [model],
        "export": ["--model", model, "--output", tmp_path / "x.ts"],
        "pack": ["--model", model, "--output", tmp_path / "x.safetensors"],
    }[command]
    edit(model, format_version=7)
    assert run(command, *arguments) == 2
    assert "has format version 7; this asrkit reads version 1" in capsys.readouterr().err
    model.write_bytes(model.read_bytes()[:1000])
    assert run(command, *arguments) == 2
    assert "is damaged or not a .safetensors file" in capsys.readouterr().err
    model.unlink()
    assert run(command, *arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"asrkit {command}: no model file {model}: give a file of asrkit train")


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("decode", [], "nothing to decode: name audio files, or a --manifest"),
        ("decode", ["--chunk-ms", "100", "x.wav"], "--chunk-ms must be a multiple of 40 ms"),
        ("decode", ["--chunk-ms", "0", "x.wav"], "--chunk-ms must be a multiple of 40 ms from 40"),
        ("decode", ["--left-ms", "-40", "x.wav"], "--left-ms must be a multiple of 40 ms"),
        ("decode", ["--search", "bean", "x.wav"], "'search.kind': must be one of greedy, prefix_"),
        ("decode", ["--search", "{kind: x", "x.wav"], "--search must be a kind or YAML, got"),
        ("decode", ["--beam", "4", "x.wav"], "--beam needs --search prefix_beam, got greedy"),
        ("stream", ["--search", "bean", "x.wav"], "'search.kind': must be one of"),
        (
            "decode",
            ["--max-segment-ms", "9", "x.wav"],
            "options of segments need --endpoint-ms",
        ),
        (
            "decode",
            ["--endpoint-ms", "40", "--reset", "encoder", "--chunk-ms", "full", "x.wav"],
            "an endpointer with reset_encoder=True needs a chunk_size, got full context",
        ),
        ("decode", ["--search", "prefix_beam", "--beam", "0", "x.wav"], "--beam: must be a whole"),
        ("decode", ["--endpoint-ms", "soon", "x.wav"], "--endpoint-ms: must be off or a whole"),
        ("stream", ["--endpoint-ms", "0", "x.wav"], "from 1 to 3600000, got '0'"),
        ("decode", ["--lm", "a", "--lm-weight", "-1", "x.wav"], "--lm-weight: must be a number"),
        (
            "decode",
            ["--word-bonus", "-1e3", "x.wav"],
            "that begins with - after =, as in --name=-5",
        ),
        ("decode", ["--word-bonus=-1e3", "x.wav"], "from -20.0 to 20.0, got '-1e3'"),
        ("decode", ["--chunk", "40", "x.wav"], "unrecognized arguments: --chunk"),
        ("decode", ["--chunck-ms=40", "x.wav"], "did you mean --chunk-ms?"),
        ("decode", ["--postprocess", "shout", "x.wav"], "no postprocess 'shout'"),
        ("decode", ["--manifest", "none.jsonl"], "none.jsonl does not exist"),
        (
            "stream",
            ["x.wav", "--packet-ms", "0"],
            "--packet-ms: must be a whole number from 1",
        ),
        ("stream", ["-", "--sample-rate", "7"], "--sample-rate: must be a whole number"),
        ("stream", [], "needs one source: FILE, --mic, or -"),
        ("stream", ["-", "x.wav"], "needs one source: FILE, --mic, or -"),
        ("stream", ["x.wav", "--mic"], "needs one source: FILE, --mic, or -"),
        ("stream", ["x.wav", "--mic-device", "1"], "--mic-device needs --mic"),
        ("stream", ["--mic", "--simulate-realtime"], "--simulate-realtime needs a file"),
        (
            "export",
            ["--output", "x.ts", "--chunk-ms", "0"],
            "--chunk-ms must be a multiple of 40 ms from 40",
        ),
        ("verify", ["--chunk-ms", "0", "x.wav"], "--chunk-ms must be a multiple of 40 ms from 40"),
    ],
)
def test_bad_options(
    command: str, options: list[str], message: str, model: Path, wav: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(wav.parent)
    assert run(command, "--model", model, *options) == 2
    assert message in capsys.readouterr().err


def test_bad_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = PROJECT / "conf" / "conformer.yaml"
    assert run("train", "modle.dim=256", "--config", config, "model.num_heads=four") == 2
    shown = capsys.readouterr().err
    assert "unknown key 'modle.dim'; did you mean 'model.dim'?" in shown
    assert "'model.num_heads': input should be a valid integer" in shown


def test_export_and_verify(
    model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "encoder.ts"
    options = ["--output", path, "--audio", wav, "--chunk-ms", 320]
    assert run("export", "--model", model, *options, "--what", "model") == 2
    assert "use --what encoder, or --format onnx" in capsys.readouterr().err
    assert run("export", "--model", model, *options) == 0
    assert "largest difference from eager" in capsys.readouterr().out
    assert run("verify", "--model", model, "--exported", path, "--chunk-ms", 320, wav) == 0
    shown = capsys.readouterr().out
    assert "streaming equals offline" in shown
    assert "against eager" in shown
    assert run("verify", "--model", model, "--exported", wav, wav) == 2
    assert "is not a file that asrkit export wrote" in capsys.readouterr().err


def test_pack(model: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half the bytes, still everything in one file, and streaming still equals offline."""
    small = tmp_path / "small.safetensors"
    assert run("pack", "--model", model, "--output", small) == 0
    assert "weights in float16" in capsys.readouterr().out
    assert small.stat().st_size < 0.55 * model.stat().st_size
    assert run("verify", "--model", small, "--chunk-ms", 320, wav) == 0
    assert "streaming equals offline" in capsys.readouterr().out
    assert run("pack", "--model", small, "--output", model) == 0  # nothing more is lost
    assert model.read_bytes() == small.read_bytes()
    assert run("pack", "--model", wav, "--output", small) == 2
    assert "is damaged or not a .safetensors file" in capsys.readouterr().err


def test_verify_control_a_model_that_looks_ahead_fails(
    model: Path, wav: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is dropped between steps is noticed, named by station, and is exit status 1."""
    from asrkit.model import ConformerEncoder

    encoder_run = ConformerEncoder.run

    def forgetful(self, *given):  # type: ignore[no-untyped-def]
        output, layers = encoder_run(self, *given)
        state = output.state._replace(conv=output.state.conv * 0)
        return output._replace(state=state), layers

    monkeypatch.setattr(ConformerEncoder, "run", forgetful)
    assert run("verify", "--model", model, "--chunk-ms", 320, wav) == 1
    shown = capsys.readouterr().out
    assert "FAILED" in shown
    assert "layer" in shown


def test_info(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", model) == 0
    shown = capsys.readouterr().out
    for part in ("format version 1", "chunks of full, 160 ms", "dev_wer", "num_layers: 3"):
        assert part in shown

"""An option that has no effect beside another one is refused by its name."""

from pathlib import Path

import pytest

from tests.conftest import speech, write_wav
from tests.running import run, talkative_model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--chunk-ms", "full", "--left-ms", "640"],
            "--left-ms has no effect with --chunk-ms full",
        ),
        (
            ["--chunk-ms", "full", "--right-ms", "160"],
            "--right-ms has no effect with --chunk-ms full",
        ),
        (["--chunk-ms", "full", "--second-pass", "full"], "--second-pass full has no effect with"),
        (["--second-search", "greedy"], "--second-search has no effect without a second pass"),
    ],
)
def test_options_without_effect_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = talkative_model(tmp_path / "m.safetensors")
    path = write_wav(tmp_path / "x.wav", speech(0.5))
    assert run("decode", "--model", model, *options, path) == 2
    assert message in capsys.readouterr().err


def test_control_full_context_is_that_of_the_others_in_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The left context is for the chunks; stream's second pass is its default."""
    model = talkative_model(tmp_path / "m.safetensors")
    path = write_wav(tmp_path / "x.wav", speech(0.5))
    (tmp_path / "x.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "a"}')
    chunks = ["--chunk-ms", "full,320", "--left-ms", "640", "--second-pass", "full"]
    chunks += ["--second-search", "prefix_beam"]
    assert run("evaluate", "--model", model, *chunks, tmp_path / "x.jsonl") == 0
    assert run("stream", "--model", model, "--chunk-ms", "full", path) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["stream", "--partials", "--format", "jsonl", "x.wav"],
            "--partials has no effect with --format jsonl",
        ),
        (
            ["evaluate", "--second-search", "greedy", "x.jsonl"],
            "--second-search has no effect without a second pass",
        ),
        (
            ["stream", "--chunk-ms", "full", "--second-search", "greedy", "x.wav"],
            "--second-search has no effect without a second pass",
        ),
        (
            ["export", "--manifest", "x.jsonl", "--output", "x.ts"],
            "--manifest has no effect with --format torchscript",
        ),
    ],
)
def test_options_that_change_nothing_are_refused(
    command: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command
    model = talkative_model(Path("m.safetensors"))
    write_wav(Path("x.wav"), speech(0.5))
    Path("x.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "a"}')
    assert run(name, "--model", model, *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        ("check", ["--shard-size", "5"], "asrkit data check: unrecognized arguments: --shard-size"),
        ("check", ["--output", "d"], "unrecognized arguments: --output d"),
        *(
            ("shard", ["--output", "d", *option], f"unrecognized arguments: {option[0]}")
            for option in (
                ["--list"], ["--strict"], ["--no-audio"], ["--jobs", "2"], ["--write", "c"],
                ["--config", "c"], ["--model", "m"], ["--format", "json"],
            )
        ),
        ("shard", ["--output", "d", "y.jsonl"], "unrecognized arguments: y.jsonl"),
        ("check", ["--list", "--format", "json"], "--list has no effect with --format json"),
        ("chek", [], "normalize, segment, shard, got 'chek'; did you mean"),
    ],
)  # fmt: skip
def test_data_has_options_for_each_action(
    action: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cuts").mkdir()
    manifests = [] if "cuts" in options else ["x.jsonl"]
    Path("x.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "a"}')
    assert run("data", action, *manifests, *options) == 2
    assert message in capsys.readouterr().err
    assert not Path("d").exists()


def test_control_data_takes_the_options_of_an_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_wav(Path("x.wav"), speech(2.0))
    Path("x.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": "ab a"}')
    assert run("data", "check", "x.jsonl", "--jobs", "2", "--no-audio", "--list") == 0
    assert run("data", "shard", "x.jsonl", "--output", "d", "--shard-size", "5") == 0
    capsys.readouterr()
    assert run("data", "--help") == 0
    shown = capsys.readouterr().out
    assert all(f"  {action}  " in shown for action in ("import", "check", "shard"))
    assert max(map(len, shown.splitlines())) <= 80

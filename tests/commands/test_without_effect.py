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
        (["--lease-seconds", "5"], "--lease-seconds needs --shards N"),
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
    assert run("evaluate", "--model", model, *chunks, tmp_path / "x.jsonl") == 0
    assert run("stream", "--model", model, "--chunk-ms", "full", path) == 0
    capsys.readouterr()

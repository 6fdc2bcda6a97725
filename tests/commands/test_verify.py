"""`asrkit verify` finds streaming equal to offline for a model of every position encoding."""

from pathlib import Path

import pytest
import soundfile
import torch

from asrkit import audio, verify
from asrkit.config import parse_config
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile, save_model
from asrkit.text import CharTokenizer
from tests.conftest import fitted, speech, tiny_model
from tests.test_model_file import SIZES


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, path = speech(1.5), tmp_path / "m.safetensors"
    soundfile.write(tmp_path / "x.wav", samples, 16000)
    feats = audio.Fbank()(torch.from_numpy(samples)[None], torch.zeros(1, 0))[0]
    model = fitted(tiny_model(position=kind).float(), feats)
    config = parse_config({
        "data": {"train": "a", "dev": "b"}, "training": {"output_dir": "c"},
        "model": SIZES | {"position": {"kind": kind}},
    })  # fmt: skip
    save_model(path, ModelFile(model, CharTokenizer(list("abcdefghij ")), config, {}))
    asked = ["--model", str(path), "--chunk-ms", "160", "--left-ms", "0,1280"]
    assert verify.main([*asked, str(tmp_path / "x.wav")]) == 0
    shown = capsys.readouterr().out
    assert "streaming equals offline" in shown
    assert shown.count("equal") >= 8  # settings: two asked for, four of the menu, full context

"""An average of models is the mean of their weights, label by label."""

from pathlib import Path

import pytest
import torch

from asrkit.commands.average import main
from asrkit.model_file import load_model, save_model
from asrkit.text import CharTokenizer
from tests.test_model_file import a_file


def test_the_mean_label_by_label(tmp_path: Path) -> None:
    labels = {"a": list("abc "), "b": list("cax ")}
    files = {}
    for seed, (name, each) in enumerate(labels.items()):
        file = a_file(CharTokenizer(each))
        with torch.no_grad():
            for parameter in file.model.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(seed))
        # Dropout may differ: no weight depends on it.
        model = file.config.model.model_copy(update={"dropout": 0.1 * seed})
        file = file._replace(config=file.config.model_copy(update={"model": model}))
        save_model(tmp_path / f"{name}.safetensors", file)
        files[name] = file.model
    first, second = (str(tmp_path / f"{name}.safetensors") for name in "ab")
    output = tmp_path / "m.safetensors"
    assert main(["--output", str(output), f"{first}=0.75", f"{second}=0.25"]) == 0
    found = load_model(output)
    a, b = files["a"].head.bias, files["b"].head.bias
    rows = torch.stack([b[0], b[2], a[2], b[1], b[4]])  # blank, a, b (which b has not), c, space
    assert (found.model.head.bias - (0.75 * a + 0.25 * rows)).abs().max() < 1e-6
    key = "encoder.layers.0.ffn1.expand.weight"
    own, other = files["a"].state_dict()[key], files["b"].state_dict()[key]
    assert (found.model.state_dict()[key] - (0.75 * own + 0.25 * other)).abs().max() < 1e-6
    assert [each["share"] for each in found.training["average"]] == [0.75, 0.25]


def test_a_path_may_contain_an_equals_sign(tmp_path: Path) -> None:
    path, output = tmp_path / "seed=1.safetensors", tmp_path / "m.safetensors"
    save_model(path, a_file(CharTokenizer(list("abc "))))
    for models in ([str(path)] * 2, [f"{path}=0.25", f"{path}=0.75"]):
        assert main(["--output", str(output), *models]) == 0
        weights, expected = (load_model(each).model.state_dict() for each in (output, path))
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "a.safetensors", a_file(CharTokenizer(list("abc "))))
    model, output = str(tmp_path / "a.safetensors"), str(tmp_path / "m.safetensors")
    for parts, why in (
        ([f"{model}=0.5"], "sum to 1, got 0.5 for 1 of 1 models"),
        ([f"{model}=1", model], "sum to 1, got 1 for 1 of 2 models"),
        ([f"{model}=nan"], "sum to 1, got nan for 1 of 1 models"),
        ([f"{model}=x"], "a share must be a number, as in MODEL=0.5"),
        ([f"{model}=0.5", "small-en-alnum=0.5"], "does not fit"),
    ):
        assert main(["--output", output, *parts]) == 2
        assert why in capsys.readouterr().err
    assert not Path(output).exists()

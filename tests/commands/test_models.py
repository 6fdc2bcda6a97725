"""Ready models: a name stands for a file of the package, everywhere. Averages of models."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
import torch

import asrkit
from asrkit import pretrained
from asrkit.hub.catalogue import read_catalogue
from asrkit.model_contents import ModelFileError
from asrkit.model_file import load_model, save_model
from asrkit.model_path import model_path
from asrkit.terms import Terms
from asrkit.text import CharTokenizer
from tests.conftest import speech, timed
from tests.running import run
from tests.test_model_file import a_file

SHIPPED = sorted(pretrained.FOLDER.glob("*.safetensors"))


def save_tiny(path: Path) -> Path:
    save_model(path, a_file(CharTokenizer(list("abcdefghijklmnopqrstuvwxyz "))), torch.float16)
    return path


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ready model of the name tiny-en; the working folder is empty."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "models")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = save_tiny(tmp_path / "models" / "tiny-en.safetensors")
    path.with_suffix(".md").write_text("# tiny-en\n\nLicence: none, it knows nothing.\n")
    return path


def test_a_name_loads_the_file(tiny: Path) -> None:
    expected = asrkit.load(tiny).transcribe(speech(2.0))
    assert expected.text
    assert timed(asrkit.load("tiny-en").transcribe(speech(2.0))) == timed(expected)


def test_every_command_takes_a_name(
    tiny: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wav, dev = corpus / "audio" / "dev0.flac", corpus / "dev.jsonl"
    for command, *arguments in (
        ("decode", wav),
        ("stream", wav),
        ("evaluate", "--chunk-ms", "640", dev),
        ("verify", "--chunk-ms", "640", wav),
        ("export", "--format", "torchscript", "--output", "x.ts"),
        ("pack", "--output", "x.safetensors"),
    ):
        assert run(command, *arguments, "--model", "tiny-en") == 0, command
        assert run(command, *arguments, "--model", "tiny-de") == 2, command
        assert "a ready model (" in capsys.readouterr().err
    assert run("report", "--manifest", dev, "tiny-en") == 0
    page = Path("tiny-en.html").read_text(encoding="utf-8")
    assert "<title>tiny-en – asrkit report</title>" in page
    assert "asrkit train --config" not in page  # of a model alone no command is known
    assert run("report", "--manifest", dev, "tiny-de") == 2
    assert not Path("tiny-de.html").exists()


def test_a_file_or_a_folder_with_a_model_wins_over_a_name(tiny: Path) -> None:
    Path("tiny-en").mkdir()  # a folder without a model is not a model
    save_tiny(Path("tiny-en/other.safetensors"))
    assert model_path("tiny-en") == tiny
    wanted = save_tiny(Path("tiny-en/model.safetensors"))
    assert model_path("tiny-en") == load_model("tiny-en").path == wanted
    shutil.rmtree("tiny-en")
    save_tiny(Path("tiny-en"))
    assert model_path("tiny-en") == Path("tiny-en")


INSTEAD = (
    "give a file of asrkit train or asrkit import, a ready model (tiny-en), another name of asrkit "
    "models, or hf://owner/name of the hub"
)


@pytest.mark.parametrize(
    "name",
    ["tiny", "tiny-e*", "", "exp/tiny-en", "./tiny-en", "../models/tiny-en", "tiny-en.safetensors"],
)
def test_an_unknown_name_lists_the_known(tiny: Path, name: str) -> None:
    """A path is not a name."""
    with pytest.raises(ModelFileError) as error:
        load_model(name)
    instead = INSTEAD.replace("owner/name", name) if name[:3] == "exp" else INSTEAD
    assert str(error.value) == f"no model file {name and Path(name)}: {instead}"
    tiny.unlink()
    with pytest.raises(ModelFileError, match=r"a ready model \(none\), another"):
        load_model(name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is small, has a card with its words, loads by its name, and streaming equals offline."""
    assert path.stat().st_size <= 6e6
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"## {title}\n" in card for title in ("Data", "Licence", "Scores", "Limits"))
    tokenizer = load_model(path).tokenizer
    words = [tokenizer.piece(token).strip() for token in range(1, tokenizer.vocab_size)]
    assert card.split("```text\n")[1].partition("```")[0].split() == sorted(words)
    assert run("info", path.stem) == 0
    soundfile.write(tmp_path / "x.wav", speech(2.0), 16000)
    assert run("verify", "--model", path.stem, "--chunk-ms", "160,640", tmp_path / "x.wav") == 0
    assert "streaming equals offline" in capsys.readouterr().out


def test_the_catalogue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models") == 0
    shown = capsys.readouterr().out
    found = read_catalogue()
    rows = [line.split(" | ") for line in shown.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[1:]] == [f"| {each.name}" for each in found.models]
    assert rows[1][1:4] == ["en", "0.99 M", "CC-BY-SA-4.0"]
    assert all(each.why in shown for each in found.cannot_run)


LABELS = list("abc ")


def saved(path: Path, seed: int, licence: str | None = None, labels: list[str] = LABELS) -> Path:
    """Write a model with random weights and a dropout of its own, on which no weight depends."""
    file = a_file(CharTokenizer(labels))
    with torch.no_grad():
        for parameter in file.model.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(seed))
    model = file.config.model.model_copy(update={"dropout": 0.1 * seed})
    config = file.config.model_copy(update={"model": model})
    terms = Terms(licence, ("de",) if licence else ("fr",))
    save_model(path, file._replace(config=config, terms=terms))
    return path


def test_the_mean_by_share(tmp_path: Path) -> None:
    """A model that is named three times has three shares."""
    first, second = (saved(tmp_path / f"{i}.safetensors", i) for i in range(2))
    output = tmp_path / "m.safetensors"
    for models, share in (((first, first, second, first), 0.75), ((first, second), 0.5)):
        assert run("average", "--output", output, *models) == 0
        mean, a, b = (load_model(each).model.state_dict() for each in (output, first, second))
        for key, weights in mean.items():
            assert (weights - (share * a[key] + (1 - share) * b[key])).abs().max() < 1e-6
        shares = [each["share"] for each in load_model(output).training["average"]]
        assert shares == [share, 1 - share]


def test_terms_are_those_of_the_models(tmp_path: Path) -> None:
    """Of two licences the user names one: no rule joins any two of them."""
    licences = ("CC-BY-SA-4.0", None, "cc by-sa 4.0", "MIT")
    shared, silent, again, other = (
        saved(tmp_path / f"{i}.safetensors", i, each) for i, each in enumerate(licences)
    )
    output = tmp_path / "m.safetensors"
    assert run("average", "--output", output, shared, silent, again) == 0
    file = load_model(output)
    assert file.terms == Terms("CC-BY-SA-4.0", ("de", "fr"))
    assert [each.get("licence") for each in file.training["average"]] == [*licences[:3]]
    assert run("average", "--output", output, "--licence", "MIT", shared, other) == 0
    assert load_model(output).terms == Terms("MIT", ("de",))


def test_mistakes(tmp_path: Path, refused: Callable[..., str]) -> None:
    model, output = saved(tmp_path / "a.safetensors", 0), tmp_path / "m.safetensors"
    others = saved(tmp_path / "b.safetensors", 0, labels=list("abd "))
    for other, why in (
        ("small-en-alnum", "does not fit"),
        (others, f"{others} has other labels than {model}"),
        (saved(tmp_path / "c.safetensors", 1, "MIT"), "different licences"),
    ):
        licensed = saved(model, 0, "CC-BY-SA-4.0")
        assert why in refused("average", "--output", output, licensed, other)
    assert not output.exists()

"""An average of models is the mean of their weights, by share."""

from collections.abc import Callable
from pathlib import Path

import torch

from asrkit.model_file import load_model, save_model
from asrkit.terms import Terms
from asrkit.text import CharTokenizer
from tests.running import run
from tests.test_model_file import a_file

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

"""The licence and the languages of a model travel with its weights, and no file makes one up."""

import json
from pathlib import Path

import pytest

import asrkit
from asrkit import train
from asrkit.backends.export_metadata import Exported
from asrkit.build_network import build_model
from asrkit.commands.train import with_terms
from asrkit.config.schema import load_config
from asrkit.export import onnx
from asrkit.model import Context
from asrkit.model_contents import ModelFileError
from asrkit.model_file import load_model, read_header, save_model
from asrkit.terms import MOST_CHARACTERS, MOST_LANGUAGES, Terms
from asrkit.text import CharTokenizer
from tests.conftest import write_config
from tests.running import run
from tests.test_model_file import a_file, edit

SHARED = Terms("CC-BY-SA-4.0", ("de", "en"))
UNSTATED = "not stated in the file"


def saved(path: Path, terms: Terms, labels: str = "abcdefghijklmnopqrstuvwxyz ") -> Path:
    save_model(path, a_file(CharTokenizer(list(labels)))._replace(terms=terms))
    return path


@pytest.mark.parametrize("terms", [SHARED, Terms()])
def test_terms_are_saved_loaded_packed_and_shown(
    terms: Terms, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, small = saved(tmp_path / "m.safetensors", terms), tmp_path / "small.safetensors"
    assert run("pack", "--model", path, "--output", small) == 0
    assert load_model(path).terms == read_header(path).terms == read_header(small).terms == terms
    recognizer = asrkit.load(path)
    assert recognizer.languages == terms.languages
    assert recognizer.language == next(iter(terms.languages), None)
    assert run("info", path) == 0
    licence, languages = terms.licence or UNSTATED, ", ".join(terms.languages) or UNSTATED
    assert f"\nlicence     {licence}\nlanguages   {languages}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "header",
    [
        {"licence": 3}, {"licence": ""}, {"licence": "a\x1b]0;x"}, {"licence": "a\nb"},
        {"licence": "x" * (MOST_CHARACTERS + 1)}, {"licence": ["MIT"]},
        {"languages": "en"}, {"languages": [3]}, {"languages": ["English"]}, {"languages": None},
        {"languages": ["en"] * (MOST_LANGUAGES + 1)}, {"languages": {"en": 1}},
    ],
)  # fmt: skip
def test_terms_that_are_none_are_refused_in_one_line(
    header: dict[str, object], tmp_path: Path
) -> None:
    path = saved(tmp_path / "m.safetensors", Terms())
    edit(path, **header)
    for read in (load_model, read_header):
        told = "its header is damaged, .*'(licence|lang)"
        with pytest.raises(ModelFileError, match=told) as e:
            read(path)
        assert str(e.value).isprintable()
        assert len(str(e.value)) < 1000


def test_a_training_inherits_the_terms_of_the_model_it_starts_from(
    corpus: Path, tmp_path: Path
) -> None:
    """Also when it is resumed and the first model has gone."""
    start, out = tmp_path / "start.safetensors", tmp_path / "out"
    config = write_config(tmp_path / "c.yaml", corpus, out, epochs=1, average=1)
    network = load_config(config).model
    labels = CharTokenizer(list("abc "))
    first = a_file(labels)._replace(
        model=build_model(network, labels.vocab_size), config=load_config(config), terms=SHARED
    )
    save_model(start, first)
    command = ["--config", str(config), f"training.start_from={start}"]
    own = ["data.licence=CC-BY-4.0", "data.languages=[nl]"]  # it may state others
    data = with_terms(load_config(config, [*command[2:], *own]), None).data
    assert (data.licence, data.languages) == ("CC-BY-4.0", ["nl"])
    assert train.main(command) == 0
    model = out / "model.safetensors"
    assert read_header(model).terms == SHARED
    model.unlink()
    start.unlink()
    assert train.main([*command, "--resume"]) == 0
    assert read_header(model).terms == SHARED


def test_exports_state_the_terms() -> None:
    file = a_file()._replace(terms=SHARED)
    about = onnx.metadata(Exported("ctc", Context(4, 8)), file)
    assert (about["licence"], about["languages"]) == ("CC-BY-SA-4.0", "de en")
    described = json.loads(about["asrkit"])
    assert (described["licence"], described["languages"]) == ("CC-BY-SA-4.0", ["de", "en"])
    about = onnx.metadata(Exported("ctc", Context(4, 8)), file._replace(terms=Terms()))
    assert {"licence", "languages"}.isdisjoint(about.keys() | json.loads(about["asrkit"]))

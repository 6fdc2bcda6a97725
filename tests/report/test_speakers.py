"""The speakers that a model and those before it were trained on."""

from pathlib import Path

from asrkit.interop.imported import assemble
from asrkit.model_file import save_model
from asrkit.report.speakers import heard_speakers
from asrkit.text import CharTokenizer
from tests.conftest import write_manifest
from tests.test_model_file import a_file


def test_the_speakers_of_a_model_and_of_those_before_it(tmp_path: Path) -> None:
    def model(name: str, speaker: str, before: str | None) -> str:
        row = {"id": "a", "audio": "a.wav", "text": "a", "speaker": speaker}
        manifest = write_manifest(tmp_path / f"{name}.jsonl", row)
        file = a_file(CharTokenizer(["a"]))
        data = file.config.data.model_copy(update={"train": [str(manifest)]})
        training = file.config.training.model_copy(update={"start_from": before})
        config = file.config.model_copy(update={"data": data, "training": training})
        save_model(tmp_path / name, file._replace(config=config))
        return str(tmp_path / name)

    first = model("first", "anna", None)
    second = model("second", "ben", first)
    assert "on 1 of these 2 speakers ('anna')" in heard_speakers(second, {"anna", "carl"})
    assert heard_speakers(second, {"carl"}).endswith("on none of these 1 speakers")
    (tmp_path / "first.jsonl").unlink()
    assert heard_speakers(second, {"carl"}).endswith("/first.jsonl' names none here")
    (tmp_path / "first").unlink()
    assert heard_speakers(second, {"carl"}).endswith("/first' names none here")
    assert "on 1 of these 2 speakers ('ben')" in heard_speakers(second, {"ben", "carl"})
    assert "'hf://a/b' names none here" in heard_speakers("hf://a/b", {"carl"})


def test_the_speakers_of_an_imported_model(tmp_path: Path) -> None:
    path, plain = tmp_path / "m.safetensors", a_file(CharTokenizer(["a"]))
    settings = {"model": plain.config.model.model_dump()}
    save_model(path, assemble(settings, plain.tokenizer, plain.model.state_dict()))
    said = heard_speakers(str(path), {"carl"})
    assert said.endswith("are unknown: an imported checkpoint does not name them")

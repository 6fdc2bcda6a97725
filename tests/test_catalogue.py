"""The catalogue of models: its rows agree with each other, and with the files of the package."""

import re
from pathlib import Path

import pydantic
import pytest

from asrkit.atomic_write import sha256_of
from asrkit.hub import REPOSITORY
from asrkit.hub.catalogue import Catalogue, read_catalogue, require_usable
from asrkit.model_file import load_model
from asrkit.pretrained import ready_models
from tests.running import python

REST: dict = {"publishers": [], "cannot_run": []}
MODELS = {each.name: each for each in read_catalogue().models}


def test_names_are_unique_and_lead_to_models() -> None:
    found = read_catalogue()
    assert len(MODELS) == len(found.models)
    for each in found.cannot_run:
        assert each.nearest in MODELS
    for entry in found.models:
        assert re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", entry.name)
        assert entry.revision is None or re.fullmatch("[0-9a-f]{40}", entry.revision)
        assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
        assert all(re.fullmatch("[a-z]{2,3}", each) for each in entry.languages)
        assert all(re.fullmatch(r"full|\d+(\+\d+)?", each) for each in entry.contexts)
        assert entry.contexts
        require_usable(entry.repository or entry.name)
        assert (entry.repository is None) == (entry.name in ready_models())
        assert entry.repository is None or REPOSITORY.fullmatch(entry.repository)
        assert entry.file.endswith({"asrkit": ".safetensors", "nemo": ".nemo"}[entry.format])


def test_the_ready_models_are_as_the_catalogue_states() -> None:
    for name, path in ready_models().items():
        file, entry = load_model(path), MODELS[name]
        assert (entry.file, entry.size) == (path.name, path.stat().st_size)
        assert entry.sha256 == sha256_of(path)
        assert (entry.licence, tuple(entry.languages)) == file.terms
        assert entry.parameters == round(file.num_parameters / 1e6, 2)
        context, frame_ms = file.config.context, file.model.encoder.rate.frame_ms
        chunk, _, ahead = (frames * frame_ms for frames in context.live)
        assert entry.contexts[0] == (f"{chunk}+{ahead}" if ahead else str(chunk))
        expected = ["full"] * (context.full_share > 0) + [
            f"{chunk * frame_ms}+{right * frame_ms}" if right else str(chunk * frame_ms)
            for chunk in context.chunk_sizes for right in context.right_contexts
        ]  # fmt: skip
        assert sorted(entry.contexts) == sorted(expected)


@pytest.mark.parametrize(
    "change",
    [{"other": "x"}, {"size": "1"}, {"writes": ["speakers"]}, {"format": "whisper"}],
)
def test_a_wrong_row_is_refused(change: dict) -> None:
    row = read_catalogue().models[-1].model_dump()
    Catalogue.model_validate({"models": [row], **REST})  # the control
    with pytest.raises(pydantic.ValidationError):
        Catalogue.model_validate({"models": [row | change], **REST})


def test_without_torch(tmp_path: Path) -> None:
    """The names are printed."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from asrkit.__main__ import main\n"
        "sys.exit(main(['models']))"
    )
    done = python(program, cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"| {name} | " in done.stdout for name in MODELS)

"""The distribution's name: the requirement that pip is told to install."""

import json
import sys
from pathlib import Path

import pytest

from asrkit.extras import DISTRIBUTION, requirement

ORIGINS = {  # what pip wrote at the installation, and what it is told to install
    "index": (None, "'asrkit-streaming[mic,serve]'"),
    "wheel": ({"url": "file:///a.whl", "archive_info": {}}, "'asrkit-streaming[mic,serve]'"),
    "folder": ({"url": "file:///my/asrkit", "dir_info": {}}, "'/my/asrkit[mic,serve]'"),
    "editable": (
        {"url": "file:///my%20code", "dir_info": {"editable": True}},
        "--editable '/my code[mic,serve]'",
    ),
    "damaged": ("no JSON", "'asrkit-streaming[mic,serve]'"),
}


def install(folder: Path, name: str, version: str, origin: object = None) -> None:
    """Write the metadata that an installation of a distribution leaves in a folder."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    if origin is not None:
        text = origin if isinstance(origin, str) else json.dumps(origin)
        (metadata / "direct_url.json").write_text(text)


@pytest.mark.parametrize("kind", ORIGINS)
def test_requirement_names_the_folder_or_the_distribution(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, expected = ORIGINS[kind]
    install(tmp_path, DISTRIBUTION, "1.0", origin)
    (tmp_path / "clone").mkdir()
    install(tmp_path / "clone", DISTRIBUTION, "1.0")  # as a clone's egg-info: says nothing of it
    monkeypatch.setattr(sys, "path", [str(tmp_path / "clone"), str(tmp_path)])
    assert requirement("mic", "serve") == expected

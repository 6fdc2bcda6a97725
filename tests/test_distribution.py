"""The distribution's name: what pip is told to install, and another project's asrkit beside it."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from asrkit.extras import DISTRIBUTION, SUMMARY, requirement, warn_of_another
from asrkit.version import __version__
from tests.conftest import PROJECT

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


def test_another_projects_asrkit_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():  # a control
        warnings.simplefilter("error")
        warn_of_another()
    install(tmp_path, "asrkit", "0.5.5")
    monkeypatch.syspath_prepend(tmp_path)
    metadata = tmp_path / "asrkit-0.5.5.dist-info" / "METADATA"
    whole = metadata.read_text()
    metadata.write_text(f"{whole}Summary: {SUMMARY}: streaming equals offline\n")
    with warnings.catch_warnings():  # a clone that was installed by the former name
        warnings.simplefilter("error")
        warn_of_another()
    metadata.write_text(whole)
    assert f'description = "{SUMMARY}' in (PROJECT / "pyproject.toml").read_text()
    with pytest.warns(UserWarning, match=r"package, asrkit 0\.5\.5, is installed over asrkit-s"):
        warn_of_another()
    paths = os.pathsep.join([str(PROJECT), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "asrkit", "--version"], env=os.environ | {"PYTHONPATH": paths},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"asrkit {__version__}\n"
    assert "pip uninstall asrkit, then install asrkit-streaming again" in done.stderr

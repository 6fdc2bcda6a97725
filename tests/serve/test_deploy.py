"""deploy/Dockerfile: a change of the source fetches no packages anew."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")


def steps() -> list[str]:
    """The instructions, each with its continued lines."""
    lines = (PROJECT / "deploy/Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return text.replace("\\\n", "").splitlines()


def test_packages_are_installed_before_the_source_is_copied() -> None:
    every = steps()
    source, listed = every.index("COPY . /src"), every.index("COPY pyproject.toml /src/")
    installs = [i for i, step in enumerate(every) if "pip install" in step]
    torch, others, own = installs
    assert torch < listed < others < source < own
    assert "torch==" in every[torch]
    assert "--no-deps /src" in every[own]


def test_the_packages_are_those_of_pyproject(tmp_path: Path) -> None:
    (step,) = (each for each in steps() if "requirements.txt" in each)
    command = step.removeprefix("RUN ").partition(" > ")[0]
    command = command.replace("/src/pyproject.toml", str(PROJECT / "pyproject.toml"))
    command = command.replace("python", f"'{sys.executable}'", 1)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    expected = list(project["dependencies"])
    for name in ("serve", "onnx", "redis"):
        expected += project["optional-dependencies"][name]
    assert done.stdout.splitlines() == expected

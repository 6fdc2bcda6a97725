"""conf/ and recipes/ are found by name, in a checkout and from a wheel; when a recipe runs."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from asrkit.commands.train import make_manifests
from asrkit.config import locate
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import load_config
from asrkit.config.training import DataConfig
from asrkit.train import main
from tests.conftest import PROJECT, skip, write_config

PIP = [sys.executable, "-m", "pip"]


def test_a_configuration_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder; a file of that name there comes first, as a path always means a file."""
    monkeypatch.chdir(tmp_path)
    expected = load_config(PROJECT / "conf" / "digits.yaml")
    assert load_config("digits") == expected
    assert load_config("digits", ["training.epochs=7"]).training.epochs == 7
    assert list(locate.configurations()) == sorted(p.stem for p in PROJECT.glob("conf/*.yaml"))
    (tmp_path / "digits").mkdir()  # a folder is no file
    assert load_config("digits") == expected
    shutil.copy(PROJECT / "conf" / "an4.yaml", tmp_path / "yesno")
    assert load_config("yesno") == load_config("an4")


@pytest.mark.parametrize("name", ["digts", "my/other.yaml"])
def test_no_such_configuration(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    message = str(caught.value)
    assert message.startswith(f"no configuration file {name}; a name must be one of aishell, alnum")
    assert ("did you mean 'digits'?" in message) == (name == "digts")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The commands of recipes, which are not run."""
    commands: list[list[Any]] = []

    def run(command: list[Any], check: bool) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("asrkit.commands.train.subprocess.run", run)
    return commands


def data(train: str, dev: str, recipe: str | None = "digits") -> DataConfig:
    return DataConfig(train=train, dev=dev, recipe=recipe)


def test_a_recipe_makes_the_configurations_own_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[list[Any]]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_manifests(data("x/digits/train.jsonl", "x/digits/dev.jsonl"), ["training.epochs=2"])
    script = PROJECT / "recipes" / "digits" / "prepare.py"
    assert ran == [[sys.executable, script, "--output-dir", Path("x/digits")]]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["data.train={t}", "data.dev={d}"], None),
        (["data.train={t}"], "data.dev: no manifest data/x/dev.jsonl"),
        (["data.train={t}", "data.dev=nope.jsonl"], "data.dev: no manifest nope.jsonl"),
        # In a copied configuration: the recipe would write over a dev.jsonl that is there.
        ([], "data.train: no manifest data/x/train.jsonl"),
    ],
)  # fmt: skip
def test_it_never_makes_a_users_own(
    overrides: list[str],
    told: str | None,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ran: list[list[Any]],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_config(tmp_path / "c.yaml", Path("data/x"), tmp_path / "out", epochs=1)
    path.write_text(path.read_text().replace("data:\n", "data:\n  recipe: digits\n"))
    manifests = {"t": corpus / "train.jsonl", "d": corpus / "dev.jsonl"}
    given = [override.format(**manifests) for override in overrides]
    assert main(["--config", str(path), *given]) == (2 if told else 0)
    if told:
        assert capsys.readouterr().err == f"asrkit train: {told}\n"
        assert not (tmp_path / "out").exists()
    assert ran == []


def copy_of_the_clone(folder: Path) -> Path:
    """Copy the files that a build reads."""
    folder.mkdir()
    for name in ("asrkit", "conf", "recipes", "pyproject.toml", "README.md", "LICENSE"):
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def pip(python: Path | str, command: str, *arguments: Path | str) -> None:
    """Run pip for a Python, without dependencies."""
    done = subprocess.run(
        [*PIP, "--python", python, command, "-q", "--no-deps", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "No matching distribution" in done.stderr:
        skip("nowhere to get hatchling from")
    assert done.returncode == 0, done.stderr


def test_a_script_beside_an_editable_clone_imports_asrkit(tmp_path: Path) -> None:
    """Python takes a folder without `__init__.py` for a package only where no path has another.

    The control is a clone that is not installed.
    """
    clone = copy_of_the_clone(tmp_path / "asrkit")
    (clone / "build").mkdir()  # not asrkit.build
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    site.joinpath("dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    script = tmp_path / "my.py"
    script.write_text("import asrkit, asrkit.build; print(asrkit.load, asrkit.build.__file__)")

    def run(*command: Path | str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *command], cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert "has no attribute 'load'" in run(script).stderr
    pip(python, "install", "--editable", clone)
    done = run(script)
    assert done.stdout.endswith(f"{clone / 'asrkit' / 'build.py'}\n"), done.stderr
    assert "usage: asrkit train" in run("-m", "asrkit.train", "--help").stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy."""
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "-w", folder, copy_of_the_clone(folder / "source"))
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.slow
def test_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    """Unpacked, and used from another folder."""
    installed = tmp_path / "installed"
    subprocess.run([*PIP, "install", "-q", "--no-deps", "--target", installed, wheel], check=True)
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    program = (
        "from asrkit.config.schema import load_config\n"
        "from asrkit.config.locate import configurations, recipes\n"
        "print(load_config('digits').data.recipe, len(configurations()), *recipes().values())"
    )
    told = run("-c", program).stdout.split()
    assert told[:2] == ["digits", str(len(list(PROJECT.glob("conf/*.yaml"))))]
    assert len(told) - 2 == len(list(PROJECT.glob("recipes/*/prepare.py")))
    for script in told[2:]:
        assert script.startswith(str(installed))
        assert "--output-dir" in run(script, "--help").stdout, script
    assert "digits" in run("-m", "asrkit.train", "--config", "digts").stderr

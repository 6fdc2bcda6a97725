"""What the recipes share that lhotse fetches and reads: archives, options, configurations."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from asrkit.config import load_config
from tests.conftest import PROJECT, RECORDINGS
from tests.recipes.originals import (
    AISHELL,
    AISHELL_SPLITS,
    LIBRISPEECH,
    RECIPES,
    YESNO,
    facts,
    make_aishell,
    make_librispeech,
    make_yesno,
    prepare,
)
from tests.recipes.test_corpora import AN4, FSDD, make_prepared, read_rows, refuse


@pytest.mark.parametrize("name", RECIPES)
def test_prepared_folder(tmp_path: Path, name: str) -> None:
    module = RECIPES[name]
    splits = prepare(module, make_prepared(tmp_path / "in"), tmp_path / "out")
    assert splits["dev"] == [("b-1", "YES é", "b")]


def test_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for module, marker in (
        (AN4, "etc/an4_train.transcription"),
        (FSDD, "recordings"),
        (LIBRISPEECH, "train-clean-5"),
        (AISHELL, AISHELL.TRANSCRIPT),
        (YESNO, "*.wav"),
    ):
        arguments = ["--output-dir", tmp_path / "out", "--data-dir", tmp_path / "none"]
        message = refuse(module, arguments, capsys)
        assert f"{tmp_path / 'none'} has neither {marker} nor train.jsonl" in message


def pack(archive: Path, folder: Path, *names: str) -> None:
    """An archive of some paths of a folder."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as pack:
        for name in names:
            pack.add(folder / name, name)


def test_downloads(tmp_path: Path) -> None:
    """Every archive lies where the server has it; a path serves like a URL."""
    make_librispeech(tmp_path)
    for part in ("train-clean-5", "dev-clean-2"):
        pack(tmp_path / "srv/31" / f"{part}.tar.gz", tmp_path, f"LibriSpeech/{part}")
    make_yesno(tmp_path)
    pack(tmp_path / "srv/waves_yesno.tar.gz", tmp_path, "waves_yesno")
    make_aishell(tmp_path)
    wav = tmp_path / "data_aishell/wav"
    for split, speaker in AISHELL_SPLITS.items():
        pack(wav / f"{speaker}.tar.gz", wav, f"{split}/{speaker}")
    speakers = [f"data_aishell/wav/{speaker}.tar.gz" for speaker in AISHELL_SPLITS.values()]
    pack(tmp_path / "srv/33/data_aishell.tgz", tmp_path, "data_aishell/transcript", *speakers)
    (tmp_path / "resource_aishell").mkdir()
    pack(tmp_path / "srv/33/resource_aishell.tgz", tmp_path, "resource_aishell")
    url = (tmp_path / "srv").as_uri()
    for name, where in (
        ("librispeech", url),
        ("yesno", str(tmp_path / "srv/waves_yesno.tar.gz")),
        ("aishell", str(tmp_path / "srv")),
    ):
        out = tmp_path / "out" / name
        arguments = ["--output-dir", str(out), "--download", "--url", where]
        for _ in range(2):  # the second time, what was unpacked is kept
            assert RECIPES[name].main(arguments) == 0
        assert {"train", "dev"} <= set(facts(out))
        assert all(
            str(out / "downloads") in str(row["audio"]) for row in read_rows(out / "dev.jsonl")
        )


def test_failing_downloads(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    arguments = ["--output-dir", out, "--download", "--url", tmp_path / "none"]
    for name, module in RECIPES.items():
        message = refuse(module, arguments, capsys)
        assert f"cannot fetch from {(tmp_path / 'none').as_uri()}" in message
        assert f"delete a damaged archive in {out / 'downloads' / name}, or" in message
        assert message.endswith("or name another copy with --url")
    assert not list(out.glob("*.jsonl*"))


def test_hostile_archive_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as pack:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, str(tmp_path)
        pack.addfile(entry)
        entry = tarfile.TarInfo("link/evil")
        entry.size = 4
        pack.addfile(entry, io.BytesIO(b"evil"))
    arguments = ["--output-dir", tmp_path / "out", "--download", "--url", tmp_path / "link.tar.gz"]
    assert "cannot fetch from" in refuse(YESNO, arguments, capsys)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("name", [*RECIPES, "an4", "fsdd", "digits"])
def test_command_line(name: str) -> None:
    command = [sys.executable, str(PROJECT / "recipes" / name / "prepare.py")]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    example = shown.stdout.strip().splitlines()[-1]
    assert f"python recipes/{name}/prepare.py --output-dir data/{name}" in example


def test_nothing_is_fetched_unless_asked(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        YESNO.main(["--output-dir", "x"])
    assert "one of the arguments --data-dir --download is required" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        AISHELL.main(["--output-dir", "x", "--data-dir", "y", "--url", "z"])
    assert "--url z goes with --download" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["librispeech5", "librispeech100", "librispeech", "aishell", "yesno", "fsdd"],
)
def test_configs_name_what_the_recipes_write(name: str) -> None:
    path = PROJECT / "conf" / f"{name}.yaml"
    config, recipe = load_config(path), name.rstrip("0123456789")
    assert (config.data.train, config.data.dev) == (
        [f"data/{name}/train.jsonl"],
        f"data/{name}/dev.jsonl",
    )
    assert config.training.output_dir == f"exp/{name}"
    readme = (PROJECT / "recipes" / recipe / "README.md").read_text(encoding="utf-8")
    assert f"--config conf/{path.name}" in readme
    assert f"--output-dir data/{name}" in readme


def test_real_recordings(tmp_path: Path) -> None:
    splits = prepare(RECIPES["librispeech"], RECORDINGS / "librispeech-mini", tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 3, "dev": 4}

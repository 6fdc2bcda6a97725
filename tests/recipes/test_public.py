"""The recipes that lhotse fetches and reads: tiny corpora in the layout of each original."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import soundfile

from asrkit.config import load_config
from asrkit.data.cuts import load_cuts, text_of
from asrkit.data.manifest import read_manifest
from tests.conftest import PROJECT
from tests.recipes.test_corpora import (
    load_recipe,
    make_prepared,
    make_samples,
    read_rows,
    refuse,
)

LIBRISPEECH, AISHELL = load_recipe("librispeech"), load_recipe("aishell")
YESNO, COMMONVOICE = load_recipe("yesno"), load_recipe("commonvoice")
RECIPES = {m.__name__.removesuffix("_prepare"): m for m in (LIBRISPEECH, AISHELL, YESNO)}

LIBRISPEECH_TEXTS = {
    "train-clean-5": {"19-198-0000": "NORTHANGER ABBEY", "19-198-0001": "IT'S THE LIFE"},
    "dev-clean-2": {"84-121-0000": "GO DO YOU HEAR"},
    "test-other": {"367-130-0000": "LOBSTERS AND LOBSTERS"},
}
# The full width letter and the blanks are as in the original.
AISHELL_TEXTS = {
    "BAC009S0002W0122": "而 对 楼市",
    "BAC009S0724W0121": "ｋ 歌 的 t 台",
    "BAC009S0764W0121": "甚至 出现",
}
AISHELL_SPLITS = {"train": "S0002", "dev": "S0724", "test": "S0764"}
COLUMNS = "client_id path sentence up_votes down_votes age gender accents variant locale segment"
CLIPS = {
    "train": [("a", "common_voice_cy_1.mp3", '"""Beth, yw’r e-bost?"" meddai - hi\'.'),
              ("b", "common_voice_cy_2.mp3", "?!")],
    "dev": [("c", "common_voice_cy_3.mp3", "Ty\u0302 ‘mawr’: 20 o bobl…")],
    "test": [("d", "common_voice_cy_4.mp3", "می\u200cروم")],
}  # fmt: skip


class Fact(NamedTuple):
    id: str
    text: str | None
    speaker: str | None


def write_audio(path: Path, rate: int = 16000, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, make_samples(seed, rate), rate)


def make_librispeech(folder: Path, parts: dict[str, dict[str, str]] = LIBRISPEECH_TEXTS) -> Path:
    """LibriSpeech/PART/SPEAKER/CHAPTER with recordings and their transcripts."""
    for part, texts in parts.items():
        for seed, (key, text) in enumerate(texts.items()):
            speaker, chapter, _ = key.split("-")
            chapter_folder = folder / "LibriSpeech" / part / speaker / chapter
            write_audio(chapter_folder / f"{key}.flac", seed=seed)
            with (chapter_folder / f"{speaker}-{chapter}.trans.txt").open("a") as file:
                file.write(f"{key} {text}\n")
    return folder / "LibriSpeech"


def make_aishell(folder: Path) -> Path:
    """data_aishell with a transcript of all and recordings by split and speaker."""
    path = folder / AISHELL.TRANSCRIPT
    path.parent.mkdir(parents=True)
    lines = [f"{key} {text}\n" for key, text in AISHELL_TEXTS.items()]
    path.write_text("".join(lines), encoding="utf-8")
    for key, (split, speaker) in zip(AISHELL_TEXTS, AISHELL_SPLITS.items(), strict=True):
        write_audio(folder / "data_aishell/wav" / split / speaker / f"{key}.wav")
    write_audio(folder / "data_aishell/wav/train/S0002/BAC009S0002W0999.wav")  # without a text
    return folder


def make_yesno(folder: Path) -> Path:
    """Sixty recordings whose names are their words."""
    for number in range(60):
        name = "_".join(f"{number:08b}")
        write_audio(folder / "waves_yesno" / f"{name}.wav", 8000, seed=number)
    return folder / "waves_yesno"


def make_commonvoice(folder: Path) -> Path:
    """A release with one language: lists by split, and clips."""
    language = folder / "cv-corpus-13.0-2023-03-09/cy"
    for split, clips in CLIPS.items():
        lines = ["\t".join(COLUMNS.split())]
        for speaker, name, sentence in clips:
            lines.append("\t".join([speaker, name, sentence, "2", "0", "", "", "", "", "cy", ""]))
            write_audio(language / "clips" / name, 48000)
        language.joinpath(f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return language.parent


def prepare(module: ModuleType, folder: Path, out: Path, *options: str) -> dict[str, list[Fact]]:
    """Run a recipe, and read its manifests back as training and decoding do."""
    arguments = ["--output-dir", str(out), "--data-dir", str(folder), *options]
    assert module.main(arguments) == 0
    return facts(out)


def facts(out: Path) -> dict[str, list[Fact]]:
    """What the manifests say; their audio is there, whole, and what they say it is."""
    splits = {}
    for path in sorted(out.glob("*.jsonl")):
        utterances = list(read_manifest(path, []))
        for utterance in utterances:
            header = soundfile.info(utterance.audio)
            assert Path(utterance.audio).is_absolute()
            assert utterance.duration == pytest.approx(header.duration, abs=1e-4)
            assert (utterance.sample_rate or header.samplerate) == header.samplerate
            assert utterance.num_channels == header.channels
        splits[path.stem] = [Fact(u.id, u.text, u.speaker) for u in utterances]
    assert not list(out.glob("*part*"))
    return splits


def check_cuts(out: Path) -> None:
    """train.jsonl.gz has the utterances of train.jsonl, is read lazily, and its audio loads."""
    cuts = load_cuts(out / "train.jsonl.gz", [])
    assert cuts.is_lazy
    found = [Fact(cut.id, text_of(cut), cut.supervisions[0].speaker) for cut in cuts]
    assert sorted(found) == sorted(facts(out)["train"])
    for cut in cuts:
        assert cut.load_audio().shape == (1, cut.num_samples)


def test_librispeech(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, out = make_librispeech(tmp_path / "in"), tmp_path / "out"
    expected = {
        "train": [Fact("19-198-0000", "NORTHANGER ABBEY", "19"),
                  Fact("19-198-0001", "IT'S THE LIFE", "19")],
        "dev": [Fact("84-121-0000", "GO DO YOU HEAR", "84")],
    }  # fmt: skip
    assert prepare(LIBRISPEECH, folder, out) == expected  # the mini parts, unless told otherwise
    check_cuts(out)
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["split", "utterances", "hours", "speakers"]
    assert table[1] == ["train", "2", "0.000", "1"]
    # Another part, from the folder above, leaves the others as they are.
    test = {"test-other": [Fact("367-130-0000", "LOBSTERS AND LOBSTERS", "367")]}
    found = prepare(LIBRISPEECH, folder.parent, out, "--parts", "test-other")
    assert found == expected | test


def test_librispeech_all_is_the_seven_official_parts(tmp_path: Path) -> None:
    parts = {part: {f"{i}-1-0000": "YES"} for i, part in enumerate(LIBRISPEECH.FULL)}
    splits = prepare(LIBRISPEECH, make_librispeech(tmp_path, parts), tmp_path, "--parts", "all")
    sizes = {split: len(rows) for split, rows in splits.items()}
    assert sizes == {"train": 3, "dev": 2, "test-clean": 1, "test-other": 1}


def test_librispeech_with_a_part_or_a_recording_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = make_librispeech(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    message = refuse(LIBRISPEECH, [*arguments, "--parts", "train-clean-5", "dev-clean"], capsys)
    assert message.endswith("has no dev-clean: fetch it, or leave it out of --parts")
    recording = folder / "train-clean-5/19/198/19-198-0001.flac"
    recording.write_bytes(b"")
    message = refuse(LIBRISPEECH, arguments, capsys)
    assert "19-198-0001.flac" in message
    assert message.endswith("get a whole copy of the corpus")
    recording.unlink()
    message = refuse(LIBRISPEECH, arguments, capsys)
    assert "train-clean-5 lacks the audio of 1 of its 2 utterances: get a whole copy" in message
    (recording.parent / "19-198.trans.txt").write_text("19-198-0000\n")
    assert "cannot read" in refuse(LIBRISPEECH, arguments, capsys)
    assert not (tmp_path / "out").exists()


def test_librispeech_parts_are_checked(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        LIBRISPEECH.main(["--output-dir", "x", "--download", "--parts", "train-clean-1000"])
    assert stop.value.code == 2
    assert "argument --parts: invalid choice: 'train-clean-1000'" in capsys.readouterr().err


def test_aishell(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    splits = prepare(AISHELL, make_aishell(tmp_path / "in"), out)
    assert splits == {
        "train": [Fact("BAC009S0002W0122", "而对楼市", "S0002")],
        "dev": [Fact("BAC009S0724W0121", "K歌的T台", "S0724")],
        "test": [Fact("BAC009S0764W0121", "甚至出现", "S0764")],
    }
    check_cuts(out)
    assert "no transcript" not in capfd.readouterr().err


def test_aishell_with_recordings_missing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_aishell(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    (folder / "data_aishell/wav/test/S0764/BAC009S0764W0121.wav").unlink()
    message = refuse(AISHELL, arguments, capsys)
    assert "unpack the archives in wav, or get a whole copy" in message
    write_audio(folder / "data_aishell/wav/test/S0764/BAC009S0764W0999.wav")
    assert refuse(AISHELL, arguments, capsys).startswith("recipes/aishell/prepare.py: error:")
    with (folder / AISHELL.TRANSCRIPT).open("a", encoding="utf-8") as file:
        file.write("BAC009S0002W0130 楼\n")
    write_audio(folder / "data_aishell/wav/test/S0764/BAC009S0764W0121.wav")
    message = refuse(AISHELL, arguments, capsys)
    assert "data_aishell lacks the audio of 1 of its 4 utterances: get a whole copy" in message
    assert not (tmp_path / "out").exists()


def test_yesno(tmp_path: Path) -> None:
    splits = prepare(YESNO, make_yesno(tmp_path / "in"), tmp_path / "out")
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 26, "dev": 4, "test": 30,
    }  # fmt: skip
    assert splits["test"][0] == ("0_0_0_0_0_0_0_1", "NO NO NO NO NO NO NO YES", "unknown")


def test_wrong_yesno(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_yesno(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    recording = folder / "0_0_0_0_0_0_0_0.wav"
    recording.rename(folder / "0_0_0_0_0_0_0_2.wav")
    assert "0_0_0_0_0_0_0_2.wav: the name should be" in refuse(YESNO, arguments, capsys)
    (folder / "0_0_0_0_0_0_0_2.wav").unlink()
    assert "has 59 wav files, not 60: get a whole copy" in refuse(YESNO, arguments, capsys)
    recording.write_bytes(b"RIFF")
    message = refuse(YESNO, arguments, capsys)
    assert recording.name in message
    assert message.endswith("get a whole copy of the corpus")


def test_commonvoice(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COMMONVOICE, "JOBS", 1)  # a process takes seconds to start
    out = tmp_path / "out"
    splits = prepare(COMMONVOICE, make_commonvoice(tmp_path / "in"), out, "--language", "cy")
    assert splits == {
        "train": [Fact("common_voice_cy_1", "Beth yw'r e-bost meddai hi", "a")],
        "dev": [Fact("common_voice_cy_3", "Tŷ mawr 20 o bobl", "c")],
        "test": [Fact("common_voice_cy_4", "می\u200cروم", "d")],
    }
    check_cuts(out)
    assert "train: left out 1 texts without a letter" in capsys.readouterr().out
    names = ["dev.jsonl", "test.jsonl", "train.jsonl", "train.jsonl.gz"]
    assert sorted(path.name for path in out.iterdir()) == names


def test_wrong_commonvoice(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = make_commonvoice(tmp_path / "in")
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", folder]
    message = refuse(COMMONVOICE, [*arguments, "--language", "de"], capsys)
    assert "has neither de/train.tsv nor train.jsonl" in message
    dev = folder / "cy/dev.tsv"
    dev.write_text(dev.read_text(encoding="utf-8").replace("variant", "x"), encoding="utf-8")
    arguments += ["--language", "cy"]
    message = refuse(COMMONVOICE, arguments, capsys)
    assert message.endswith("dev.tsv has no column variant: take a release from 13.0 on")
    dev.unlink()
    assert "cy/dev.tsv" in refuse(COMMONVOICE, arguments, capsys)
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("name", [*RECIPES, "commonvoice"])
def test_prepared_folder(tmp_path: Path, name: str) -> None:
    module = RECIPES.get(name, COMMONVOICE)
    options = ["--language", "cy"] if module is COMMONVOICE else []
    splits = prepare(module, make_prepared(tmp_path / "in"), tmp_path / "out", *options)
    assert splits["dev"] == [("b-1", "YES é", "b")]
    assert (tmp_path / "out/train.jsonl.gz").is_file() == (module is not YESNO)


def test_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for module, marker in (
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
    message = refuse(COMMONVOICE, [*arguments, "--language", "cy"], capsys)
    assert "https://mozilladatacollective.com" in message
    assert message.endswith("get it there and use --data-dir")
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


@pytest.mark.parametrize("name", [*RECIPES, "commonvoice"])
def test_command_line(tmp_path: Path, name: str) -> None:
    command = [sys.executable, str(PROJECT / "recipes" / name / "prepare.py")]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    example = shown.stdout.strip().splitlines()[-1]
    assert example.startswith(f"example: python recipes/{name}/prepare.py --output-dir data/{name}")


def test_nothing_is_fetched_unless_asked(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        YESNO.main(["--output-dir", "x"])
    assert "one of the arguments --data-dir --download is required" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        AISHELL.main(["--output-dir", "x", "--data-dir", "y", "--url", "z"])
    assert "--url z goes with --download" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["librispeech5", "librispeech100", "librispeech", "aishell", "yesno", "commonvoice"],
)
def test_configs_name_what_the_recipes_write(name: str) -> None:
    path = PROJECT / "conf" / f"{name}.yaml"
    config, recipe = load_config(path), name.rstrip("0123456789")
    train = "train.jsonl" if recipe == "yesno" else "train.jsonl.gz"
    assert (config.data.train, config.data.dev) == (
        f"data/{name}/{train}",
        f"data/{name}/dev.jsonl",
    )
    assert config.training.output_dir == f"exp/{name}"
    readme = (PROJECT / "recipes" / recipe / "README.md").read_text(encoding="utf-8")
    assert f"--config conf/{path.name}" in readme
    assert f"--output-dir data/{name}" in readme


@pytest.mark.parametrize(
    ("name", "folder", "train", "dev"),
    [("yesno", "yesno", 26, 4), ("librispeech", "librispeech-mini", 1236, 133)],
)
def test_real_corpora(
    tmp_path: Path, shared_data: Path, name: str, folder: str, train: int, dev: int
) -> None:
    splits = prepare(RECIPES[name], shared_data / folder, tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": train, "dev": dev}

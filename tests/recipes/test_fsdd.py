"""The digits of FSDD with one speaker left out: no voice of test is in train or dev."""

from pathlib import Path

import pytest

from tests.recipes.test_corpora import FSDD, make_fsdd, make_prepared, read_rows, refuse


def facts(out: Path) -> dict[str, list[tuple[object, object]]]:
    """Ids and speakers by split."""
    splits = ("train", "dev", "test")
    return {s: [(r["id"], r["speaker"]) for r in read_rows(out / f"{s}.jsonl")] for s in splits}


def test_leave_out(tmp_path: Path) -> None:
    make_fsdd(tmp_path / "in")
    arguments = ["--output-dir", str(tmp_path / "all"), "--data-dir", str(tmp_path / "in")]
    assert FSDD.main(arguments) == 0
    # From the original, and from the manifests that were made of it.
    for source, out in (("in", "a"), ("all", "b")):
        arguments = ["--output-dir", str(tmp_path / out), "--data-dir", str(tmp_path / source)]
        assert FSDD.main([*arguments, "--leave-out", "theo"]) == 0
        assert facts(tmp_path / out) == {
            "train": [("2_george_10", "george")],
            "dev": [("0_george_5", "george"), ("1_george_9", "george")],
            "test": [("9_theo_49", "theo"), ("7_theo_4", "theo")],
        }
    # Control: with all speakers, theo is in train.
    assert ("9_theo_49", "theo") in facts(tmp_path / "all")["train"]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, out = make_prepared(tmp_path / "in"), tmp_path / "out"
    arguments = ["--output-dir", out, "--data-dir", folder, "--leave-out"]
    assert "--leave-out theo: the speakers are a, b" in refuse(FSDD, [*arguments, "theo"], capsys)
    assert "dev split is empty" in refuse(FSDD, [*arguments, "b"], capsys)  # all that dev has
    assert not out.exists()

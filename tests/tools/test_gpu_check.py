"""The checks for a GPU run, here on the CPU."""

import pytest

from tools import gpu_check


def test_the_checks_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a small batch: some CPUs take a minute for a step of the full one in bfloat16."""
    monkeypatch.setattr(gpu_check, "ROWS", 1)
    monkeypatch.setattr(gpu_check, "FRAMES", 400)
    assert gpu_check.main(["--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["passed"] * len(gpu_check.CHECKS)

"""CMU an4: sphere files, raw ones of either byte order, and the original's lists."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.recipes.test_corpora import (
    AN4,
    check_audio,
    make_an4,
    make_samples,
    pack_an4,
    read_rows,
    refuse,
)


def test_an4_archive(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    audio = make_an4(tmp_path / "in")
    url = pack_an4(tmp_path / "in").as_uri()
    out = tmp_path / "out"
    assert AN4.main(["--output-dir", str(out), "--download", "--url", url]) == 0
    splits = {split: read_rows(out / f"{split}.jsonl") for split in ("train", "dev", "test")}
    facts = {s: [(r["id"], r["text"], r["speaker"]) for r in rows] for s, rows in splits.items()}
    assert facts == {
        "train": [("an251-fash-b", "YES", "fash")],
        "dev": [("cen1-fejs-b", "S C A V", "fejs")],
        "test": [("an406-fcaw-b", "RUBOUT G M", "fcaw")],
    }
    check_audio([row for rows in splits.values() for row in rows], audio, 16000)
    path = out / "audio/fash/an251-fash-b.flac"
    assert splits["train"][0]["audio"] == str(path)
    assert soundfile.info(path).subtype == "PCM_16"
    assert (out / "audio/LICENSE").is_file()
    assert not list(out.rglob("*.part"))
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[0] == ["split", "utterances", "hours", "speakers"]
    assert table[1] == ["train", "1", "0.000", "1"]


@pytest.mark.parametrize("order", [">i2", "<i2"])
def test_an4_raw_of_either_byte_order(tmp_path: Path, order: str) -> None:
    audio = make_an4(tmp_path, raw=order)
    out = tmp_path / "out"
    assert AN4.main(["--output-dir", str(out), "--data-dir", str(tmp_path / "an4")]) == 0
    check_audio(read_rows(out / "train.jsonl") + read_rows(out / "test.jsonl"), audio, 16000)


def test_an4_headers_of_the_original_are_read(tmp_path: Path) -> None:
    """The original was not written by this library: more fields, big-endian samples."""
    samples = make_samples(3, 16000)
    fields = f"""NIST_1A\n   1024\ndatabase_id -s3 AN4\nutterance_id -s12 an251-fash-b
channel_count -i 1\nsample_count -i {len(samples)}\nsample_rate -i 16000\nsample_min -i -2100
sample_max -i 2100\nsample_n_bytes -i 2\nsample_byte_format -s2 10\nsample_sig_bits -i 16
end_head\n"""
    (tmp_path / "x.sph").write_bytes(fields.encode().ljust(1024) + samples.astype(">i2").tobytes())
    AN4.convert(tmp_path / "x", tmp_path / "x.flac")
    np.testing.assert_array_equal(soundfile.read(tmp_path / "x.flac", dtype="int16")[0], samples)


def test_wrong_lists_of_the_original(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_an4(tmp_path)
    arguments = ["--output-dir", tmp_path / "out", "--data-dir", tmp_path]
    file_ids = tmp_path / "an4/etc/an4_train.fileids"
    for line, message in (("a/b/c-d", "c-d has no line in"), ("a/../c", "'a/../c' should be like")):
        file_ids.write_text(line)
        assert message in refuse(AN4, arguments, capsys)
    (tmp_path / "an4/etc/an4_train.transcription").write_text("YES\n")
    assert "'YES' should look like" in refuse(AN4, arguments, capsys)

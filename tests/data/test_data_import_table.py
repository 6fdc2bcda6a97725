"""CSV and TSV, as of Common Voice and LJSpeech, as sources of `asrkit data import`."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import speech, write_wav
from tests.data.test_data_import import Output, imported, sound


def test_tables_keep_their_own_parts(tmp_path: Path, capsys: Output) -> None:
    """As those of Common Voice; one alone is divided."""
    folder, parts = tmp_path / "cv-corpus/cy", {"train": range(4), "dev": [4], "test": [5, 6]}
    for part, numbers in parts.items():
        lines = ["client_id\tpath\tsentence\tup_votes\tsentence_id"]
        for number in numbers:
            sound(folder / "clips" / f"cy_{number}.mp3", 0.5, format="MP3")
            lines.append(f'{number // 2:0128x}\tcy_{number}.mp3\tMae "hen\t2\t{number}')
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lists = [folder / f"{part}.tsv" for part in parts]
    found = imported(tmp_path / "out", "table", *lists, "--dev", 0.3)
    assert "--dev has no effect: the corpus has its own dev" in capsys.readouterr().err
    for part, numbers in parts.items():
        names = [f"cy_{number}" for number in numbers]
        assert [name for name in found if found[name]["split"] == part] == names
    one = found["cy_3"]
    assert one["text"] == 'Mae "hen'  # a quote in TSV is a character
    assert one["audio"] == "../cv-corpus/cy/clips/cy_3.mp3"
    assert one["speaker"] == f"{1:0128x}"
    one = imported(tmp_path / "one", "auto", lists[2])
    assert {each["split"] for each in one.values()} == {"train", "dev"}


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_lists_of_an_audiofolder(kind: str, tmp_path: Path) -> None:
    """The folders name the parts, and two files have one name."""
    lists = [tmp_path / f"in/{part}/metadata.{kind}" for part in ("train", "validation")]
    text = '{"file_name": "0.flac", "transcription": "yes"}\n'
    for path in lists:
        sound(path.parent / "0.flac")
        path.write_text(text if kind == "jsonl" else "file_name,text\n0.flac,yes\n")
    found = imported(tmp_path / "out", "auto", *lists)
    assert {name: each["split"] for name, each in found.items()} == {"0": "train", "0-2": "dev"}


def test_ljspeech(tmp_path: Path, capsys: Output) -> None:
    for number in range(3):
        sound(tmp_path / f"LJ/wavs/LJ001-000{number}.wav")
    (tmp_path / "LJ/metadata.csv").write_text(
        'LJ001-0000|In 1900, "he|In nineteen hundred, "he\nLJ001-0001|"Y"|"Y"\n'
        "LJ001-0002|No|\nLJ001-0003|missing|missing\n../../x|no|no\n"
    )
    source = (tmp_path / "LJ/metadata.csv", "--columns=audio=1,text=3")
    found = imported(tmp_path / "out", "table", *source, status=1)
    assert {name: each["text"] for name, each in found.items()} == {
        "LJ001-0000": 'In nineteen hundred, "he', "LJ001-0001": '"Y"',
    }  # fmt: skip
    errors = capsys.readouterr().err
    assert "left out 2, audio that cannot be read: " in errors
    assert "left out 1, empty text: LJ001-0002" in errors


CSV = 'wav_filename,transcript,spk,begin,end\na.wav,"one, two",x,0.1,0.3\nsub/b.wav,"a ""b""",y,,\n'


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CSV, []),
        ("\ufeff" + CSV, []),
        (CSV.replace(",", ";").replace("one; two", "one, two"), []),
        (CSV.replace("wav_filename", "f").replace("transcript", "t"), ["--columns=audio=f,text=t"]),
        (CSV.replace("spk", "who says it"), ["--columns=speaker=who says it"]),
        (CSV.replace(",", "|").replace("one| two", "one, two"), []),
        (CSV.partition("\n")[2], ["--columns=audio=1,text=2,speaker=3,start=4,end=5"]),
        (CSV.replace("\n", "\r\n"), []),
    ],
)
def test_a_table(text: str, options: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    sound(folder / "a.wav", 0.5)
    sound(folder / "sub/b.wav", 0.5)
    (folder / "list.csv").write_bytes(text.encode())
    found = imported(tmp_path / "out", "auto", folder / "list.csv", *options)
    assert (found["a"]["text"], found["a"]["start"], found["a"]["duration"]) == (
        "one, two", 0.1, 0.2,
    )  # fmt: skip
    b = found["b"]
    assert (b["text"], b["duration"], b["speaker"], b.get("start")) == ('a "b"', 0.5, "y", None)


def test_bad_lines_of_a_table(tmp_path: Path, capsys: Output) -> None:
    for name in ("a", "b", "c"):
        sound(tmp_path / f"in/{name}.wav", 0.5)
    sound(tmp_path / "x.wav")
    lines = [
        "id,audio,text,start,duration", "a,a.wav,yes,0,0.2", "a,a.wav,yes,0.2,0.3",
        "d,a.wav,yes,0,0.2", "e,a.wav,no,0,0.2", "f,missing.wav,no,,", "g,b.wav,,,", "h,,no,,",
        "i,b.wav,no,0.4,0.3", "j,b.wav,no,x,1", "k,../x.wav,no,,", "l,http://host/x.wav,no,,",
        "m,b.wav,no", "n,b.wav,no,0.6,", "o,b.wav,no,nan,", f"p,{'p' * 5000}.wav,no,,",
        "q2,b.wav,y,,", "q,b.wav,y,,",
        "r,/etc/passwd,no,,", f"{'s' * 1001},c.wav,no,,",
    ]  # fmt: skip
    (path := tmp_path / "in/list.csv").write_text("\n".join(lines))
    assert sorted(imported(tmp_path / "out", "auto", path, status=1)) == ["a", "k", "q2"]
    errors = capsys.readouterr().err
    for line in (
        "left out 1, id that occurs twice: a",
        "left out 2, audio that occurs twice: d; q",
        "left out 1, audio that occurs twice with another text: e",
        "left out 1, empty text: g",
        "left out 5, impossible value: list.csv:8: 'audio': field required, ",
        "list.csv:10: 'start': input should be a valid number, unable to parse string as a number",
        "list.csv:15: 'start': input should be a finite number, got 'nan'; …",
        "left out 2, time outside the file: i: 0.40 to 0.70 s of 0.50 s; n: 0.60",
        "left out 1, audio that is not a local file: commands are never run: ",
        "left out 1, line without 5 columns: list.csv:13: 3",
        "left out 2, audio that cannot be read: ",
    ):
        assert line in errors, line
    path.write_text("audio,text\nx.wav,no\nin/a.wav,yes\n")
    assert len(imported(tmp_path / "o2", "table", path, "--audio-root", tmp_path)) == 2


def test_speakers_of_calls_are_roles(tmp_path: Path, capsys: Output) -> None:
    """No call is in both parts, and each has both roles."""
    lines = ["file,who,start,end,text,channel"]
    for number in range(10):
        voices = [speech(1.0, seed=2 * number + channel) for channel in range(2)]
        write_wav(tmp_path / f"c{number}.wav", np.stack(voices, axis=1))
        lines += [f"c{number}.wav,agent,0.1,0.5,good day,0",
                  f"c{number}.wav,customer,0.4,0.9,hello,1"]  # fmt: skip
    calls = tmp_path / "calls.csv"
    calls.write_text("\n".join(lines))
    found = imported(tmp_path / "out", "auto", calls, "--columns=speaker=who")
    assert "or speakers who share recordings: dev is split by rec" in capsys.readouterr().err
    assert {(each["speaker"], each["channel"]) for each in found.values()} == {
        ("agent", 0), ("customer", 1),
    }  # fmt: skip
    parts = [{(each["audio"], each["speaker"]) for each in found.values()
              if each["split"] == part} for part in ("train", "dev")]  # fmt: skip
    assert {role for _, role in parts[1]} == {"agent", "customer"}
    assert not {audio for audio, _ in parts[0]} & {audio for audio, _ in parts[1]}

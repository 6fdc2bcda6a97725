"""The README and the pages of docs/: their Python runs and is typed, what they name is there."""

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asrkit
from asrkit.config.schema import load_config
from tests.conftest import PROJECT, write_manifest, write_wav
from tests.running import run
from tests.runtime.test_endpoint import said
from tools import prose

DOCS = PROJECT / "docs"
README = PROJECT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
EXAMPLES = DOCS / "examples"
RUN = [README, DOCS / "python.md"]
NOT_RUN = "<!-- not run"  # before a block; the reason follows
SPOKEN = "four four seven"


def blocks(page: Path) -> list[str]:
    """The page's Python, but for what is marked as not run."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"(<!-- not run.*?-->\n)?```python\n(.*?)```", text, re.DOTALL)
    return [code for mark, code in found if not mark]


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_wav(tmp_path / "a.wav", said(SPOKEN))
    monkeypatch.chdir(tmp_path)
    return tmp_path


Output = pytest.CaptureFixture[str]


def test_the_readme_runs(recordings: Path, capsys: Output) -> None:
    (code,) = blocks(README)
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("four four")  # live text
    assert lines[-1] == "True"


def test_the_page_on_python_runs(recordings: Path, capsys: Output) -> None:
    texts = [SPOKEN, "erase", "seven eleven"]
    (recordings / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    assert run("ngram", "--order", 2, "texts.txt", "--output", "lm.arpa") == 0
    capsys.readouterr()
    exec(compile("\n".join(blocks(DOCS / "python.md")), "python.md", "exec"), {})
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == SPOKEN
    assert lines[1].startswith("Word(text='four', start=0.")
    assert "00:00:00" in lines[3]
    assert "True" in lines
    assert "['447']" in lines
    assert re.search(r"^four four seven -?\d+\.\d+ 0\.\d+$", shown, re.MULTILINE)
    assert lines[-3] == SPOKEN
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    assert lines[-2:] == re.findall(r"# (chunk_size must.*|torch\.Size.*)", page)


def test_microphone(recordings: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    class Stream:
        def __init__(self, rate: int, channels: int, callback: Callable[..., Any]) -> None:
            assert (rate, channels) == (16000, 1)
            self.callback = callback

        def __enter__(self) -> None:
            samples = np.concatenate([said(SPOKEN), np.zeros(32000)]).astype(np.float32)
            for packet in np.array_split(samples[:, None], 20):
                self.callback(packet, len(packet), None, None)
            self.callback(SimpleNamespace(copy=lambda: b"the end"), 0, None, None)

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setitem(sys.modules, "sounddevice", SimpleNamespace(InputStream=Stream))
    with pytest.raises(asrkit.UserError):
        runpy.run_path(str(EXAMPLES / "microphone.py"))
    assert f"\r{SPOKEN:60}\n" in capsys.readouterr().out


def test_subtitles(recordings: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    (recordings / "b.wav").write_bytes(b"nothing")
    monkeypatch.setattr(sys, "argv", ["subtitles.py", "."])
    runpy.run_path(str(EXAMPLES / "subtitles.py"))
    assert SPOKEN in Path("a.srt").read_text(encoding="utf-8")
    assert not Path("b.srt").exists()
    assert "b.wav" in capsys.readouterr().err


def test_numbers_in_digits(
    recordings: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    pytest.importorskip("text_to_num")
    monkeypatch.chdir(EXAMPLES)
    shown = {}
    for name in ("", "in_digits:in_digits"):
        options = ["--chunk-ms", "320", "--postprocess", name]
        assert run("decode", "--model", "small-en-alnum", *options, recordings / "a.wav") == 0
        shown[name] = capsys.readouterr().out.strip().rpartition("\t")[2]
    assert shown == {"": SPOKEN, "in_digits:in_digits": "4 4 7"}
    in_digits = runpy.run_path(str(EXAMPLES / "in_digits.py"))["in_digits"]
    assert in_digits("Press two, then twenty-one.") == "Press 2, then 21."


@pytest.mark.parametrize("count", [9, 10, 12])
def test_fine_tune_trains_on_ten_and_tests_on_the_rest(
    count: int, recordings: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    each = [{"id": str(i), "audio": "a.wav", "text": SPOKEN} for i in range(count)]
    write_manifest(recordings / "all.jsonl", *each)
    program = runpy.run_path(str(EXAMPLES / "fine_tune.py"))
    done: list[tuple[str, ...]] = []
    program["main"].__globals__["run"] = lambda *command: done.append(command)
    monkeypatch.setattr(sys, "argv", ["fine_tune.py", "all.jsonl", "--output-dir", "exp"])
    if count < 10:
        with pytest.raises(SystemExit):
            program["main"]()
        assert "all.jsonl must have at least 10 recordings, got 9" in capsys.readouterr().err
        return
    program["main"]()
    assert [command[0] for command in done] == ["train", *["evaluate"] * 2 * (count > 10)]
    assert ("not measured" in capsys.readouterr().out) == (count == 10)
    config = load_config(done[0][2], list(done[0][3:]))
    assert config.training.start_from == "small-en-alnum"
    assert config.data.train == [config.data.dev]  # the test chooses nothing
    if count > 10:
        train, test = (set(Path("exp", f"{name}.jsonl").read_text().splitlines()) for name in
                       ("train", "test"))  # fmt: skip
        assert (len(train), len(test), len(train & test)) == (10, 2, 0)


def test_the_python_is_typed(tmp_path: Path) -> None:
    files = []
    for page in RUN:
        files.append(tmp_path / f"page_{page.stem.lower()}.py")
        files[-1].write_text("\n".join(blocks(page)), encoding="utf-8")
    files += [
        EXAMPLES / f"{name}.py" for name in ("microphone", "subtitles", "fine_tune", "stream_onnx")
    ]
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "pyproject.toml"),
         *map(str, files)],
        cwd=PROJECT, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_python_is_run_or_says_why_not() -> None:
    for page in PAGES:
        elsewhere = ("positions.md", "contributing.md")  # the latter by tests/laws/test_guide.py
        assert page in RUN or not blocks(page) or page.name in elsewhere, page


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}


def missing(page: Path, text: str) -> list[str]:
    """Links and files that a page names and that are not there, and trainings without --config."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link:
            continue
        if not target.exists() or (
            anchor and not anchor.startswith("asrkit.") and anchor not in anchors(target)
        ):
            found.append(link)
    paths = re.findall(
        r"(?<![0-9a-f]{7}:)\b(?:tests|tools|asrkit|conf|recipes|docs)/[\w./-]+\.(?:py|md|yaml)\b",
        text,
    )
    commands = re.findall(
        r"^.*\basrkit[ .]train (?=.*=).*$", text.replace("\\\n", ""), re.MULTILINE
    )
    found += [command for command in commands if "--config" not in command]
    return found + [path for path in paths if "NAME" not in path and path not in MADE
                    and not (PROJECT / path).exists()]  # fmt: skip


MADE = {"conf/mine.yaml"}  # by the reader


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert missing(page, page.read_text(encoding="utf-8")) == []


def test_control_what_is_not_there_is_found() -> None:
    text = "[a](docs/no.md) [b](docs/python.md#no) [c](docs/python.md#stream) `tests/no.py`"
    text += " `1a3d6e1:tools/no.py`"  # at a commit
    train = "asrkit train data.train=x \\\n  data.dev=y"
    found = {"docs/no.md", "docs/python.md#no", "tests/no.py", train.replace("\\\n", "")}
    assert set(missing(README, f"{text}\n{train}\n{train} --config conformer")) == found


def test_every_example_is_on_the_page() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\[(.*)\]\(examples/.*\)$", page, re.MULTILINE))
    assert shown == {f"docs/examples/{path.name}" for path in EXAMPLES.iterdir()}
    assert "--8<--" not in page  # a forge shows such a line as it is


PROSE = [page for pattern in prose.PAGES for page in sorted(PROJECT.glob(pattern))]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(PROJECT)))
def test_the_sentences_of_a_page_keep_the_rules(page: Path) -> None:
    """Those that can be counted: docs/contributing.md names them."""
    assert list(prose.findings([page])) == []


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 90


@pytest.mark.parametrize(("example", "path"), [("websocket", "/"), ("fastapi_app", "/live")])
def test_websocket(recordings: Path, example: str, path: str) -> None:
    """Two clients at once: each has the text of its recording. FastAPI takes uploads, too."""
    testclient = pytest.importorskip("starlette.testclient")
    samples = said(SPOKEN)
    expected = asrkit.load("small-en-alnum").transcribe(samples, 16000).text
    client = testclient.TestClient(runpy.run_path(str(EXAMPLES / f"{example}.py"))["app"])
    with client.websocket_connect(path) as one, client.websocket_connect(path) as two:
        for packet in np.array_split(samples.astype(np.float32), 7):
            for socket in (one, two):
                socket.send_bytes(packet.tobytes())
                assert not socket.receive_json()["final"]
        for socket in (one, two):
            socket.send_bytes(b"")
            assert socket.receive_json() == {"text": expected, "final": True}
    if example == "fastapi_app":
        files = {"file": (recordings / "a.wav").read_bytes()}
        assert client.post("/transcribe", files=files).json()["text"]
        refused = client.post("/transcribe", files={"file": b"not audio"})
        assert refused.status_code == 422
        assert "is not audio" in refused.json()["detail"]


OUTSIDE = re.compile(r"(PROJECT|ROOT)\.parent\b|--data-dir \.\./")


def test_nothing_is_looked_for_beside_a_clone() -> None:
    """Recordings and checkpoints are in tests/fixtures."""
    folders = ("tests", "tools", "recipes", "docs", ".ci")
    paths = [path for each in folders for path in (PROJECT / each).rglob("*")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths
             if path.suffix in ("", ".py", ".md") and path.is_file()}  # fmt: skip
    assert len(texts) > 250
    assert not [str(path) for path, text in texts.items() if OUTSIDE.search(text)]
    assert OUTSIDE.search(f"{'PROJECT'}.parent / 'data'")  # control

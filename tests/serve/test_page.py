"""The page, in a real browser whose microphone plays a recording."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import soxr
from websockets.sync.client import connect

from asrkit.runtime import Recognizer, formats
from asrkit.serve.server import Server
from tests.serve.running import Recordings, call_of, serving
from tests.serve.test_client import cutting

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed"),
]


class Page:
    """A tab, by the DevTools protocol."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address, max_size=None)
        self.numbers = itertools.count(1)
        self.socket.__enter__()

    def command(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv(timeout=30))).get("id") != number:
            pass
        result: dict[str, Any] = answer["result"]
        return result

    def evaluate(self, script: str) -> Any:
        options = {"expression": script, "returnByValue": True, "userGesture": True}
        return self.command("Runtime.evaluate", **options)["result"].get("value")

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        end = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, (script, self.evaluate("document.body.innerText"))
            time.sleep(0.1)
        return value

    def talk(self, seconds: float) -> None:
        """Talk until a text of the fake microphone's recording has ended."""
        self.evaluate("document.getElementById('talk').click()")
        self.wait("document.querySelector('#text .live') !== null")
        self.wait("document.querySelector('#text div:not(.live)') !== null")
        time.sleep(seconds)  # it began before
        self.evaluate("document.getElementById('talk').click()")
        self.wait("document.getElementById('status').textContent === 'Done.'")

    def upload(self, path: Path) -> None:
        root = self.command("DOM.getDocument")["root"]["nodeId"]
        node = self.command("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        self.command("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshots(self, name: str) -> None:
        """Take pictures of a wide and of a narrow window, if a folder is named."""
        for width in (1280, 390) if "SCREENSHOTS" in os.environ else ():
            size = {"width": width, "height": 760, "deviceScaleFactor": 1, "mobile": False}
            self.command("Emulation.setDeviceMetricsOverride", **size)
            data = base64.b64decode(self.command("Page.captureScreenshot")["data"])
            (Path(os.environ["SCREENSHOTS"]) / f"{name}_{width}.png").write_bytes(data)


@contextmanager
def page(url: str, folder: Path, *options: str) -> Iterator[Page]:
    assert BROWSER is not None
    process = subprocess.Popen(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={folder}", "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream", "--autoplay-policy=no-user-gesture-required",
            *options, "about:blank",
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        found = next(line for line in process.stderr if "DevTools listening on" in line)
        root = found.split()[-1]
        tabs = httpx.get(
            root.replace("ws://", "http://").partition("/devtools")[0] + "/json"
        ).json()
        tab = Page(next(each["webSocketDebuggerUrl"] for each in tabs if each["type"] == "page"))
        tab.command("Page.enable")
        tab.command("Page.navigate", url=url)
        tab.wait("document.readyState === 'complete' && !!document.getElementById('talk')")
        yield tab
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_the_microphone_and_a_file(
    address: str, served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    """What is spoken is on the page, as the recogniser writes it; connections are cut meanwhile."""
    quiet = np.zeros(24_000, np.int16)
    samples = np.concatenate([quiet[:8000], recordings[2][1], quiet, quiet])
    wav = tmp_path / "spoken.wav"
    soundfile.write(wav, soxr.resample(samples, 16000, 48000), 48000, subtype="PCM_16")
    fake = f"--use-file-for-fake-audio-capture={wav}%noloop"
    with (
        cutting(address, cuts=0, seed=0, most=150_000) as cutter,
        page(f"http://{cutter.address}/", tmp_path / "profile", fake) as tab,
    ):
        tab.wait("document.getElementById('models').options.length === 1")
        words = tab.evaluate("document.getElementById('vocabulary').innerText")
        assert words == "small-en-alnum knows 148 words and no others."
        assert tab.evaluate("document.getElementById('choice').hidden")
        cutter.cuts = (opened := cutter.done) + 3
        tab.talk(len(samples) / 16000)
        assert cutter.done > opened + 3
        tab.screenshots("mono")
        text = tab.evaluate("document.getElementById('text').innerText")
        assert text.split() == served.transcribe(wav).text.split()
        assert tab.evaluate("document.getElementById('talk').textContent") == "Start"
        tab.evaluate("document.getElementById('clear').click()")
        tab.upload(recordings[0][0])
        tab.wait("document.querySelector('#text div') !== null")
        result = served.transcribe(recordings[0][0])
        assert tab.evaluate("document.getElementById('text').innerText").split() == (
            result.text.split()
        )
        tab.evaluate(  # as a page of another machine without https
            "Object.defineProperty(navigator, 'clipboard', { value: undefined }); "
            "document.getElementById('copy').click()"
        )
        tab.wait("document.getElementById('status').textContent.includes('only for https')")
        tab.evaluate(
            "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.srt = text }); "
            "return 'data:,' }; document.getElementById('srt').click()"
        )
        edges = (result.segments[0].spoken, result.segments[0].spoken_end)
        start, end = (formats.clock(round(1000 * each), ",") for each in edges)
        assert tab.wait("window.srt").startswith(f"1\n{start} --> {end}\n")


def test_two_channels_of_another_model(
    served: Recognizer, recordings: Recordings, tmp_path: Path
) -> None:
    """Each is a speaker, with the text of its channel, in a file as from the microphone."""
    call = np.pad(call_of(recordings, 1, 2), ((8000, 48_000), (0, 0)))
    soundfile.write(wav := tmp_path / "call.wav", soxr.resample(call, 16000, 48000), 48000)
    fake = f"--use-file-for-fake-audio-capture={wav}%noloop"
    loud = served.with_decoding(served.decoding._replace(postprocess=str.upper))
    server = Server({"quiet": served, "loud": loud}, token="secret")
    with (
        serving(server) as address,
        page(f"http://{address}/?token=secret", tmp_path / "profile", fake) as tab,
    ):
        tab.wait("!document.getElementById('choice').hidden")
        tab.evaluate("document.getElementById('models').value = 'loud'")
        tab.evaluate("document.getElementById('split').checked = true")
        for source in ("file", "microphone"):
            tab.evaluate("document.getElementById('clear').click()")
            if source == "file":
                tab.upload(wav)
            else:
                tab.talk(len(call) / 16000)
            tab.wait("document.querySelector('#text div:not(.live)') !== null")
            tab.screenshots(source)
            for channel in (0, 1):
                lines = f"[...document.querySelectorAll('#text > [data-channel=\"{channel}\"]')]"
                found = tab.evaluate(f"{lines}.map((line) => line.innerText).join(' ')").split()
                expected = served.transcribe(wav, channel=channel).text.upper().split()
                names = f"{lines}.map((line) => line.querySelector('.name').textContent)"
                assert {*tab.evaluate(names)} == {f"channel {channel}"}
                assert [each for each in found if each not in ("channel", str(channel))] == expected
                assert all(tab.evaluate(f"{lines}.map((line) => line.dataset.end)"))

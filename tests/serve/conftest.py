from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

import asrkit
from asrkit.runtime import Recognizer
from asrkit.serve.server import Limits, Server
from tests.conftest import RECORDINGS
from tests.serve.running import Recordings, serving


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a server fail where it leaves an exception of a thread or coroutine to nobody."""
    own = [item for item in items if Path(__file__).parent in item.path.parents]
    for name in ("PytestUnraisableExceptionWarning", "PytestUnhandledThreadExceptionWarning"):
        for item in own:
            item.add_marker(pytest.mark.filterwarnings(f"error::pytest.{name}"))


@pytest.fixture(scope="session")
def served() -> Recognizer:
    """In two passes, segments ending at pauses, with hotwords if asked for."""
    return asrkit.load(
        "small-en-alnum", chunk_size=8, endpointer=asrkit.Endpointer(pause_ms=400),
        second_pass="full", second_search="prefix_beam",
    )  # fmt: skip


@pytest.fixture(scope="module")
def server(served: Recognizer) -> Server:
    return Server({"small-en-alnum": served}, Limits(streams=40, upload_mb=2, silence_s=5))


# torch's loading of data in processes, in tests of another file, takes the signal by which a server
# notices that its processes have ended: so no server outlives its file.
@pytest.fixture(scope="module")
def address(server: Server) -> Iterator[str]:
    with serving(server) as address:
        yield address


@pytest.fixture(scope="session")
def recordings() -> Recordings:
    """Real ones, the shortest first: files, and their samples as int16 at 16 kHz."""
    names = ("an251-fash", "cen8-mfaa", "cen2-mbmg", "an311-fkai", "an209-mdmc", "an193-fmjd")
    paths = [next(RECORDINGS.glob(f"an4/audio/*/{name}-b.flac")) for name in names]
    return [(path, soundfile.read(path, dtype="int16")[0]) for path in paths]

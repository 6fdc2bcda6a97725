"""Connections are bounded, and none of them takes the event loop from the others."""

import asyncio
import errno
import gc
import json
import os
import resource
import socket
import threading
import time
from asyncio.selector_events import _SelectorSocketTransport
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from asrkit.runtime import Recognizer
from asrkit.serve import connections, fair
from asrkit.serve.app import Accounting
from asrkit.serve.calls import Call
from asrkit.serve.gate import Gate, Wire
from asrkit.serve.places import network_of
from asrkit.serve.server import Limits, Server
from tests.serve.running import connected, serving
from tests.serve.test_stream import answers, converse, start

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


def opened(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def is_closed(one: socket.socket, seconds: float) -> bool:
    """Whether the server closes a connection within this time; what it sends is read."""
    one.settimeout(seconds)
    try:
        while one.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def flooding(one: socket.socket, data: bytes) -> Iterator[threading.Event]:
    """Data is sent again and again, as fast as it is taken, until the block ends."""
    stop, ended = threading.Event(), threading.Event()
    one.settimeout(0.2)

    def flood() -> None:
        place = 0  # a send that times out may have sent a part
        with suppress(ConnectionError, BrokenPipeError):
            while not stop.is_set():
                with suppress(TimeoutError):
                    place = (place + one.send(data[place:])) % len(data)
        ended.set()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()


def slowest(address: str, count: int = 20) -> float:
    """Seconds that a neighbour waits for an answer, at most of some."""
    waits = []
    with httpx.Client() as client:
        for _ in range(count):
            started = time.monotonic()
            assert client.get(f"http://{address}/healthz", timeout=20).text == "ok\n"
            waits.append(time.monotonic() - started)
            time.sleep(0.02)
    return max(waits)


@pytest.fixture(scope="module")
def small(served: Recognizer) -> Iterator[str]:
    """A server with few connections and short times."""
    with serving(Server({"m": served}, Limits(connections=20, header_s=1.0))) as address:
        yield address


def test_a_body_that_nobody_reads_ends_its_connection(address: str) -> None:
    with opened(address) as one:
        one.sendall(CHUNKED + b"1\r\nx\r\n")
        assert is_closed(one, 8.0)


@pytest.mark.parametrize("path", ["/healthz", "/v1/audio/transcriptions", "/no"])
def test_a_flood_of_chunks_of_a_byte_is_cut_off_or_waits_in_its_socket(
    address: str, path: str
) -> None:
    head = CHUNKED.replace(b"/healthz", path.encode())
    if "audio" in path:
        form = b"\r\nContent-Type: multipart/form-data; boundary=b\r\nTransfer"
        head = head.replace(b"\r\nTransfer", form)
    with ExitStack() as stack:
        alone = slowest(address)
        for _ in range(3):
            one = stack.enter_context(opened(address))
            one.sendall(head)
            stack.enter_context(flooding(one, b"1\r\n-\r\n" * 10_000))
        time.sleep(0.5)
        assert slowest(address) < 1.0 + 3 * alone  # was 5 s


def test_a_refused_upload_is_not_read_to_its_end(served: Recognizer) -> None:
    with serving(Server({"m": served}, token="secret")) as address, opened(address) as one:
        one.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        )
        with flooding(one, bytes(1 << 16)) as ended:
            answer = one.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 401")
            assert b"connection: close" in answer.lower()
            assert ended.wait(8.0)


@pytest.mark.parametrize("sent", [b"", b"G", GET, GET + b"X-Pad: "])
def test_a_connection_without_a_whole_request_is_closed(small: str, sent: bytes) -> None:
    with opened(small) as one:
        if sent:
            one.sendall(sent)
        assert is_closed(one, 8.0)


def test_a_second_request_that_is_never_whole_is_closed_too(small: str) -> None:
    with opened(small) as one:
        one.sendall(GET + b"\r\n" + GET)
        assert is_closed(one, 8.0)


def test_a_websocket_that_never_sends_is_closed(small: str) -> None:
    for path in ("/v1/stream", "/vosk"):
        with connected(f"ws://{small}{path}") as client:
            answers = [json.loads(each) for each in closing(client)]
            assert answers[-1]["reason"] == "silence"


def closing(client: ClientConnection) -> Iterator[str | bytes]:
    """All messages, until the server closes the connection, in whatever way."""
    with suppress(ConnectionClosed):
        while True:
            yield client.recv(timeout=8)


def test_idle_connections_make_room_for_those_that_ask(small: str) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(opened(small)) for _ in range(60)]
        assert slowest(small, 3) < 5
        with connected(f"ws://{small}/v1/stream") as client:
            client.send('{"type": "start"}')
            assert json.loads(client.recv(timeout=10))["type"] == "started"
            idle += [stack.enter_context(opened(small)) for _ in range(60)]
            client.send(b"\0" * 3200)  # a call is not idle
            client.send('{"type": "end"}')
            answers = [json.loads(each)["type"] for each in client]
            assert answers[-1] == "ended"
        assert is_closed(idle[0], 5.0)


@pytest.mark.parametrize("sent", [GET + b"\r\n", b""])
def test_connections_that_never_sent_a_byte_make_room_first(
    served: Recognizer, sent: bytes
) -> None:
    with ExitStack() as stack:
        server = Server({"m": served}, Limits(connections=20, header_s=60.0))
        address = stack.enter_context(serving(server))
        oldest = stack.enter_context(opened(address))
        oldest.sendall(sent)
        if sent:
            assert oldest.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for _ in range(40):
            stack.enter_context(opened(address))
        assert slowest(address, 1) < 5
        # Control: without its request the oldest connection is the first to go.
        assert is_closed(oldest, 0.5) == (not sent)


def test_idle_connections_make_room_once_no_silent_one_is_left() -> None:
    async def main() -> list[int]:
        gate = Gate(3)
        wires = [Wire(Transport(), gate) for _ in range(5)]
        for wire in wires[:3]:
            assert gate.admit(wire)
        wires[1].note_data()
        wires[0].note_data()
        left = []
        for wire in wires[3:]:
            before = set(gate.open)
            assert gate.admit(wire)
            wire.note_data()
            left += [n for n, each in enumerate(wires) if each in before - gate.open]
        return left

    assert asyncio.run(main()) == [2, 1]  # the silent one, then the oldest of the idle ones


def test_full_is_told_so(served: Recognizer) -> None:
    gate = Gate(2)

    async def main() -> list[bytes]:
        loop = asyncio.get_running_loop()
        transports = [Transport() for _ in range(3)]
        wires = [Wire(each, gate) for each in transports]
        for wire in wires[:2]:
            assert gate.admit(wire)
            wire.is_working(True)
        http = type("Http", (connections.Http,), {"gate": gate})
        config = connections.config_of(lambda *each: None, Server({"m": served}))
        config.load()
        from uvicorn.server import ServerState

        one = http(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        one.connection_made(transports[2])
        one.data_received(b"GET / HTTP/1.1\r\n\r\n")
        one.connection_lost(None)
        gate.leave(wires[0])
        assert gate.admit(wires[2])
        return transports[2].written

    assert asyncio.run(main())[0].startswith(b"HTTP/1.1 503")


class Transport:
    """What a connection asks of asyncio's transport."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.written: list[bytes] = []
        self.address = address

    def get_extra_info(self, name: str) -> object:
        return (self.address, 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        pass

    abort = close


def test_a_server_that_ends_closes_connections_whose_clients_have_left(
    served: Recognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses to shut their sockets down, and all other calls are finished."""
    refused = []

    def shutdown(self: object) -> None:
        refused.append(self)
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    with serving(Server({"m": served})) as address:
        gone, other = opened(address), start(address)
        monkeypatch.setattr(_SelectorSocketTransport, "write_eof", shutdown)
        slowest(address, 1)
    assert refused
    assert [json.loads(each)["type"] for each in closing(other)] == ["started"]
    assert other.close_code == 1012
    gone.close()


def test_one_address_has_half_of_the_connections_unless_it_is_a_proxy() -> None:
    async def main() -> list[int]:
        counts = []
        for address in ("192.0.2.1", "127.0.0.1", "10.0.0.1"):
            gate = Gate(10, proxies=[network_of("10.0.0.0/8")])
            wires = [Wire(Transport(address), gate) for _ in range(20)]
            for wire in wires:
                if gate.admit(wire):
                    wire.is_working(True)
            counts.append(len(gate.open))
            other = Wire(Transport("192.0.2.2"), gate)
            assert gate.admit(other) == (address == "192.0.2.1")
        return counts

    assert asyncio.run(main()) == [5, 10, 10]


def test_connections_leave_descriptors_for_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    for descriptors, at_least in ((256, 60), (1024, 700), (1 << 20, 10_000)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, n=descriptors: (n, n))
        most = connections.most_connections(Limits())
        assert at_least <= most <= descriptors - 150 or most == connections.MOST


def test_no_message_is_compressed(address: str) -> None:
    with connected(f"ws://{address}/v1/stream", compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers


PING = b"\x89\xfd" + bytes(4) + b"x" * 125  # masked with zeros
HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
START = b'{"type": "start"}'


def resident() -> float:
    """MB of this process, in which the server runs."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.parametrize(
    "data",
    [PING * 100, b"\x82\x80" + bytes(4), b"\x81\x80" + bytes(4), b"\x8a\x80" + bytes(4)],
    ids=["pings", "empty audio", "empty text", "pongs"],
)
def test_frames_that_are_sent_for_ever_and_answers_never_read_cost_no_memory(
    address: str, data: bytes
) -> None:
    data *= 1000
    before = resident()
    with opened(address) as one:
        one.sendall(HANDSHAKE)
        assert b"101" in one.recv(1 << 16)
        one.sendall(b"\x81" + bytes([0x80 | len(START)]) + bytes(4) + START)
        with flooding(one, data):
            time.sleep(2)
            assert slowest(address, 5) < 3.0
    assert resident() - before < 80 + len(data) / 1e6  # was 30 MB a second, of pings


def test_a_client_that_sends_all_before_it_reads_is_served(
    address: str, served: Recognizer, recordings: list[tuple[object, np.ndarray]]
) -> None:
    path, samples = recordings[0]
    client = start(address)
    parts: list[bytes | str] = [each.tobytes() for each in np.split(samples, range(80, 40_000, 80))]
    messages = converse(client, parts)
    text = " ".join(each["text"] for each in messages if each["type"] == "final")
    assert text == served.transcribe(path).text  # type: ignore[arg-type]


@pytest.mark.parametrize("waits", [True, False])
def test_reading_stops_only_where_more_comes_than_is_handled(
    address: str, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Stopping and starting to read costs two system calls, and a message is handled soon."""
    stops: list[object] = []  # addresses of clients
    pause = _SelectorSocketTransport.pause_reading

    def noted(self: _SelectorSocketTransport) -> None:
        stops.append(self.get_extra_info("peername"))
        pause(self)

    monkeypatch.setattr(_SelectorSocketTransport, "pause_reading", noted)
    with start(address) as client:
        own = client.local_address  # clients of other tests may still be there
        if waits:
            client.recv(timeout=10)
        else:  # control: the audio comes before the start is handled, and waits in the socket
            client.send(bytes(1 << 20))
        client.send('{"type": "end"}')
        answers(client)
    assert (own in stops) != waits


@pytest.mark.parametrize("join", [True, False])
def test_packets_reach_the_call_as_chunks(
    address: str,
    served: Recognizer,
    recordings: list[tuple[object, np.ndarray]],
    monkeypatch: pytest.MonkeyPatch,
    join: bool,
) -> None:
    _, samples = recordings[0]
    sizes: list[int] = []
    append = Call.append

    def counted(call: Call, samples: np.ndarray) -> None:
        if len(samples):  # the flood of a test before may still send empty messages
            sizes.append(len(samples))
        append(call, samples)

    monkeypatch.setattr(Call, "append", counted)
    if not join:  # the control
        monkeypatch.setattr(connections.WebSocket, "join", lambda websocket, size: False)
    client = start(address)
    data = samples[: len(samples) // 2 * 2].tobytes()
    parts: list[bytes | str] = [data[i : i + 331] for i in range(0, len(data), 331)]  # half samples
    client.send(parts[0])
    while not sizes:  # then the size of the first chunk is known
        time.sleep(0.1)
    messages = converse(client, [*parts[1:30], '{"type": "commit"}', *parts[30:]])
    assert sum(sizes) == messages[-1]["ack"] == len(samples) // 2 * 2
    chunk = served.engine.spec.chunk_frames * 160
    assert (len(sizes) <= len(samples) // chunk + 5) == join


def test_silence_is_that_of_the_client(served: Recognizer) -> None:
    with serving(Server({"m": served}, Limits(silence_s=0.5))) as address:
        client = start(address)
        for _ in range(8):
            client.send(bytes(2))
            time.sleep(0.2)
        client.send('{"type": "end"}')
        assert answers(client)[-1]["type"] == "ended"
        client = start(address)
        assert answers(client)[-1]["reason"] == "silence"


def test_shares_are_fair_between_those_that_use_much() -> None:
    now = [0.0]
    shares = fair.Shares(lambda: now[0])
    talking, *greedy = (fair.Share(shares) for _ in range(31))
    used = dict.fromkeys(greedy, 0.0)
    for _ in range(20_000):
        now[0] += 0.001
        for share in greedy:
            if not share.wait():
                share.spend(0.001)
                used[share] += 0.001
        talking.spend(0.000004)  # 0.4 % of the time, as of ten packets a second
        assert not talking.wait()
    total = sum(used.values())
    assert 0.2 * 20 < total < 0.3 * 20 + 30 * fair.MOST_S
    assert max(used.values()) < 1.5 * min(used.values())
    for share in greedy:
        share.leave()
    now[0] += 1
    assert shares.rate(now[0]) == fair.ALL


@pytest.mark.parametrize(("first_s", "waits"), [(0.01, False), (0.04, True)])
def test_calls_that_begin_together_need_not_wait(first_s: float, waits: bool) -> None:
    """They use 1.5 ms a second each. 300 busy connections would have 1 ms; the control is busy."""
    now = [0.0]
    shares = fair.Shares(lambda: now[0])
    calls = [fair.Share(shares) for _ in range(300)]
    for call in calls:
        call.spend(first_s)
    waited = False
    for _ in range(600):
        now[0] += 0.1
        for call in calls:
            call.spend(0.00015)
            waited = waited or call.wait() > 0
    assert waited == waits


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """No collection but those of the test: another one would make young objects old."""
    gc.disable()
    yield
    gc.enable()


def test_a_piece_of_work_is_charged_for_neither_earlier_work_nor_waiting() -> None:
    def busy(seconds: float) -> None:
        started = time.thread_time()
        while time.thread_time() - started < seconds:
            pass

    fair.spent(fair.clock())
    busy(0.05)  # nobody's
    assert fair.spent(fair.clock()) < 0.01
    started = fair.clock()
    time.sleep(0.05)
    assert fair.spent(started) < 0.01
    started = fair.clock()
    busy(0.05)  # a control
    assert 0.05 <= fair.spent(started) < 0.1


@pytest.mark.usefixtures("_no_collection")
def test_no_connection_is_charged_for_a_full_collection() -> None:
    objects = [[] for _ in range(300_000)]  # type: ignore[var-annotated]

    async def work() -> None:
        gc.collect(generation)

    for generation in (2, 1):
        share, spent = fair.Share(fair.Shares()), list[float]()
        share.spend = spent.append  # type: ignore[method-assign]
        fair.CURRENT.set(share)
        gc.collect()
        objects += [[] for _ in range(300_000)]  # young: the control searches them
        started = time.thread_time()
        asyncio.run(fair.metered(work()))
        used = time.thread_time() - started
        assert (spent[0] < 0.1 * used) == (generation == 2)


@pytest.mark.parametrize(
    ("gap_s", "step_s", "most_s", "least_s"),
    [
        pytest.param(0.1, 0.002, 2.0 + 200 * 0.002, 8.0, id="short steps"),
        # A step begins while there is credit, so connections can end deep in debt.
        pytest.param(0.05, 0.2, 3.0, 20.0, id="long steps"),
    ],
)
def test_a_client_that_connects_again_and_again_gets_no_new_credit_each_time(
    gap_s: float, step_s: float, most_s: float, least_s: float
) -> None:
    now = [0.0]
    shares = fair.Shares(lambda: now[0])

    def used(client: str) -> float:
        """Seconds that connections use in 20 s, each until it has to wait."""
        total, until = 0.0, now[0] + 20.0
        while now[0] < until:
            now[0] += gap_s
            share = fair.Share(shares, client=client)
            while not share.wait():
                share.spend(step_s)
                total += step_s
            share.leave()
        return total

    assert used("192.0.2.1") < most_s
    assert used("") > least_s  # control: where many clients have one address, each has its own


@pytest.mark.parametrize("debt", [0.0, 0.1])
def test_a_request_of_a_connection_in_debt_waits(debt: float) -> None:
    """It may have been parsed with hundreds of others."""
    waits = []

    async def app(*_: object) -> None:
        waits.append(share.wait())

    async def run() -> float:
        fair.CURRENT.set(share)
        share.spend(fair.FIRST_S + debt)
        began = time.monotonic()
        await Accounting(app)({"type": "http", "client": ("192.0.2.1", 1)}, None, None)  # type: ignore[arg-type]
        return time.monotonic() - began

    share = fair.Share(fair.Shares())
    seconds = asyncio.run(run())
    assert waits[0] < 0.01
    assert (seconds > 0.1) == (debt > 0)


def test_the_steps_of_a_coroutine_are_charged_and_its_exceptions_pass() -> None:
    async def work(error: bool) -> int:
        for _ in range(3):
            started = time.thread_time()
            while time.thread_time() - started < 0.01:
                pass
            await asyncio.sleep(0.01)
        if error:
            raise KeyError("a")
        return 7

    async def main() -> None:
        share, spent = fair.Share(fair.Shares()), []
        share.spend = spent.append  # type: ignore[method-assign]
        fair.CURRENT.set(share)
        assert await fair.metered(work(False)) == 7
        assert 0.03 <= sum(spent) < 0.06
        with pytest.raises(KeyError):
            await fair.task(work(True))
        cancelled = fair.task(work(False))
        await asyncio.sleep(0.005)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(main())

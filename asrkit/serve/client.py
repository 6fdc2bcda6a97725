"""A client of /v1/stream: streams audio to a server, and reconnects without losing audio."""

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from asrkit import audio
from asrkit.audio.samples import apart
from asrkit.errors import UserError, checked_token, printable, reason, shown
from asrkit.runtime import Result, Segment, Word
from asrkit.runtime.results import Grown
from asrkit.serve.dialects import messages
from asrkit.serve.dialects.parsing import object_of

PATH = "/v1/stream"
SCHEMES = {"http": "ws", "ws": "ws", "https": "wss", "wss": "wss"}
PATIENCE_S = 60.0  # time without a connection after which the call fails
RETRY_S = 0.5  # time between two attempts to connect
AHEAD_S = 60.0  # audio that may wait for a connection before `accept` waits
FATAL = (1002, 1003, 1007, 1008, 1009, 1010)  # close codes that a new connection would meet again


class LostError(Exception):
    """The connection failed or was lost; another attempt may succeed."""


class Packet(NamedTuple):
    end: int  # samples of the call up to the packet's end, as the server counts samples
    data: bytes


def address_of(url: str) -> str:
    """Return the WebSocket address of a server: ws://host:8000/v1/stream for http://host:8000.

    Raises:
        UserError: if `url` is not the URL of a server.
    """
    with suppress(ValueError):  # a port that is not a number
        parts = urlsplit(url)
        if parts.scheme in SCHEMES and parts.hostname and parts.port != 0:
            path = parts.path.rstrip("/").removesuffix(PATH) + PATH
            return parts._replace(scheme=SCHEMES[parts.scheme], path=path, fragment="").geturl()
    # Without password and token.
    told = re.sub(r"^([\w+.-]*://)?.*@", r"\1", url.partition("?")[0], flags=re.DOTALL)
    raise UserError(f"the server must be a URL like http://127.0.0.1:8000, got {shown(told)}")


class RemoteSession:
    """A stream that `asrkit serve` recognises. Use it like a Session: `accept`, then `finish`.

    If the connection is lost, the session reconnects and continues with the first sample that the
    server has not received. It keeps audio until the server has acknowledged it.

    Args:
        url: URL of the server.
        start: first message of the call: audio format and recognition options.
        token: access token of the server, or None.
        note: receives a line of text when the connection is lost and when it is back.
        patience_s: seconds without a connection after which the call fails.

    Raises:
        UserError: if the server cannot be reached or rejects the call.
    """

    def __init__(
        self,
        url: str,
        start: messages.Start,
        token: str | None = None,
        note: Callable[[str], None] = lambda text: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.address, self.note, self.patience_s = address_of(url), note, patience_s
        self.token = None if token is None else checked_token(token)
        self._rate, self._dtype = start.sample_rate, messages.ENCODINGS[start.encoding]
        self._packets: deque[Packet] = deque()  # not yet acknowledged
        self._sent = 0  # number of those that this connection has sent
        self._taken = self._came = 0  # samples accepted, and those acknowledged
        self._segments: list[list[Segment]] = [[] for _ in range(start.channels)]
        self._open: list[tuple[Word, ...]] = [()] * start.channels
        self._ending = self._ended = self._failed = False
        self._lost_at = self._next_try = 0.0  # when the connection was lost
        self._connection: ClientConnection | None = None
        self._stack = ExitStack()  # closes the connection
        try:
            self._started = self._connect(start)
        except LostError as error:
            raise UserError(f"no connection to {self.name}: {error}") from None

    @property
    def name(self) -> str:
        """Address of the server, without user name, password and query."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{printable(parts.netloc.rpartition('@')[2])}{parts.path}"

    @property
    def result(self) -> Result:
        """The result so far, of the first channel."""
        return self.results[0]

    @property
    def results(self) -> list[Result]:
        """The results of all channels so far."""
        none = Grown([], 0)
        return [
            Result.shared(Grown(segments, len(segments)), none, words, self._ended)
            for segments, words in zip(self._segments, self._open, strict=True)
        ]

    def accept(self, samples: np.ndarray) -> Result:
        """Send samples (n,) or (n, channels), and return the result so far.

        Channels are mixed, unless the call has several.

        While the connection is lost, samples are kept. `accept` waits only if more than a minute of
        audio is kept.

        Raises:
            UserError: if the call is over, or the server cannot be reached for `patience_s`.
        """
        count = len(self._segments)
        if count > 1 and np.shape(samples)[1:] != (count,):
            raise audio.AudioError(f"samples must be (n, {count}), got shape {np.shape(samples)}")
        samples = apart(samples) if count > 1 else audio.mono(samples)
        if self._dtype.kind == "i":
            samples = np.clip(np.rint(samples * 32768), -32768, 32767)
        if len(samples):
            self._taken += len(samples)
            self._packets.append(Packet(self._taken, samples.astype(self._dtype).tobytes()))
        unsent = self._packets[self._sent].end if self._sent < len(self._packets) else self._taken
        return self._go_on(wait=self._taken - unsent > AHEAD_S * self._rate)

    def finish(self) -> Result:
        """Return the final result; if the call has failed, the result before the error.

        Raises:
            UserError: like `accept`.
        """
        if self._failed or self._ended:
            return self.result
        self._ending = True
        result = self._go_on(wait=True)
        self.close()
        return result

    def close(self) -> None:
        """Close the connection."""
        self._connection = None
        self._stack.close()

    def _go_on(self, wait: bool) -> Result:
        """Send waiting audio and receive messages; reconnect if the connection was lost."""
        try:
            while (connection := self._connection) is not None or self._comes_back(wait):
                try:
                    if connection is not None:
                        self._exchange(connection)
                        break
                except ConnectionClosed as closed:
                    self._lose(closed)
        except BaseException:
            self._failed = True
            raise
        return self.result

    def _exchange(self, connection: ClientConnection) -> None:
        try:
            while self._sent < len(self._packets):
                connection.send(self._packets[self._sent].data)
                self._sent += 1
            if self._ending:
                connection.send('{"type": "end"}')
            self._take_all(connection, None if self._ending else 0)
        except ConnectionClosed:
            self._take_all(connection, 0)  # the last message may say why
            raise

    def _take_all(self, connection: ClientConnection, timeout: float | None) -> None:
        """Process the messages that have arrived; if `timeout` is None, all of the call."""
        with suppress(TimeoutError):  # no further message has arrived
            while not self._ended:
                self._take(connection.recv(timeout))

    def _take(self, text: str | bytes) -> None:
        message = messages.answer(text)
        if isinstance(message, messages.Partial | messages.Final | messages.Ended):
            self._came_up_to(message.ack)
        match message:
            case messages.Error():
                raise UserError(refusal(message))
            case messages.Partial():
                self._open[self._channel_of(message)] = words_of(message.words)
            case messages.Final(text=text, start=start, end=end, context=context):
                words, channel = words_of(message.words), self._channel_of(message)
                self._open[channel] = ()
                self._segments[channel].append(Segment(text, words, start, end, context=context))
            case messages.Ended(ack=ack, warning=warning):
                self._ended, self._open = True, [()] * len(self._open)
                if not self._ending or ack < self._taken:
                    error = f"the server ended the call at sample {ack} of {self._taken}"
                    raise UserError(error)
                if warning:
                    self.note(f"the server: {printable(warning[:300])}")

    def _channel_of(self, message: messages.Partial | messages.Final) -> int:
        channel = message.channel or 0
        if not 0 <= channel < len(self._segments):
            raise UserError(f"the server sent a text of channel {channel}, which was not sent")
        return channel

    def _came_up_to(self, ack: int) -> None:
        """Remove the packets that end at or before sample `ack`."""
        while self._packets and self._packets[0].end <= ack:
            self._came = self._packets.popleft().end
            self._sent = max(0, self._sent - 1)

    def _lose(self, closed: ConnectionClosed) -> None:
        """Note that the connection is lost.

        Raises:
            UserError: if a new connection would be closed for the same reason.
        """
        self.close()
        frame = closed.rcvd or closed.sent  # sent: this client rejected a message
        if frame is not None and frame.code in FATAL:
            raise UserError(f"the server ended the call: {frame.code} {printable(frame.reason)}")
        self._lost_at = time.monotonic()
        self.note(f"the connection to {self.name} is lost; reconnecting")

    def _comes_back(self, wait: bool) -> bool:
        """Reconnect, and return whether that succeeded; without `wait`, try at most once.

        Raises:
            UserError: after `patience_s` without a connection, or if the server has lost the call.
        """
        while wait or time.monotonic() >= self._next_try:
            time.sleep(max(0.0, self._next_try - time.monotonic()))
            self._next_try = time.monotonic() + RETRY_S
            try:
                self._resume()
                return True
            except LostError as error:
                if time.monotonic() - self._lost_at > self.patience_s:
                    text = f"no connection to {self.name} for {self.patience_s:g} s: {error}"
                    raise UserError(text) from None
        return False

    def _resume(self) -> None:
        id, token, counts = self._started.id, self._started.token, [*map(len, self._segments)]
        finals = counts if len(counts) > 1 else counts[0]
        first = messages.Resume(type="resume", id=id, token=token, finals=finals, ack=self._came)
        started = self._connect(first)
        self._sent = 0
        self._came_up_to(started.ack)  # a packet that failed may have arrived, too
        if self._came != started.ack:
            raise UserError(f"the server continues at sample {started.ack}, not {self._came}")
        self.note("the connection is back; no audio was lost")

    def _connect(self, first: messages.Start | messages.Resume) -> messages.Started:
        """Open a connection, send this first message, and return the answer.

        Raises:
            LostError: if the connection fails.
            UserError: if the server rejects the call.
        """
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            opening = connect(
                self.address, additional_headers=headers, compression=None, max_size=2**26,
                max_queue=None, close_timeout=1,
            )  # fmt: skip
            self._connection = connection = self._stack.enter_context(opening)
            connection.send(first.model_dump_json())
            answer = messages.answer(connection.recv(timeout=10))
        except InvalidStatus as error:
            why = explanation(error.response.body) or "the token, the path or the server is wrong"
            text = f"HTTP {error.response.status_code}: {why}"
            if error.response.status_code >= 500:  # of a proxy, while the server starts again
                raise LostError(text) from None
            raise UserError(f"{self.name} rejects the call: {text}") from None
        except (OSError, WebSocketException, UnicodeError) as error:  # UnicodeError: in the host
            self.close()
            raise LostError(reason(error)) from None
        if isinstance(answer, messages.Started):
            return answer
        self.close()
        if not isinstance(answer, messages.Error):
            raise UserError(f"{self.name} is not an asrkit server: it did not start the call")
        if answer.reason == "streams" and isinstance(first, messages.Resume):
            raise LostError(answer.message)
        raise UserError(refusal(answer))


def explanation(body: bytes | bytearray | None) -> str:
    """Return the message of a server's response to a rejected handshake; "" without one."""
    with suppress(UserError, KeyError, TypeError):
        return printable(str(object_of(bytes(body or b""))["error"]["message"])[:300])
    return ""


def refusal(error: messages.Error) -> str:
    """Return the text that reports a server's error to the user."""
    full = " is full: try again later" if error.reason == "streams" else ""
    return f"the server{full}: {printable(error.message[:300])}"


def words_of(words: list[messages.TimedWord]) -> tuple[Word, ...]:
    return tuple(
        Word(word.text, word.start, word.end, word.confidence).with_space(word.spaced)
        for word in words
    )

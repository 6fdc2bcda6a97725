"""A client of /v1/stream: a stream that a server recognises, whose connection may be lost."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from asrkit import audio
from asrkit.audio.opus import OpusEncoder
from asrkit.errors import UserError, printable, reason, shown
from asrkit.runtime import Result, Segment, Word
from asrkit.runtime.results import Grown
from asrkit.serve.protocols import messages
from asrkit.serve.protocols.messages import (
    Ended,
    Error,
    Final,
    Partial,
    Resume,
    Start,
    Started,
    TimedWord,
)

PATH = "/v1/stream"
SCHEMES = {"http": "ws", "ws": "ws", "https": "wss", "wss": "wss"}
PATIENCE_S = 60.0  # without a connection, after which the call is given up
DELAYS_S = 0.1, 5.0  # between two attempts to connect, doubled until there is news
AHEAD_S = 60.0  # of audio that waits for a connection, before the source has to
FATAL = (1002, 1003, 1007, 1008, 1009, 1010)  # close codes that would come again


class LostError(Exception):
    """There is no connection, or no more; trying again may help."""


class Packet(NamedTuple):
    end: int  # samples of the call up to its end, as the server counts them
    data: bytes


def address_of(url: str) -> str:
    """The WebSocket address of a server: http://host:8000 is ws://host:8000/v1/stream.

    Raises:
        UserError: if it is no URL of a server.
    """
    try:
        parts: SplitResult | None = urlsplit(url)
        good = parts is not None and parts.scheme in SCHEMES and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        good = False
    if not good or parts is None:
        raise UserError(f"the server must be a URL as http://127.0.0.1:8000, got {shown(url)}")
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return parts._replace(scheme=SCHEMES[parts.scheme], path=path, fragment="").geturl()


class RemoteSession:
    """A stream recognised by `asrkit serve`, used as a Session is: accept, then finish.

    When the connection is lost, it is opened again and the call goes on with the first sample that
    the server has not received: audio is kept until it is known to have come.

    Args:
        url: of the server.
        start: what the audio is, and how it is to be recognised.
        sample_rate: of the samples, Hz: that of `start`, but for Opus.
        token: that the server asks for.
        note: is told, in a line, when the connection is lost and when it is back.
        patience_s: seconds without a connection after which the call is given up.

    Raises:
        UserError: if there is no such server, or it does not take the call.
    """

    def __init__(
        self,
        url: str,
        start: Start,
        sample_rate: int,
        token: str | None = None,
        note: Callable[[str], None] = lambda text: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.address, self.token, self.note = address_of(url), token, note
        self.patience_s, self._rate = patience_s, start.sample_rate
        is_opus = start.encoding == "opus"
        self._encoder = OpusEncoder(sample_rate) if is_opus else PcmEncoder(start.encoding)
        self._kept: deque[Packet] = deque()  # sent, but not known to have come
        self._unsent: deque[Packet] = deque()
        self._taken = self._came = 0  # samples accepted, and those known to have come
        self._words: list[Word] = []  # of the segments
        self._segments: list[Segment] = []
        self._open: tuple[Word, ...] = ()
        self._ending = self._ended = self._failed = False
        self._lost_at: float | None = None  # when the connection was lost
        self._next_try, self._delay = 0.0, DELAYS_S[0]
        self._connection: ClientConnection | None = None
        self._stack = ExitStack()  # closes it
        try:
            self._started = self._connect(start)
        except LostError as error:
            raise UserError(f"no connection to {self.name}: {error}") from None

    @property
    def name(self) -> str:
        """The server's, without what may be secret."""
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{printable(parts.netloc.rpartition('@')[2])}{parts.path}"

    @property
    def result(self) -> Result:
        """What is known of the stream."""
        closed, ended = (Grown(each, len(each)) for each in (self._words, self._segments))
        return Result.shared(closed, Grown([], 0), self._open, self._ended, ended)

    def accept(self, samples: np.ndarray) -> Result:
        """Send samples (n,) or (n, channels); returns what is known by now.

        While the connection is lost, samples are kept; only a minute of them makes this wait.

        Raises:
            UserError: if the call is over, or the server cannot be reached for too long.
        """
        self._add(self._encoder.encode(audio.mono(samples)))
        waiting = self._taken - (self._unsent[0].end if self._unsent else self._taken)
        return self._go_on(wait=waiting > AHEAD_S * self._rate)

    def finish(self) -> Result:
        """The final result; that of before the error, if the call has failed.

        Raises:
            UserError: as `accept`.
        """
        if self._failed or self._ended:
            return self.result
        self._add(self._encoder.finish())
        self._ending = True
        result = self._go_on(wait=True)
        if self._connection is not None:
            with suppress(ConnectionClosed, TimeoutError):
                self._connection.recv(timeout=1)  # the server closes, when the place is free
        self.close()
        return result

    def close(self) -> None:
        """Leave the server."""
        self._stack.close()

    def _add(self, packets: list[bytes]) -> None:
        for data in packets:
            self._taken += self._encoder.size(data)
            self._unsent.append(Packet(self._taken, data))

    def _go_on(self, wait: bool) -> Result:
        """Send what has not been sent and take what has come, by another connection if need be."""
        try:
            while self._connection is not None or self._comes_back(wait):
                try:
                    self._exchange()
                    break
                except ConnectionClosed as closed:
                    self._lose(closed)
        except BaseException:
            self._failed = True
            raise
        return self.result

    def _exchange(self) -> None:
        connection = self._connection
        assert connection is not None
        try:
            while self._unsent:
                connection.send(self._unsent[0].data)
                self._kept.append(self._unsent.popleft())
            if self._ending:
                connection.send('{"type": "end"}')
            self._take_all(connection, None if self._ending else 0)
        except ConnectionClosed:
            self._take_all(connection, 0)  # the last message may say why
            raise

    def _take_all(self, connection: ClientConnection, timeout: float | None) -> None:
        """Take what has come, or without a timeout all up to the end of the call."""
        with suppress(TimeoutError):  # there is nothing more by now
            while not self._ended:
                self._take(connection.recv(timeout))

    def _take(self, text: str | bytes) -> None:
        message = messages.answer(text)
        if isinstance(message, Error):
            raise UserError(refusal(message))
        if isinstance(message, Partial | Final | Ended):
            self._delay = DELAYS_S[0]
            self._came_up_to(message.ack, self._kept)
        if isinstance(message, Partial):
            self._open = words_of(message.words)
        elif isinstance(message, Final):
            words, self._open = words_of(message.words), ()
            self._words += words
            self._segments.append(
                Segment(message.text, words, message.start, message.end, context=message.context)
            )
        elif isinstance(message, Ended):
            self._ended, self._open = True, ()
            if not self._ending or message.ack < self._taken:
                text = f"the server ended the call at sample {message.ack} of {self._taken}"
                raise UserError(text)
            if message.warning:
                self.note(f"the server: {printable(message.warning[:300])}")

    def _came_up_to(self, ack: int, packets: deque[Packet]) -> None:
        """Forget those of the packets that end up to this sample."""
        while packets and packets[0].end <= ack:
            self._came = packets.popleft().end

    def _lose(self, closed: ConnectionClosed) -> None:
        """Note that the connection is lost.

        Raises:
            UserError: if the server closed it in a way that another one would not change.
        """
        self._stack.close()
        self._connection = None
        frame = closed.rcvd or closed.sent  # sent: this client rejects what the server sends
        if frame is not None and frame.code in FATAL:
            raise UserError(f"the server ended the call: {frame.code} {printable(frame.reason)}")
        self._lost_at = time.monotonic()
        self.note(f"the connection to {self.name} is lost; trying to come back")

    def _comes_back(self, wait: bool) -> bool:
        """Whether there is a connection again; without `wait` after one attempt at most.

        Raises:
            UserError: if there has been none for too long, or the server has lost the call.
        """
        assert self._lost_at is not None
        while wait or time.monotonic() >= self._next_try:
            time.sleep(max(0.0, self._next_try - time.monotonic()))
            self._next_try = time.monotonic() + self._delay
            self._delay = min(2 * self._delay, DELAYS_S[1])
            try:
                self._resume()
                return True
            except LostError as error:
                if time.monotonic() - self._lost_at > self.patience_s:
                    text = f"no connection to {self.name} for {self.patience_s:g} s: {error}"
                    raise UserError(text) from None
        return False

    def _resume(self) -> None:
        ids = {"id": self._started.id, "token": self._started.token}
        finals = len(self._segments)
        started = self._connect(Resume(type="resume", finals=finals, ack=self._came, **ids))
        self._unsent.extendleft(reversed(self._kept))  # what failed to be sent may have come, too
        self._kept.clear()
        self._came_up_to(started.ack, self._unsent)
        if self._came != started.ack:
            raise UserError(f"the server goes on at sample {started.ack}, not {self._came}")
        self._lost_at = None
        self.note("the connection is back; nothing was lost")

    def _connect(self, first: Start | Resume) -> Started:
        """Open a connection with this message; returns the answer.

        Raises:
            LostError: if there is none.
            UserError: if the server does not take the call.
        """
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            connection = self._stack.enter_context(
                connect(
                    self.address, additional_headers=headers, compression=None, max_size=2**26,
                    max_queue=None, close_timeout=1,
                )
            )  # fmt: skip
            connection.send(first.model_dump_json())
            answer = messages.answer(connection.recv(timeout=10))
        except InvalidStatus as error:
            status = error.response.status_code
            if status in (401, 403):
                why = "the token is missing or wrong, or the path"
                raise UserError(f"{self.name} refuses (HTTP {status}): {why}") from None
            if status < 500:
                raise UserError(f"{self.name} is no asrkit serve (HTTP {status})") from None
            raise LostError(f"HTTP {status}") from None
        except UnicodeError as error:  # of the host's name
            raise UserError(f"no connection to {self.name}: {reason(error)}") from None
        except (OSError, WebSocketException) as error:
            self._stack.close()
            raise LostError(reason(error)) from None
        if isinstance(answer, Error) and answer.reason == "streams" and isinstance(first, Resume):
            raise LostError(answer.message)
        if isinstance(answer, Error):
            raise UserError(refusal(answer))
        if not isinstance(answer, Started):
            raise UserError(f"{self.name} is no asrkit serve: it does not start the call")
        self._connection = connection
        return answer


class PcmEncoder:
    """Samples as they are: int16, rounded, or float32; used as an OpusEncoder is.

    Args:
        encoding: one of `messages.ENCODINGS`.
    """

    def __init__(self, encoding: str) -> None:
        self.dtype = messages.ENCODINGS[encoding]

    def encode(self, samples: np.ndarray) -> list[bytes]:
        if self.dtype.kind == "i":
            samples = np.clip(np.rint(samples * 32768), -32768, 32767)
        return [samples.astype(self.dtype).tobytes()] if len(samples) else []

    def finish(self) -> list[bytes]:
        return []

    def size(self, packet: bytes) -> int:
        return len(packet) // self.dtype.itemsize


def refusal(error: Error) -> str:
    """What to say of a server's error."""
    why = printable(error.message[:300])
    if error.reason == "streams":
        return f"the server is full: {why}; try again later"
    return f"the server: {why}"


def words_of(words: list[TimedWord]) -> tuple[Word, ...]:
    return tuple(
        Word(word.text, word.start, word.end, word.confidence).with_space(word.spaced)
        for word in words
    )

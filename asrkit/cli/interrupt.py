"""Ending a stream, rather than the program, with Ctrl-C."""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

Packet = TypeVar("Packet")


def end_at_next_interrupt() -> None:
    """Make another Ctrl-C end the process at once, without a traceback, while it shuts down."""
    with suppress(ValueError):  # only the main thread may have a handler
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))


class SourceInterrupt(KeyboardInterrupt):
    """Raised by Ctrl-C to leave a source that waits for its next packet."""


def until_interrupted(
    packets: Iterable[Packet], use: Callable[[Packet], None], stop: Callable[[], None] | None = None
) -> None:
    """Call `use` with packets until they end or Ctrl-C is pressed, never breaking off a call.

    Args:
        stop: function that ends the source after its remaining packets; without one, the source is
            left at once.

    Raises:
        KeyboardInterrupt: at a second Ctrl-C.
    """
    busy = interrupted = False

    def interrupt(signal_number: int, frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        if stop:
            stop()
        elif not busy:
            raise SourceInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        for packet in packets:
            busy = True
            use(packet)
            busy = False
            if interrupted and not stop:
                break
    except SourceInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, previous)

"""Ctrl-C, which ends a stream and not the program."""

import signal
from collections.abc import Callable, Iterable
from typing import TypeVar

Packet = TypeVar("Packet")


class Enough(KeyboardInterrupt):
    """Ctrl-C while a source waits for its next packet."""


def until_interrupted(
    packets: Iterable[Packet],
    use: Callable[[Packet], None],
    stop: Callable[[], None] | None = None,
) -> None:
    """Use packets until they end or Ctrl-C comes; a packet that is in use is finished.

    Args:
        packets: of a source.
        use: what is done with each.
        stop: asks the source to end, which then gives what it still has; a source without it is
            left at once.

    Raises:
        KeyboardInterrupt: at a second Ctrl-C.
    """
    busy = asked = False

    def interrupt(signal_number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        if stop:
            stop()
        elif not busy:
            raise Enough

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        for packet in packets:
            busy = True
            use(packet)
            busy = False
            if asked and not stop:
                break
    except Enough:
        pass
    finally:
        signal.signal(signal.SIGINT, previous)

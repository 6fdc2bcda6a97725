"""Stream a file, the microphone or raw samples: python -m asrkit.stream --model MODEL --mic"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from asrkit import audio
from asrkit.cli import (
    add_context,
    add_model,
    add_search,
    add_segments,
    load_recognizer,
    parser,
    run_command,
)
from asrkit.errors import UserError
from asrkit.runtime import Result

DEFAULT_ENDPOINT_MS = "1000"  # lines come as they are said


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit stream", __doc__,
        "python -m asrkit.stream --model MODEL --file x.wav --simulate-realtime\n"
        "  python -m asrkit.stream --model MODEL --mic\n"
        "  ffmpeg -i x.mp4 -f s16le -ac 1 -ar 16000 - | python -m asrkit.stream --model MODEL -",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_segments(arguments, endpoint=DEFAULT_ENDPOINT_MS)
    source = arguments.add_mutually_exclusive_group(required=True)
    source.add_argument("--file", help="an audio file")
    source.add_argument(
        "--mic", action="store_true", help="the microphone (pip install 'asrkit[mic]')"
    )
    source.add_argument(
        "stdin", nargs="?", choices=["-"], help="raw 16-bit mono PCM on standard input"
    )
    arguments.add_argument("--sample-rate", type=int, default=audio.SAMPLE_RATE, help="of -")
    arguments.add_argument(
        "--packet-ms", type=int, default=100, help="audio taken at once (default 100)"
    )
    arguments.add_argument("--mic-device", help="name or number of the input device")
    arguments.add_argument(
        "--simulate-realtime", action="store_true", help="take a file at the speed it was spoken"
    )
    arguments.add_argument(
        "--partials", action="store_true", help="every partial result on a line of its own"
    )
    return run_command(stream, arguments, argv)


def stream(options: argparse.Namespace) -> int:
    if options.packet_ms < 1:
        raise UserError(f"--packet-ms must be 1 or more, got {options.packet_ms}")
    recognizer, _ = load_recognizer(options)
    screen = Screen(options.partials)
    if options.mic:
        from asrkit.audio.microphone import Microphone

        with Microphone(options.mic_device, options.packet_ms) as microphone:
            print("listening; Ctrl-C ends", file=sys.stderr)
            session = recognizer.start(microphone.sample_rate)
            until_interrupted(microphone, lambda packet: screen.partial(session.accept(packet)))
            for packet in microphone.rest():  # what was said is worth its last words
                session.accept(packet)
        if microphone.lost:
            print(f"\n{microphone.lost:.2f} s of audio were lost: too slow", file=sys.stderr)
    else:
        rate, packets = file_packets(options) if options.file else stdin_packets(options)
        if options.simulate_realtime:
            packets = paced(packets, rate)
        session = recognizer.start(rate)
        until_interrupted(packets, lambda packet: screen.partial(session.accept(packet)))
    screen.final(session.finish())
    return 0


def until_interrupted(packets: Iterable[np.ndarray], use: Callable[[np.ndarray], None]) -> None:
    """Use packets until they end or Ctrl-C comes, which waits for a packet that is in use."""
    busy = asked = False

    def interrupt(signal_number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        if not busy:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        for packet in packets:
            busy = True
            use(packet)
            busy = False
            if asked:
                break
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, previous)


def paced(packets: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """Each packet when its last sample would have been spoken."""
    start, seconds = time.monotonic(), 0.0
    for packet in packets:
        seconds += len(packet) / rate
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        yield packet


class Screen:
    """Partial results, redrawn in place on a terminal, and the final one on standard output.

    Args:
        lines: partial results on lines of their own instead.
    """

    def __init__(self, lines: bool) -> None:
        self.lines, self.redraw = lines, sys.stdout.isatty() and not lines
        self.shown = ""
        self.segments = 0  # that stand on lines of their own

    def partial(self, result: Result) -> None:
        self.final(result)
        text = result.open_text
        if text == self.shown:
            return
        self.shown = text
        if self.lines and text:
            print(f"… {text}", flush=True)
        elif self.redraw:
            width = shutil.get_terminal_size().columns - 1
            text = text if len(text) <= width else "…" + text[1 - width :]
            print(f"\r\x1b[K{text}", end="", flush=True)

    def final(self, result: Result) -> None:
        """Segments that have ended, each on a line."""
        for segment in result.segments[self.segments :]:
            print(f"\r\x1b[K{segment.text}" if self.redraw else segment.text, flush=True)
            self.shown = ""
        self.segments = len(result.segments)


def file_packets(options: argparse.Namespace) -> tuple[int, Iterator[np.ndarray]]:
    """Rate and packets of a file."""
    rate = audio.info(options.file).sample_rate
    return rate, (block for block, _ in audio.blocks(options.file, options.packet_ms / 1000))


def stdin_packets(options: argparse.Namespace) -> tuple[int, Iterator[np.ndarray]]:
    """Rate and packets of raw 16-bit samples; a byte left over at the end is dropped."""
    rate = options.sample_rate

    def packets() -> Iterator[np.ndarray]:
        size = max(1, rate * options.packet_ms // 1000) * 2
        while data := sys.stdin.buffer.read(size):
            yield np.frombuffer(data[: len(data) // 2 * 2], dtype="<i2").astype(np.int16)

    return rate, packets()


if __name__ == "__main__":
    sys.exit(main())

"""Stream a file, the microphone or raw samples: python -m asrkit.stream --model MODEL --mic"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from asrkit import audio
from asrkit.audio.devices import input_devices, table
from asrkit.audio.microphone import Microphone
from asrkit.audio.recording import check_recording, recording
from asrkit.audio.watch import Watch
from asrkit.cli import (
    add_backend,
    add_context,
    add_model,
    add_search,
    add_segments,
    load_recognizer,
    parser,
    run_command,
)
from asrkit.errors import UserError
from asrkit.interrupt import until_interrupted
from asrkit.runtime import Recognizer
from asrkit.screen import Screen

ENDPOINT_MS = "1000"  # lines come as they are said


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit stream", __doc__,
        "python -m asrkit.stream --model MODEL --file x.wav --simulate-realtime\n"
        "  python -m asrkit.stream --model MODEL --mic\n"
        "  ffmpeg -i x.mp4 -f s16le -ac 1 -ar 16000 - | python -m asrkit.stream --model MODEL -",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_backend(arguments)
    add_search(arguments)
    add_segments(arguments, endpoint=ENDPOINT_MS)
    arguments.add_argument("--file", help="an audio file")
    arguments.add_argument(
        "--mic", action="store_true", help="the microphone (pip install 'asrkit[mic]')"
    )
    arguments.add_argument(
        "stdin", nargs="?", choices=["-"], help="raw 16-bit mono PCM on standard input"
    )
    arguments.add_argument("--sample-rate", type=int, default=audio.SAMPLE_RATE, help="of -")
    arguments.add_argument(
        "--packet-ms", type=int, default=100, help="audio taken at once (default 100)"
    )
    arguments.add_argument(
        "--list-devices", action=ListDevices, nargs=0, help="show the microphones, and exit"
    )
    arguments.add_argument(
        "--mic-device", metavar="DEVICE", help="number or (part of the) name of the microphone"
    )
    arguments.add_argument(
        "--no-meter", action="store_true", help="do not show how loud the microphone is"
    )
    arguments.add_argument(
        "--save-audio", metavar="FILE", help="keep what was heard in a new .wav or .flac file"
    )
    arguments.add_argument(
        "--simulate-realtime", action="store_true", help="take a file at the speed it was spoken"
    )
    arguments.add_argument(
        "--partials", action="store_true", help="every partial result on a line of its own"
    )
    return run_command(stream, arguments, argv)


def stream(options: argparse.Namespace) -> int:
    if [options.file is not None, options.mic, options.stdin is not None].count(True) != 1:
        raise UserError("needs one source: --file FILE, --mic, or - for standard input")
    if options.packet_ms < 1:
        raise UserError(f"--packet-ms must be 1 or more, got {options.packet_ms}")
    if options.save_audio:
        check_recording(options.save_audio)
    recognizer, _ = load_recognizer(options)
    with Screen(options.partials) as screen:
        return listen(options, recognizer, screen)


def listen(options: argparse.Namespace, recognizer: Recognizer, screen: Screen) -> int:
    """From the source to the screen."""
    microphone = None
    with ExitStack() as stack:
        packets: Iterable[np.ndarray]
        if options.mic:
            microphone = stack.enter_context(Microphone(options.mic_device, options.packet_ms))
            rate = microphone.sample_rate
            packets = watched(microphone, screen, not options.no_meter)
        else:
            rate, packets = file_packets(options) if options.file else stdin_packets(options)
            if options.simulate_realtime:
                packets = paced(packets, rate)
        write = None
        if options.save_audio:
            write = stack.enter_context(recording(options.save_audio, rate))
        session = recognizer.start(rate)

        def hear(packet: np.ndarray) -> None:
            samples = audio.mono(packet)
            if write:
                write(samples)
            screen.partial(session.accept(samples))

        try:
            until_interrupted(packets, hear, microphone.stop if microphone else None)
        except UserError:
            screen.final(session.finish())
            raise
    screen.final(session.finish())
    return farewell(microphone) if microphone else 0


def watched(microphone: Microphone, screen: Screen, with_meter: bool) -> Iterator[np.ndarray]:
    """The packets of a microphone, while the screen tells how it goes."""
    screen.note(f"listening to {microphone.name!r}; Ctrl-C ends")
    watch = Watch(microphone)
    for packet in microphone:
        for text in watch(packet):
            screen.note(text)
        if with_meter:
            screen.meter(watch.level, microphone.waiting)
        yield packet


def farewell(microphone: Microphone) -> int:
    """What the user has to know in the end; the exit status."""
    if microphone.lost:
        print(
            f"{microphone.lost:.2f} s of audio were lost: decoding was slower than speech",
            file=sys.stderr,
        )
    if microphone.dropped:
        print(
            f"{microphone.dropped:.2f} s of audio, or more, were lost by the device or the system",
            file=sys.stderr,
        )
    if microphone.gone:
        print(f"the microphone {microphone.name!r} went away", file=sys.stderr)
    return 1 if microphone.gone else 0


class ListDevices(argparse.Action):
    """As --help: prints the microphones and exits, whatever else is asked for."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            print(table(input_devices()))
        except UserError as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
        parser.exit()


def paced(packets: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """Each packet when its last sample would have been spoken."""
    start, seconds = time.monotonic(), 0.0
    for packet in packets:
        seconds += len(packet) / rate
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        yield packet


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

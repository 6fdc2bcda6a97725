"""Stream a file, the microphone or raw samples: asrkit stream --model MODEL --mic"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from asrkit.cli.interrupt import until_interrupted
from asrkit.cli.options import add_model, add_recognizer, refuse
from asrkit.cli.parser import Parser
from asrkit.cli.source import add_source
from asrkit.errors import UserError, shown

if TYPE_CHECKING:
    import numpy as np

    from asrkit.audio.microphone import Microphone
    from asrkit.cli.terminal import Screen
    from asrkit.runtime import Recognizer, Result


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit stream", __doc__,
        "asrkit stream --model MODEL x.wav --simulate-realtime\n"
        "  asrkit stream --model MODEL --mic\n"
        "  asrkit stream --model MODEL x.wav --format jsonl\n"
        "  ffmpeg -i x.mp4 -f s16le -ac 1 -ar 16000 - | asrkit stream --model MODEL -",
        "--model MODEL [options] FILE | --mic | -",
    )  # fmt: skip
    add_model(arguments)
    add_recognizer(arguments, live=True)
    add_source(arguments)
    return arguments.run(stream, argv)


PACKET_MS = 100


def stream(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import load_recognizer

    check_source(options)
    screen = screen_of(options)
    recognizer = load_recognizer(options)
    with screen:
        return run(options, partial(Channels, recognizer), screen)


class Channels:
    """A session for each channel of a source."""

    def __init__(self, recognizer: Recognizer, sample_rate: int, channels: int) -> None:
        self.sessions = [recognizer.start(sample_rate) for _ in range(channels)]

    @property
    def results(self) -> list[Result]:
        return [session.result for session in self.sessions]

    def accept(self, samples: np.ndarray) -> None:
        """Append samples (n,) of one channel, or (n, channels)."""
        own = samples.reshape(len(samples), len(self.sessions)).T
        for session, channel in zip(self.sessions, own, strict=True):
            session.accept(channel)

    def finish(self) -> None:
        for session in self.sessions:
            session.finish()


def screen_of(options: argparse.Namespace) -> Screen:
    """Return the screen that prints results as the options describe."""
    from asrkit.cli.terminal import JsonLines, Screen

    return JsonLines() if options.format == "jsonl" else Screen()


def check_source(options: argparse.Namespace) -> None:
    """Raise UserError unless there is one source, and a name for its copy."""
    from asrkit.audio.recorder import check_recording

    if len(options.source) + options.mic != 1:
        raise UserError(
            "needs one source: FILE, --mic, or - for standard input, got "
            f"{len(options.source) + options.mic} (asrkit decode takes several files)"
        )
    if options.mic:
        refuse(options, "with --mic", "simulate_realtime", "sample_rate", "channel", "track")
    else:
        refuse(options, "without --mic", "mic_device")
    if options.source == ["-"]:
        refuse(options, "without a file", "track", *["channel"] * (options.channel != "split"))
    if options.save_audio:
        check_recording(options.save_audio)


class Live(Protocol):
    """The sessions of a source's channels, in this process or on a server."""

    @property
    def results(self) -> Sequence[Result]: ...
    def accept(self, samples: np.ndarray) -> object: ...
    def finish(self) -> object: ...


def run(options: argparse.Namespace, start: Callable[[int, int], Live], screen: Screen) -> int:
    """Show the text of the source on the screen; return the exit status."""
    from asrkit import audio
    from asrkit.audio.microphone import Microphone
    from asrkit.audio.recorder import recording
    from asrkit.audio.samples import apart, channel_name
    from asrkit.runtime.words import far_from_model, sureness

    split = options.channel == "split"
    microphone = None
    with ExitStack() as stack:
        packets: Iterable[np.ndarray]
        if options.mic:
            microphone = stack.enter_context(Microphone(options.mic_device, PACKET_MS))
            rate, channels = microphone.sample_rate, 1
            packets = watched(microphone, screen)
        else:
            rate, channels, packets = file_packets(options)
            if options.simulate_realtime:
                packets = paced(packets, rate)
        if options.sample_rate not in (None, rate):
            raise UserError(
                f"--sample-rate is for raw samples on standard input, got {options.sample_rate} for"
                f" a source of {rate} Hz: leave it out"
            )
        if split:
            screen.speakers = [*map(channel_name, range(channels))]
        write = None
        if options.save_audio:
            write = stack.enter_context(recording(options.save_audio, rate, channels))
        session = start(rate, channels)

        def accept(packet: np.ndarray) -> None:
            samples = apart(packet) if split else audio.mono(packet)
            if write:
                write(samples)
            session.accept(samples)
            screen.partial(session.results)

        try:
            until_interrupted(packets, accept, microphone.stop if microphone else None)
        except UserError:
            with suppress(RuntimeError):  # if the session itself failed
                session.finish()
                screen.final(session.results)
            raise
    session.finish()
    screen.final(session.results)
    if line := far_from_model([sureness(result.words) for result in session.results]):
        print(line, file=sys.stderr)
    return report_losses(microphone) if microphone else 0


def watched(microphone: Microphone, screen: Screen) -> Iterator[np.ndarray]:
    """Yield the packets of a microphone; show its level and problems on the screen."""
    from asrkit.cli.microphone_monitor import Watch

    screen.note(f"listening to {microphone.name!r}; Ctrl-C ends")
    watch = Watch(microphone)
    for packet in microphone:
        for text in watch(packet):
            screen.note(text)
        screen.meter(watch.level(), microphone.waiting)
        yield packet


def report_losses(microphone: Microphone) -> int:
    """Print how much audio was lost, and whether the device was; return the exit status."""
    if microphone.lost:
        print(
            f"{microphone.lost:.2f} s of audio or more were lost: decoding, the device or the "
            "system was too slow",
            file=sys.stderr,
        )
    if microphone.gone:
        print(f"the microphone {microphone.name!r} was disconnected", file=sys.stderr)
    return 1 if microphone.gone else 0


def paced(packets: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """Yield each packet after the time of its last sample, at the speed of a live source."""
    start, seconds = time.monotonic(), 0.0
    for packet in packets:
        seconds += len(packet) / rate
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        yield packet


def file_packets(options: argparse.Namespace) -> tuple[int, int, Iterator[np.ndarray]]:
    """Return rate, channels to recognise, and packets of a file, or of standard input."""
    from asrkit import audio
    from asrkit.audio.pcm_pipe import piped

    (source,) = options.source
    found: Iterator[tuple[np.ndarray, int]]
    if source == "-":
        name = "standard input"
        rate, blocks = piped(sys.stdin.buffer, PACKET_MS, options.sample_rate)
        found = ((block, rate) for block in blocks)
    else:
        name, seconds = shown(Path(source)), PACKET_MS / 1000
        chosen = {"channel": options.channel, "track": options.track}
        found = audio.blocks(source, seconds, **chosen)
    first = next(found, None)
    if first is None:
        raise UserError(f"{name} has no samples")
    packets = (block for block, _ in chain([first], found))
    return first[1], first[0].shape[1] if options.channel == "split" else 1, packets

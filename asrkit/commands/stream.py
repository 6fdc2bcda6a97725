"""Stream a file, the microphone or raw samples: asrkit stream --model MODEL --mic"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from asrkit import audio
from asrkit.audio.microphone import Microphone
from asrkit.audio.pcm_pipe import piped
from asrkit.audio.recorder import check_recording, recording
from asrkit.cli.interrupt import until_interrupted
from asrkit.cli.microphone_monitor import Watch
from asrkit.cli.recognizer import load_recognizer
from asrkit.cli.terminal import JsonLines, Screen
from asrkit.errors import UserError, shown
from asrkit.runtime import Result


def stream(options: argparse.Namespace) -> int:
    check_source(options)
    screen = screen_of(options)
    recognizer, _ = load_recognizer(options)
    with screen:
        return run(options, recognizer.start, screen)


def screen_of(options: argparse.Namespace) -> Screen:
    """The screen that prints results as the options ask for.

    Raises:
        UserError: for an option that has no effect.
    """
    if options.partials and options.format == "jsonl":
        raise UserError(
            "--partials has no effect with --format jsonl, which has every partial result: leave "
            "one of them out"
        )
    return JsonLines() if options.format == "jsonl" else Screen(options.partials)


def check_source(options: argparse.Namespace) -> None:
    """Raises UserError unless there is one source, and a name for its copy."""
    options.source += [options.file] * (options.file is not None)
    if len(options.source) + options.mic != 1:
        raise UserError(
            "needs one source: FILE, --mic, or - for standard input, got "
            f"{len(options.source) + options.mic} (asrkit decode takes several files)"
        )
    if not options.mic and (options.mic_device is not None or options.no_meter):
        raise UserError("--mic-device and --no-meter need --mic")
    live = options.mic or options.source == ["-"]
    if live and (options.channel is not None or options.track is not None):
        raise UserError("--channel and --track are for files")
    if options.mic and options.simulate_realtime:
        raise UserError("--simulate-realtime is for a file: the microphone is as fast as speech")
    if options.save_audio:
        check_recording(options.save_audio)


class Live(Protocol):
    """A session of a recogniser here or elsewhere."""

    def accept(self, samples: np.ndarray) -> Result: ...
    def finish(self) -> Result: ...


def run(options: argparse.Namespace, start: Callable[[int], Live], screen: Screen) -> int:
    """Show what is recognised in the source on the screen; returns the exit status.

    Args:
        options: of `add_source`.
        start: makes the session, for a sample rate.
        screen: shows its results.
    """
    microphone = None
    with ExitStack() as stack:
        packets: Iterable[np.ndarray]
        if options.mic:
            microphone = stack.enter_context(Microphone(options.mic_device, options.packet_ms))
            rate = microphone.sample_rate
            packets = watched(microphone, screen, not options.no_meter)
        else:
            rate, packets = file_packets(options)
            if options.simulate_realtime:
                packets = paced(packets, rate)
        if options.sample_rate not in (None, rate):
            raise UserError(
                f"--sample-rate {options.sample_rate} is not the {rate} Hz of the source, which "
                "needs none: it is for raw samples on standard input"
            )
        write = None
        if options.save_audio:
            write = stack.enter_context(recording(options.save_audio, rate))
        session = start(rate)

        def accept(packet: np.ndarray) -> None:
            samples = audio.mono(packet)
            if write:
                write(samples)
            screen.partial(session.accept(samples))

        try:
            until_interrupted(packets, accept, microphone.stop if microphone else None)
        except UserError:
            with suppress(RuntimeError):  # if the error was the session's own
                screen.final(session.finish())
            raise
    screen.final(session.finish())
    return report_losses(microphone) if microphone else 0


def watched(microphone: Microphone, screen: Screen, with_meter: bool) -> Iterator[np.ndarray]:
    """The packets of a microphone, whose level and problems are shown on the screen."""
    screen.note(f"listening to {microphone.name!r}; Ctrl-C ends")
    watch = Watch(microphone)
    for packet in microphone:
        for text in watch(packet):
            screen.note(text)
        if with_meter:
            screen.meter(watch.level, microphone.waiting)
        yield packet


def report_losses(microphone: Microphone) -> int:
    """Print how much audio was lost, and whether the device was; returns the exit status."""
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
        print(f"the microphone {microphone.name!r} was disconnected", file=sys.stderr)
    return 1 if microphone.gone else 0


def paced(packets: Iterable[np.ndarray], rate: int) -> Iterator[np.ndarray]:
    """The packets, each after its last sample's time: at the speed of a live source."""
    start, seconds = time.monotonic(), 0.0
    for packet in packets:
        seconds += len(packet) / rate
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        yield packet


def file_packets(options: argparse.Namespace) -> tuple[int, Iterator[np.ndarray]]:
    """Rate and packets of a file, or of standard input."""
    (source,) = options.source
    if source == "-":
        return piped(sys.stdin.buffer, options.packet_ms, options.sample_rate)
    blocks = audio.mono_blocks(
        source, options.packet_ms / 1000, channel=options.channel, track=options.track
    )
    first = next(blocks, None)
    if first is None:
        raise UserError(f"{shown(Path(source))} has no samples")
    return first[1], (block for block, _ in chain([first], blocks))

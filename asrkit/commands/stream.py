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
    recognizer = load_recognizer(options)
    with screen:
        return run(options, recognizer.start, screen)


def screen_of(options: argparse.Namespace) -> Screen:
    """Return the screen that prints results as the options describe.

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
    """Raise UserError unless there is one source, and a name for its copy."""
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
        raise UserError("--channel and --track need a file")
    if options.mic and options.simulate_realtime:
        raise UserError("--simulate-realtime needs a file: a microphone is in real time")
    if options.save_audio:
        check_recording(options.save_audio)


class Live(Protocol):
    """A session of a recogniser in this process or on a server."""

    def accept(self, samples: np.ndarray) -> Result: ...
    def finish(self) -> Result: ...


def run(options: argparse.Namespace, start: Callable[[int], Live], screen: Screen) -> int:
    """Show the text of the source on the screen; return the exit status.

    Args:
        options: options of `add_source`.
        start: makes the session for a sample rate.
        screen: screen for the session's results.
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
                f"--sample-rate {options.sample_rate} is not the {rate} Hz of the source: leave it "
                "out, as it is for raw samples on standard input"
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
            with suppress(RuntimeError):  # if the session itself failed
                screen.final(session.finish())
            raise
    screen.final(session.finish())
    return report_losses(microphone) if microphone else 0


def watched(microphone: Microphone, screen: Screen, with_meter: bool) -> Iterator[np.ndarray]:
    """Yield the packets of a microphone; show its level and problems on the screen."""
    screen.note(f"listening to {microphone.name!r}; Ctrl-C ends")
    watch = Watch(microphone)
    for packet in microphone:
        for text in watch(packet):
            screen.note(text)
        if with_meter:
            screen.meter(watch.level, microphone.waiting)
        yield packet


def report_losses(microphone: Microphone) -> int:
    """Print how much audio was lost, and whether the device was; return the exit status."""
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
    """Yield each packet after the time of its last sample, at the speed of a live source."""
    start, seconds = time.monotonic(), 0.0
    for packet in packets:
        seconds += len(packet) / rate
        time.sleep(max(0.0, start + seconds - time.monotonic()))
        yield packet


def file_packets(options: argparse.Namespace) -> tuple[int, Iterator[np.ndarray]]:
    """Return the rate and the packets of a file, or of standard input."""
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

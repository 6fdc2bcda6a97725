"""The process that decodes one upload: python -m asrkit.serve.upload_process MEMORY SECONDS STORAGE

A malicious file can crash or hang its reader, or exhaust memory. Uploads are therefore decoded in
this separate process, limited to MEMORY bytes, SECONDS of processor time and STORAGE bytes written
to a file. The process does not import torch, so that it starts fast. It reads two lines from
standard input: the path of a file, and SPLIT or an empty line. It writes frames to standard output:
a kind, the number of bytes, the bytes.
"""

import os
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

import numpy as np

from asrkit.audio.files import block_size, opened
from asrkit.audio.samples import AudioError, Mixer, apart

FRAME = struct.Struct("<cI")
HEADER, SAMPLES, WARNING, END, ERROR, NO_MEMORY = b"h", b"s", b"w", b"e", b"!", b"m"
# A header: sample rate in Hz, number of samples or UNKNOWN, number of channels.
FORMAT = struct.Struct("<IQI")
SPLIT = "split"  # keeps the channels apart
UNKNOWN = 2**64 - 1  # number of samples of a file whose header does not state it
DTYPE = np.dtype("<f4")  # values of interleaved channels
BLOCK_S = 5.0
LONG_S = 30.0  # audio of a long file, at least: hours of audio occupy a process for minutes
NICE, MORE_NICE = 5, 10  # `nice` of all such processes; what long files add to it


def main(memory: str, seconds: str, storage: str) -> None:
    """Write the frames of a file: header, samples and end, or an error."""
    lines = (os.fsdecode(sys.stdin.buffer.readline()).rstrip("\n") for _ in range(2))
    path, split = lines
    sink = sys.stdout.buffer
    if not path:  # the server has ended
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # complaints of decoders
    confine(int(memory), int(seconds), int(storage))
    try:
        write(path, sink, split == SPLIT)
    except AudioError as error:  # whose message names the file
        write_frame(sink, ERROR, str(error).replace(path, "the file").encode())
    except MemoryError:
        write_frame(sink, NO_MEMORY)


def yield_to_others(process: int, more: int) -> None:
    """Raise the `nice` of a process, so that other processes run first."""
    with suppress(AttributeError, OSError):  # not on Windows; or the process has ended
        before = os.getpriority(os.PRIO_PROCESS, process)
        os.setpriority(os.PRIO_PROCESS, process, before + more)


def confine(memory: int, seconds: int, storage: int) -> None:
    """Limit the resources of this process, except on Windows, which has no such limits."""
    try:
        import resource
    except ImportError:
        return
    for kind, limit in (
        ("RLIMIT_AS", memory), ("RLIMIT_CPU", seconds), ("RLIMIT_FSIZE", storage),
        ("RLIMIT_NOFILE", 32), ("RLIMIT_CORE", 0),
    ):  # fmt: skip
        with suppress(ValueError, OSError):  # a lower limit exists already, or no such limit
            # The hard limit has a second more: reaching it sends SIGKILL, like any other kill.
            resource.setrlimit(getattr(resource, kind), (limit, limit + (kind == "RLIMIT_CPU")))


def write(path: str, sink: BinaryIO, split: bool = False) -> None:
    """Write the frames of a file, whose channels are mixed or kept apart.

    Raises:
        AudioError: for a file that cannot be read.
    """
    with opened(path) as file:
        known = UNKNOWN if file.num_samples is None else file.num_samples
        channels = file.num_channels if split else 1
        write_frame(sink, HEADER, FORMAT.pack(file.sample_rate, known, channels))
        mixer = Mixer(file.name)
        for number, block in enumerate(file.blocks(block_size(file, BLOCK_S))):
            if number == LONG_S // BLOCK_S:
                yield_to_others(os.getpid(), MORE_NICE)
            samples = apart(block) if split else mixer(block)
            write_frame(sink, SAMPLES, samples.astype(DTYPE).tobytes())
        for problem in [*file.problems, *mixer.problems()]:
            write_frame(sink, WARNING, problem.replace(path, "the file").encode())
    write_frame(sink, END)


def write_frame(sink: BinaryIO, kind: bytes, data: bytes = b"") -> None:
    """Write a frame."""
    sink.write(FRAME.pack(kind, len(data)) + data)
    sink.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the server no longer reads
        main(*sys.argv[1:])

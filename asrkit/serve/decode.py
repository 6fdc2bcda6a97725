"""Decoding an upload in another process, which `uploads` starts and later uploads may use too.

A malicious file can crash or hang its reader, or exhaust memory.
"""

import os
import signal
import socket
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit.audio.files import block_size, opened
from asrkit.audio.samples import AudioError, apart
from asrkit.errors import UserError

# A header: sample rate in Hz, number of samples by the file's header or 0, number of channels.
HEADER = struct.Struct("<IQI")
GO = b"!"  # the server has accepted the key
DTYPE = np.dtype("<f4")  # values of interleaved channels
BLOCK_S = 5.0
NICE = 5  # live calls come first


class Job(NamedTuple):
    """A file to decode."""

    path: str
    split: bool  # whether the channels are kept apart
    port: int  # port of this machine that takes the header and the samples
    key: bytes  # first bytes for the port
    memory: int  # bytes that decoding may take
    seconds: float  # processor time that it may take


def decode(job: Job) -> list[str]:
    """Send a file's header and samples, and return a line for each part that was not read.

    Raises:
        UserError: for a file that cannot be read.
        TimeoutError: if it takes too long.
    """
    try:
        confine(job.memory, job.seconds)
        with connected(job) as sink:
            problems = send(job, sink)
    except AudioError as error:  # whose message names the file
        raise UserError(str(error).replace(job.path, "the file")) from None
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        return []  # the server no longer reads
    except SystemExit:  # of a library: anyio would raise it in the server
        os._exit(1)
    return ["the file " + each.replace(job.path, "the file") for each in problems]


def connected(job: Job) -> socket.socket:
    """Return a connection to the server, which has accepted the key."""
    sink = socket.create_connection(("127.0.0.1", job.port))
    sink.sendall(job.key)
    sink.recv(len(GO))
    return sink


def send(job: Job, sink: socket.socket) -> list[str]:
    with opened(job.path) as file:
        channels = file.num_channels if job.split else 1
        sink.sendall(HEADER.pack(file.sample_rate, file.num_samples or 0, channels))
        for block in file.blocks(block_size(file, BLOCK_S)):
            samples = apart(block) if job.split else file.mean(block)
            sink.sendall(samples.astype(DTYPE).tobytes())
        return file.problems


def confine(memory: int, seconds: float) -> None:
    """Limit what this process may use from now on, except on Windows, which has no such limits."""
    try:
        import resource
    except ImportError:
        return
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    signal.signal(signal.SIGXCPU, too_long)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        "RLIMIT_AS": size() + memory, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 64, "RLIMIT_CORE": 0,
        "RLIMIT_CPU": round(used.ru_utime + used.ru_stime + seconds + 0.5),
    }  # fmt: skip
    for kind, limit in limits.items():
        with suppress(ValueError, OSError):  # a lower limit exists already, or no such limit
            number = getattr(resource, kind)
            resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))


@cache
def size() -> int:
    """Bytes of this process's address space at its first file; 0 if the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def too_long(number: int, frame: object) -> None:
    raise TimeoutError("processor time")

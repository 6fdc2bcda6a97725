"""Decoders of uploads that misbehave, for processes that import nothing slow."""

import os
import socket
import time

import numpy as np

from asrkit.errors import UserError
from asrkit.serve.decode import HEADER, Job, confine, connected

GOOD = HEADER.pack(16000, 8000, 1)


def send(job: Job, *parts: bytes) -> list[str]:
    with connected(job) as sink:
        sink.sendall(b"".join(parts))
    return []


def compute(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    while True:
        sum(range(1000))


def hang(job: Job) -> list[str]:
    with connected(job) as sink:
        sink.sendall(GOOD)
        time.sleep(60)
    return []


def wait_for_release(job: Job) -> list[str]:
    """Wait until a file exists, whose path is in the environment."""
    with connected(job) as sink:
        sink.sendall(GOOD)
        while not os.path.exists(os.environ["TEST_RELEASE"]):
            time.sleep(0.01)
        sink.sendall(bytes(4 * 8000))
    return []


def connect_late(job: Job) -> list[str]:
    time.sleep(3)
    return send(job, GOOD)


def abort(job: Job) -> list[str]:
    os.abort()


def stop_within_a_sample(job: Job) -> list[str]:
    return send(job, GOOD, bytes(3))


def say_a_wrong_rate(job: Job) -> list[str]:
    return send(job, HEADER.pack(0, 8000, 1))


def meet_strangers(job: Job) -> list[str]:
    """Other programs connect: one leaves, one stays silent, and one comes later."""
    place = ("127.0.0.1", job.port)
    with socket.create_connection(place) as leaving:
        leaving.sendall(b"GET")
    with socket.create_connection(place, timeout=20) as silent:
        assert silent.recv(1) == b""
    with connected(job) as sink:
        try:
            socket.create_connection(place).close()
        except ConnectionRefusedError:
            sink.sendall(GOOD + bytes(4 * 8000))
    return []


def send_nan(job: Job) -> list[str]:
    return send(job, GOOD, np.float32([np.nan]).tobytes())


def write_escapes(job: Job) -> list[str]:
    raise UserError("\x1b[31mred")


def fill_memory(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    np.ones(2 * job.memory, np.uint8)
    return []


def fill_half_of_the_memory(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    np.ones(job.memory // 2, np.uint8)
    return send(job, GOOD, bytes(4 * 8000))


def open_files(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    try:
        files = [open("/dev/null") for _ in range(100)]  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{error.strerror}") from None
    for each in files:
        each.close()
    return []


def write_a_file(job: Job) -> list[str]:
    confine(job.memory, job.seconds)
    try:
        with open(f"/tmp/{job.port}", "wb", 0) as file:
            os.unlink(file.name)
            file.write(bytes(999))
    except OSError as error:
        raise UserError(f"{error.strerror}") from None
    return []

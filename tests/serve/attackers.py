"""Attack a server behind a proxy from another address: python attackers.py NUMBER PORT TOKEN

The process ends with its standard input. It prints the number of requests that were answered with
503.
"""

import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from websockets.sync.client import connect

ADDRESS = "127.0.0.2"
THREADS = 4  # of each attack
IDLE, SLOW = 100, 10  # connections of a thread


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10, source_address=(ADDRESS, 0))


def untrusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def stay_silent(port: int) -> None:
    sockets = []
    while True:
        with suppress(OSError):
            sockets = [*sockets[-IDLE:], opened(port)]
        time.sleep(0.02)


def send_slowly(port: int) -> None:
    """Requests of which a byte comes now and then."""
    context, sockets = untrusting(), list[socket.socket]()
    while True:
        with suppress(OSError):
            if len(sockets) < SLOW:
                sockets.append(context.wrap_socket(opened(port), server_hostname="x"))
                sockets[-1].sendall(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\n")
        for each in list(sockets):
            try:
                each.sendall(b"a")
            except OSError:
                sockets.remove(each)
        time.sleep(0.2)


def ask_often(port: int, answers: list[int]) -> None:
    transport = httpx.HTTPTransport(local_address=ADDRESS, verify=untrusting())
    with httpx.Client(transport=transport, base_url=f"https://127.0.0.1:{port}") as client:
        while True:
            with suppress(httpx.HTTPError):
                answers.append(client.get("/healthz").status_code)


def flood_calls(port: int, token: str) -> None:
    """Calls that send small messages as fast as they are taken, and read nothing."""
    while True:
        with suppress(Exception):
            url = f"wss://127.0.0.1:{port}/v1/stream?token={token}"
            with connect(url, ssl=untrusting(), sock=opened(port), max_queue=1) as client:
                client.send(json.dumps({"type": "start"}))
                while True:
                    client.send(b"\0\0")
                    client.ping()
        time.sleep(0.1)


def main() -> None:
    os.nice(10)  # else it would measure who has the processor
    number, port, token, answers = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], list[int]()
    attacks: list[tuple[Callable[..., None], Any]] = [
        (stay_silent, ()), (send_slowly, ()), (ask_often, (answers,)), (flood_calls, (token,)),
    ]  # fmt: skip
    attack, more = attacks[number]
    for _ in range(THREADS):
        threading.Thread(target=attack, args=(port, *more), daemon=True).start()
    print("attacking", flush=True)
    sys.stdin.read()
    print(answers.count(503), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

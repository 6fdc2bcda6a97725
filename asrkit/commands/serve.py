"""Serve a model to many callers: asrkit serve --model MODEL --port 8000"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import socket
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from asrkit import hub
from asrkit.cli.options import MODEL, add_device, add_recognizer, given_token
from asrkit.cli.parser import Parser, complain, real, whole
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from asrkit.runtime import Recognizer
    from asrkit.serve.processes import Neighbours
    from asrkit.serve.server import Server
    from asrkit.serve.store import Store

LOGS = ("off", "text", "json")


def main(argv: list[str] | None = None) -> int:
    return arguments_of().run(serve, argv)


def arguments_of() -> Parser:
    """Return the parser of the options."""
    arguments = Parser(
        "asrkit serve", __doc__,
        "asrkit serve --model MODEL\n"
        "  asrkit serve --model en=MODEL --model de=MODEL\n"
        "  asrkit serve --model MODEL --workers 4\n"
        "  asrkit serve --model MODEL --host 0.0.0.0 --token-file /etc/asrkit.token\n"
        "  curl -F file=@x.wav http://127.0.0.1:8000/v1/audio/transcriptions",
        "[--model MODEL] [options]",
    )  # fmt: skip
    add_models(arguments)
    add_recognizer(arguments, live=True)
    add_network(arguments)
    add_limits(arguments)
    arguments.add_argument(
        "--log", choices=LOGS, default="off",
        help="log calls and requests to standard error, without their texts (default off: log "
        "problems only)",
    )  # fmt: skip
    add_restarts(arguments)
    return arguments


def add_models(arguments: Parser) -> None:
    group = arguments.group("model")
    group.add_argument(
        "--model", action="append", metavar="[NAME=]MODEL",
        help=f"{MODEL}; NAME is the name that clients ask for; may be repeated (default "
        "small-en-alnum)",
    )  # fmt: skip
    group.add_argument(
        "--alias", action="append", default=[], metavar="NAME=MODEL",
        help="further name of a served model, for clients that always ask for this one, such as "
        "whisper-1=small-en-alnum; may be repeated",
    )  # fmt: skip
    add_device(arguments)


def add_network(arguments: Parser) -> None:
    """Add the options of addresses, of access and of encryption."""
    group = arguments.group("network")
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    group.add_argument(
        "--port", type=whole(0, 65535), default=8000, help="port; 0: any free one (default 8000)"
    )
    group.add_argument(
        "--wyoming", type=whole(0, 65535), metavar="PORT",
        help="serve Home Assistant's protocol, which has no token, on this port too (usually "
        "10300)",
    )  # fmt: skip
    group.add_argument(
        "--token", help="token that clients have to send; other users of the machine see it"
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds the token")
    group.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines reach without a token",
    )
    group.add_argument(
        "--origin", action="append", default=[], metavar="URL",
        help="other site whose pages may connect, such as https://example.org, or '*' for all; may "
        "be repeated",
    )  # fmt: skip
    group.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="host name of this server, needed without a token; IP addresses and localhost are "
        "always allowed; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--trust-proxy", action="append", default=[], metavar="ADDRESS",
        help="address or network of a proxy in front, whose X-Forwarded-For names the client; "
        "may be repeated",
    )  # fmt: skip
    group.add_argument("--tls-cert", metavar="FILE", help="certificate, in PEM")
    group.add_argument("--tls-key", metavar="FILE", help="key of the certificate, in PEM")


def add_limits(arguments: Parser) -> None:
    group = arguments.group("limits")
    group.add_argument(
        "--threads",
        type=whole(1, 256),
        default=1,
        help="threads that run the network (default 1)",
    )
    group.add_argument(
        "--workers", type=whole(1, 256), default=1, metavar="N",
        help="processes that share the port, on Linux; SIGHUP replaces them one by one (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--streams", type=whole(1, 100_000),
        help="most concurrent calls (default: measured at the start)",
    )  # fmt: skip
    group.add_argument(
        "--upload-mb", type=whole(1, 100_000), default=200, help="largest upload, MB (default 200)"
    )
    group.add_argument(
        "--call-minutes",
        type=whole(1, 100_000),
        default=240,
        help="longest call, minutes (default 240)",
    )


def add_restarts(arguments: Parser) -> None:
    """Add the options of calls that outlive the process."""
    group = arguments.group("restarts")
    group.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="save calls to a file in this folder: they outlive the process, and other processes "
        "on this machine can resume them",
    )  # fmt: skip
    group.add_argument(
        "--redis",
        metavar="URL",
        help="save calls to Redis, for several machines: redis://host:6379/0",
    )
    group.add_argument(
        "--save-seconds", type=real(0.1, 30.0), metavar="S",
        help="seconds between two saves of a call; after a crash clients send that audio again "
        "(default 5)",
    )  # fmt: skip
    group.add_argument(
        "--state-key-file", type=Path, metavar="FILE",
        help="file with the key that authenticates saved calls, 16 bytes or more (default: one in "
        "the file in DIR)",
    )  # fmt: skip


DEFAULT = "small-en-alnum"
CALLS = "calls.sqlite"  # file in --state-dir
ORIGIN = re.compile(  # as browsers write it, which leave out the own port of a scheme
    r"(?!http://[^/]*:80$|https://[^/]*:443$)[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+"
)
OF_ALL_SITES = "*", "null"  # any page can make a sandboxed frame, whose origin is null


class Ports(NamedTuple):
    """The sockets of a process."""

    web: socket.socket  # HTTP and WebSockets
    wyoming: socket.socket | None  # --wyoming


def serve(options: argparse.Namespace) -> int:
    need("starlette", "uvicorn", "websockets", "python_multipart", "prometheus_client")
    from asrkit.serve import logs
    from asrkit.serve.capacity import capacity
    from asrkit.serve.places import network_of
    from asrkit.serve.processes import refuse_elsewhere

    token = token_of(options)
    check_origins(options, token)
    options.trust_proxy = [*map(network_of, options.trust_proxy)]
    if options.tls_key is not None and options.tls_cert is None:
        raise UserError("--tls-key needs --tls-cert")
    if options.wyoming is not None:
        refuse_token(options, token)
    if options.workers > 1:
        refuse_elsewhere()
    set_threads()
    store_of(options)  # its errors come before models are loaded
    models = recognizers(options)
    aliases(options.alias, models)
    threads = options.threads * options.workers
    options.is_measured = options.streams is None
    options.streams = options.streams or min(capacity(m, threads) for m in models.values())
    ports = ports_of(options)
    logs.set_up(options.log)
    about = "; ".join(f"{name}, {model.context}" for name, model in models.items())
    if options.workers > 1:
        models.clear()  # the processes have their own
        return serve_together(options, about, ports)
    tell(options, about, ports[0])
    run(options, models, ports[0])
    return 0


def serve_together(options: argparse.Namespace, about: str, ports: list[Ports]) -> int:
    """Serve in several processes, with a store of calls and a folder for metrics in common."""
    from asrkit.serve.processes import METRICS_DIR, Processes

    with TemporaryDirectory(prefix="asrkit-serve-") as folder:
        os.environ[METRICS_DIR] = str(Path(folder) / "metrics")
        (Path(folder) / "metrics").mkdir()
        if options.state_dir is None and options.redis is None:
            options.state_dir = Path(folder) / "calls"
            store_of(options)  # one process makes the file
        processes = Processes(work, (options,), ports)
        return processes.run(lambda: tell(options, about, ports[0]))


def set_threads() -> None:
    import torch

    torch.set_num_threads(1)  # per step, also for ONNX Runtime: the workers share the cores
    # The event loop needs a worker's interpreter lock after each packet, and waited 5 ms for it.
    sys.setswitchinterval(0.0005)


def work(
    options: argparse.Namespace, ports: Ports, neighbours: Neighbours, ready: Connection
) -> None:
    """Serve in one of several processes."""
    from asrkit.serve import logs
    from asrkit.serve.processes import announced

    set_threads()
    logs.set_up(options.log)
    try:
        run(options, recognizers(options), ports, neighbours, announced(ready))
    except UserError as error:
        complain("asrkit serve", error)
        raise SystemExit(2) from None


def run(
    options: argparse.Namespace,
    models: dict[str, Recognizer],
    ports: Ports,
    neighbours: Neighbours | None = None,
    *beside: AbstractAsyncContextManager[None],
) -> None:
    """Serve until a signal ends this process.

    Args:
        beside: context managers of the application, see `app_of`.
    """
    import gc

    import uvicorn

    from asrkit.serve.app import app_of
    from asrkit.serve.connections import config_of, gate_of
    from asrkit.serve.protocols.wyoming import wyoming

    server = server_of(options, models, neighbours)
    gate = gate_of(server)
    others = [] if ports.wyoming is None else [wyoming(server, gate, ports.wyoming)]
    config = config_of(
        app_of(server, *others, *beside), server, options.host, options.port, gate,
        ssl_certfile=options.tls_cert, ssl_keyfile=options.tls_key, timeout_graceful_shutdown=5,
    )  # fmt: skip
    gc.collect()
    gc.freeze()  # else collections search the libraries, and a call that is charged for one stalls
    uvicorn.Server(config).run(sockets=[ports.web])


def server_of(
    options: argparse.Namespace,
    models: dict[str, Recognizer],
    neighbours: Neighbours | None = None,
) -> Server:
    """Return the server that the options describe; see `run`."""
    from asrkit.serve.server import Limits, Server

    store, key = store_of(options)
    limits = Limits(
        streams=options.streams, upload_mb=options.upload_mb, call_s=60.0 * options.call_minutes,
        save_s=options.save_seconds or Limits().save_s,
    )  # fmt: skip
    return Server(
        models | aliases(options.alias, models), limits, options.threads, token_of(options),
        tuple(options.origin), tuple(options.allow_host), store, key,
        options.trust_proxy, neighbours,
    )  # fmt: skip


def tell(options: argparse.Namespace, about: str, ports: Ports) -> None:
    """Print or log what is served, how many calls, and where."""
    from asrkit.serve import logs

    addresses = {"address": f"{'https' if options.tls_cert else 'http'}://{place_of(ports.web)}/"}
    if ports.wyoming is not None:
        addresses["wyoming"] = f"tcp://{place_of(ports.wyoming)}"
    if options.log == "json":
        logs.log("serving", models=about, calls=options.streams, **addresses)
    else:
        how = " (measured; --streams N sets another number)" if options.is_measured else ""
        where = " and ".join(addresses.values())
        print(f"{about}, {options.streams} calls{how}: {where}", file=sys.stderr, flush=True)


def recognizers(options: argparse.Namespace) -> dict[str, Recognizer]:
    """Return the recognisers that the options describe, by the names of their models."""
    from asrkit.cli.recognizer import load_recognizer

    found: dict[str, Recognizer] = {}
    for text in options.model or [DEFAULT]:
        name, _, path = text.partition("=")
        if not path or Path(name).name != name:  # a file's path, which may contain "="
            name, path = name_of(text), text
        if name in found:
            raise UserError(f"two models have the name {shown(name)}: write --model OTHER={path}")
        one = argparse.Namespace(**vars(options) | {"model": path})
        found[name] = load_recognizer(one)
    return found


def aliases(given: list[str], models: dict[str, Recognizer]) -> dict[str, Recognizer]:
    """Return the recognisers by the further names of --alias."""
    found: dict[str, Recognizer] = {}
    for text in given:
        name, _, model = text.partition("=")
        if not name or model not in models:
            known = ", ".join(models)
            raise UserError(
                f"--alias must be NAME=MODEL with a served model of {known}, got {shown(text)}"
            )
        if name in models or name in found:
            raise UserError(f"--alias {shown(text)}: the name is taken already")
        found[name] = models[model]
    return found


def name_of(model: str) -> str:
    """Return the name for clients of a model without a name."""
    from asrkit.catalogue import entry_of, with_prompt

    text, _ = with_prompt(model)
    if text.startswith(hub.PREFIX):
        return hub.address_of(text).repository.partition("/")[2]
    return text if entry_of(text) else Path(model).stem


def store_of(options: argparse.Namespace) -> tuple[Store | None, bytes | None]:
    """Return the store for calls, if not the process, and the key that authenticates them."""
    from asrkit.serve.server import Limits
    from asrkit.serve.store import RedisStore, SqliteStore

    seconds = Limits().resume_s
    folder, url, path = options.state_dir, options.redis, options.state_key_file
    if folder is not None and url is not None:
        raise UserError("--state-dir and --redis exclude each other: leave one out")
    if url is not None and path is None:
        raise UserError("--redis needs --state-key-file, with a secret that other users lack")
    if folder is None and url is None:
        has_none = options.workers == 1  # several processes have a folder of their own later
        if has_none and (path is not None or options.save_seconds is not None):
            raise UserError("--save-seconds and --state-key-file need --state-dir or --redis")
        return None, None
    store: Store = RedisStore(url, seconds) if url else SqliteStore(folder / CALLS, seconds)
    if isinstance(store, SqliteStore) and path is None:
        return store, store.key()
    key = path.read_bytes()
    if not 16 <= len(key) <= 4096:
        raise UserError(f"{shown(path)} must be a key of 16 to 4096 bytes, got {len(key)}")
    return store, key


def token_of(options: argparse.Namespace) -> str | None:
    """Return the token that clients have to send."""
    token = given_token(options)
    if token is None and not options.insecure and not is_loopback(options.host):
        raise UserError(
            f"--host {shown(options.host)} can be reached from elsewhere: give --token-file, or "
            "--insecure if everybody who can reach it may use it"
        )
    return token


def check_origins(options: argparse.Namespace, token: str | None) -> None:
    """Raise UserError for an --origin that no browser sends, or that lets in every page."""
    for each in options.origin:
        if each not in OF_ALL_SITES and not ORIGIN.fullmatch(each):
            raise UserError(
                "--origin must be a scheme and a host in lower case without a path or the scheme's "
                f"own port, such as https://example.org, or '*' for all, got {shown(each)}"
            )
        if each in OF_ALL_SITES and token is None and not options.insecure:
            raise UserError(
                f"--origin '{each}' lets the pages of all sites use the server: give --token-file, "
                "or --insecure if they may"
            )


def refuse_token(options: argparse.Namespace, token: str | None) -> None:
    """Raise UserError for a --wyoming that would let in clients without the token."""
    if not options.insecure and (token is not None or not is_loopback(options.host)):
        raise UserError(
            "--wyoming has no token, as its clients send none: give --insecure if everybody who "
            f"can reach the port on {shown(options.host)} may use it"
        )


def ports_of(options: argparse.Namespace) -> list[Ports]:
    """Return the ports of each process, which all have the same addresses."""
    wyoming = None
    if options.wyoming is not None:
        wyoming = bound(options, "--wyoming", options.wyoming)
    web = bound(options, "--port", options.port)
    others = range(options.workers - 1)
    return [Ports(web, wyoming), *(Ports(again(web), wyoming and again(wyoming)) for _ in others)]


def bound(options: argparse.Namespace, option: str, port: int) -> socket.socket:
    """Return a socket that listens on an option's port; processes can share the port."""
    from asrkit.serve.connections import BACKLOG

    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    address, is_shared = (options.host, port), options.workers > 1
    try:
        if is_shared:  # not with another server: this fails if there is one
            socket.create_server(address, family=family).close()
        return socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=is_shared)
    except OSError as error:
        raise UserError(f"{option} {port}: {reason(error)}") from None


def again(port: socket.socket) -> socket.socket:
    """Return one more socket at the address of a shared socket."""
    from asrkit.serve.connections import BACKLOG

    return socket.create_server(
        port.getsockname(), family=port.family, backlog=BACKLOG, reuse_port=True
    )


def place_of(port: socket.socket) -> str:
    """Return host and port of a socket."""
    host, number = port.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{number}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

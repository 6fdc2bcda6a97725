"""Serve a model to many callers: asrkit serve --model MODEL --port 8000"""

from __future__ import annotations

import argparse
import gc
import ipaddress
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from asrkit import hub
from asrkit.cli.options import MODEL, add_device, add_recognizer, refuse, token_in
from asrkit.cli.parser import Parser, complain, real, typed, whole
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp
    from uvicorn.supervisors import Multiprocess

    from asrkit.runtime import Recognizer
    from asrkit.serve.server import Limits, Server
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
        help="log calls to standard error, without their texts (default off: log problems only)",
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
    add_device(arguments)


ORIGIN = re.compile(  # as browsers write it, which leave out the own port of a scheme
    r"(?!http://[^/]*:80$|https://[^/]*:443$)[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+|\*|null"
)
AN_ORIGIN = "a scheme and a host in lower case without the scheme's own port, or '*' for all"
OF_ALL_SITES = "*", "null"  # any page can make a sandboxed frame, whose origin is null
A_NETWORK = "an address or a network, such as 127.0.0.1 or 10.0.0.0/8"


def origin(text: str) -> str:
    if not ORIGIN.fullmatch(text):
        raise ValueError
    return text


def network(text: str) -> str:
    ipaddress.ip_network(text, strict=False)
    return text


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
        "--token-file", type=Path, metavar="FILE", help="file with the token of the clients"
    )
    group.add_argument(
        "--insecure",
        action="store_true",
        help="allow an address that other machines reach without a token",
    )
    group.add_argument(
        "--origin", type=typed(AN_ORIGIN, origin), action="append", default=[], metavar="URL",
        help="other site whose pages may connect, such as https://example.org, or '*' for all; may "
        "be repeated",
    )  # fmt: skip
    group.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="host name of this server, needed without a token; IP addresses and localhost are "
        "always allowed; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--trust-proxy", type=typed(A_NETWORK, network), action="append", default=[],
        metavar="ADDRESS",
        help="address or network of a proxy in front, whose X-Forwarded-For names the client; "
        "may be repeated",
    )  # fmt: skip


def add_limits(arguments: Parser) -> None:
    group = arguments.group("limits")
    group.add_argument(
        "--threads", type=whole(1, 256), default=1, help="threads that run the network (default 1)"
    )
    group.add_argument(
        "--workers", type=whole(1, 256), default=1, metavar="N",
        help="processes that share the port; SIGHUP replaces them one by one (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--streams", type=whole(1, 100_000), default=100,
        help="most concurrent calls of a process (default 100)",
    )  # fmt: skip
    group.add_argument(
        "--upload-mb", type=whole(1, 100_000), default=200, help="largest upload, MB (default 200)"
    )


def add_restarts(arguments: Parser) -> None:
    """Add the options of calls that outlive the process."""
    group = arguments.group("restarts")
    store = group.add_mutually_exclusive_group()
    store.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="save calls to a file in this folder: they outlive the process, and other processes "
        "on this machine can resume them",
    )  # fmt: skip
    store.add_argument(
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
        help="file with the key that authenticates the calls in Redis, 16 bytes or more",
    )  # fmt: skip


DEFAULT = "small-en-alnum"
BACKLOG = 2048  # connections that wait to be accepted, as uvicorn's
FAILED = 3  # exit status of a process that does not start; uvicorn's supervisor then ends
CALLS = "calls.sqlite"  # file in --state-dir


def serve(options: argparse.Namespace) -> int:
    need("starlette", "uvicorn", "websockets", "python_multipart", "prometheus_client")
    import uvicorn

    from asrkit.serve import logs
    from asrkit.serve.app import config_of

    check_access(options)
    store_of(options)  # its errors come before models are loaded
    models = recognizers(options)
    workers, wyoming = options.workers, None
    if options.wyoming is not None:
        wyoming = bound(options, "--wyoming", options.wyoming)
    web = bound(options, "--port", options.port)
    logs.set_up(options.log)
    about = "; ".join(f"{name}, {model.context}" for name, model in models.items())
    app: Any
    if workers > 1:
        models.clear()  # the processes have their own
        app = partial(application_of, options, wyoming)
    else:
        app = application_of(options, wyoming, models)
    config = config_of(
        app, limits_of(options), options.trust_proxy, factory=workers > 1, workers=workers,
        host=options.host, port=options.port, timeout_graceful_shutdown=5,
        timeout_worker_healthcheck=60,
    )  # fmt: skip
    print_addresses(options, about, web, wyoming)
    if workers > 1:
        return serve_together(options, config, web)
    uvicorn.Server(config).run(sockets=[web])
    return 0


def serve_together(options: argparse.Namespace, config: uvicorn.Config, web: socket.socket) -> int:
    """Serve in several processes, with a store of calls and a folder for metrics in common."""
    from uvicorn.supervisors import Multiprocess

    from asrkit.serve.metrics import METRICS_DIR

    logging.getLogger("uvicorn.error").setLevel(logging.INFO)  # of this process: ends and restarts
    with TemporaryDirectory(prefix="asrkit-serve-") as folder:
        os.environ[METRICS_DIR] = str(Path(folder) / "metrics")
        (Path(folder) / "metrics").mkdir()
        if options.state_dir is None and options.redis is None:
            options.state_dir = Path(folder) / "calls"
            store_of(options)  # one process makes the file
        processes = Multiprocess(config, [web])
        threading.Thread(target=note_ends, args=(processes,), daemon=True).start()
        processes.run()
    return 2 if any(each.exitcode == FAILED for each in processes.processes) else 0


def note_ends(processes: Multiprocess) -> None:
    """Close the pipes of processes that have ended: uvicorn would wait a minute for an answer."""
    while True:
        time.sleep(0.5)
        for each in processes.processes:
            if each.exitcode is not None:
                each.child_conn.close()


def application_of(
    options: argparse.Namespace,
    wyoming: socket.socket | None = None,
    models: dict[str, Recognizer] | None = None,
) -> ASGIApp:
    """Return the application that the options describe, in a process of its own if need be.

    Args:
        options: options of the command.
        wyoming: socket of --wyoming.
        models: models of this process; None: one of several processes loads them.
    """
    from asrkit.serve import logs
    from asrkit.serve.app import app_of
    from asrkit.serve.dialects.wyoming import wyoming as listening

    if models is None:
        threading.Thread(target=end_with_parent, daemon=True).start()
        logs.set_up(options.log)
        try:
            models = recognizers(options)
        except UserError as error:
            complain("asrkit serve", error)
            raise SystemExit(FAILED) from None
    server = server_of(options, models)
    app = app_of(server, *([] if wyoming is None else [listening(server, wyoming)]))
    gc.collect()
    gc.freeze()  # else collections search the libraries, which stalls all calls
    return app


def end_with_parent() -> None:
    """End this process like SIGTERM if the one that started it is killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def limits_of(options: argparse.Namespace) -> Limits:
    """Return the limits of a process."""
    from asrkit.serve.server import Limits

    return Limits(
        streams=options.streams, upload_mb=options.upload_mb,
        save_s=options.save_seconds or Limits().save_s,
    )  # fmt: skip


def server_of(options: argparse.Namespace, models: dict[str, Recognizer]) -> Server:
    """Return the server that the options describe."""
    from asrkit.serve.server import Server

    store, key = store_of(options)
    return Server(
        models, limits_of(options), options.threads, token_in(options.token_file),
        tuple(options.origin), tuple(options.allow_host), store, key,
    )  # fmt: skip


def print_addresses(
    options: argparse.Namespace, about: str, web: socket.socket, wyoming: socket.socket | None
) -> None:
    """Print or log what is served, how many calls, and where."""
    from asrkit.serve import logs

    addresses = {"address": f"http://{place_of(web)}/"}
    if wyoming is not None:
        addresses["wyoming"] = f"tcp://{place_of(wyoming)}"
    if options.log == "json":
        logs.log("serving", models=about, calls=options.streams, **addresses)
    else:
        processes = f"{options.workers} processes of " if options.workers > 1 else ""
        where = " and ".join(addresses.values())
        text = f"{about}, {processes}{options.streams} calls: {where}"
        print(text, file=sys.stderr, flush=True)
    if not is_loopback(options.host):
        logs.logger.warning("other machines reach %s: put a proxy in front", shown(options.host))


def recognizers(options: argparse.Namespace) -> dict[str, Recognizer]:
    """Return the recognisers that the options describe, by the names of their models."""
    from asrkit.cli.recognizer import load_recognizer

    # The event loop needs a worker's interpreter lock after each packet, and waited 5 ms for it.
    sys.setswitchinterval(0.0005)
    found: dict[str, Recognizer] = {}
    loaded: dict[str, Recognizer] = {}  # by path: several names of a model share its memory
    for text in options.model or [DEFAULT]:
        name, _, path = text.partition("=")
        if not path or Path(name).name != name:  # a file's path, which may contain "="
            name, path = name_of(text), text
        if name in found:
            raise UserError(f"two models have the name {shown(name)}: write --model OTHER={path}")
        if path not in loaded:
            one = argparse.Namespace(**vars(options) | {"model": path, "model_threads": 1})
            loaded[path] = load_recognizer(one)
        found[name] = loaded[path]
    return found


def name_of(model: str) -> str:
    """Return the name for clients of a model without a name."""
    from asrkit.hub.catalogue import entry_of

    if model.startswith(hub.PREFIX):
        return hub.address_of(model).repository.partition("/")[2]
    return model if entry_of(model) else Path(model).stem


def store_of(options: argparse.Namespace) -> tuple[Store | None, bytes]:
    """Return the store for calls, if not the process, and the key of calls in Redis."""
    from asrkit.serve.server import Limits
    from asrkit.serve.store import RedisStore, SqliteStore

    seconds = Limits().resume_s
    folder, url, path = options.state_dir, options.redis, options.state_key_file
    if (url is None) != (path is None):
        raise UserError(
            "--redis and --state-key-file, a secret that other users lack, belong together"
        )
    if url is not None:
        redis, key = RedisStore(url, seconds), path.read_bytes()
        if not 16 <= len(key) <= 4096:
            raise UserError(f"{shown(path)} must be a key of 16 to 4096 bytes, got {len(key)}")
        return redis, key
    if folder is not None:
        return SqliteStore(folder / CALLS, seconds), b""
    if options.workers == 1:  # several have a folder later
        refuse(options, "without --state-dir or --redis", "save_seconds")
    return None, b""


def check_access(options: argparse.Namespace) -> None:
    """Raise UserError for options that let in clients without a token, unless --insecure is one."""
    has_token = token_in(options.token_file) is not None
    elsewhere, sites = not is_loopback(options.host), set(OF_ALL_SITES).intersection(options.origin)
    for option, is_open in (
        (f"--host {shown(options.host)} lets in other machines", elsewhere and not has_token),
        (f"--origin '{min(sites, default='')}' lets in all pages", sites and not has_token),
        ("--wyoming lets in clients", options.wyoming is not None and (elsewhere or has_token)),
    ):
        if is_open and not options.insecure:
            raise UserError(
                f"{option} without a token: give --insecure if they may use the server, else "
                "--token-file, or leave it out"
            )


def bound(options: argparse.Namespace, option: str, port: int) -> socket.socket:
    """Return a socket that listens on an option's port, which processes can share."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UserError(f"{option} {port}: {reason(error)}") from None


def place_of(port: socket.socket) -> str:
    """Return host and port of a socket."""
    host, number = port.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{number}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

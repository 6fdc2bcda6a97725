"""Serve a model to many callers: asrkit serve --model MODEL --port 8000"""

import argparse
import ipaddress
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from asrkit import hub
from asrkit.cli.options import given_token
from asrkit.cli.recognizer import load_recognizer
from asrkit.errors import UserError, reason, shown
from asrkit.extras import need
from asrkit.runtime import Recognizer

DEFAULT = "small-en-alnum"

if TYPE_CHECKING:
    from asrkit.serve.call_store import Store


def serve(options: argparse.Namespace) -> int:
    need("starlette", "uvicorn", "websockets", "python_multipart", "prometheus_client")
    import uvicorn

    from asrkit.serve import logs
    from asrkit.serve.app import app_of
    from asrkit.serve.capacity import capacity
    from asrkit.serve.connections import config_of, gate_of
    from asrkit.serve.places import network_of
    from asrkit.serve.protocols.wyoming import wyoming
    from asrkit.serve.server import Limits, Server

    token, proxies = token_of(options), [*map(network_of, options.trust_proxy)]
    if options.tls_key is not None and options.tls_cert is None:
        raise UserError("--tls-key needs --tls-cert")
    beside = None if options.wyoming is None else port_without_token(options, token)
    store, key = store_of(options, Limits().resume_s)
    torch.set_num_threads(1)  # per step, also for ONNX Runtime: the workers share the cores
    # The event loop needs a worker's interpreter lock after each packet, and waited 5 ms for it.
    sys.setswitchinterval(0.0005)
    models = recognizers(options)
    names = models | aliases(options.alias, models)
    logs.set_up(options.log)
    streams = options.streams or min(capacity(each, options.threads) for each in models.values())
    limits = Limits(
        streams=streams, upload_mb=options.upload_mb, call_s=60.0 * options.call_minutes,
        save_s=options.save_seconds or Limits().save_s,
    )  # fmt: skip
    server = Server(
        names, limits, options.threads, token, tuple(options.origin), tuple(options.allow_host),
        store, key, proxies,
    )  # fmt: skip
    gate = gate_of(server)
    others = [] if beside is None else [wyoming(server, gate, beside)]
    config = config_of(
        app_of(server, *others), server, options.host, options.port, gate,
        ssl_certfile=options.tls_cert, ssl_keyfile=options.tls_key, timeout_graceful_shutdown=5,
    )  # fmt: skip
    port = config.bind_socket()
    port.listen(config.backlog)  # whoever has read the address below can connect
    addresses = {"address": f"{'https' if options.tls_cert else 'http'}://{place_of(port)}/"}
    if beside is not None:
        addresses["wyoming"] = f"tcp://{place_of(beside)}"
    about = "; ".join(f"{name}, {model.context}" for name, model in models.items())
    if options.log == "json":
        logs.log("serving", models=about, calls=streams, **addresses)
    else:
        print(
            f"{about}, {streams} calls: {' and '.join(addresses.values())}",
            file=sys.stderr,
            flush=True,
        )
    uvicorn.Server(config).run(sockets=[port])
    return 0


def recognizers(options: argparse.Namespace) -> dict[str, Recognizer]:
    """Return the recognisers that the options describe, by the names of their models.

    Raises:
        UserError: for a model that cannot be loaded with these options, or a repeated name.
    """
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
    """Return the recognisers by the further names of --alias.

    Raises:
        UserError: for a text that is not NAME=MODEL, a model that is not served, or a taken name.
    """
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
    if model.startswith(hub.PREFIX):
        return hub.address_of(model).repository.partition("/")[2]
    return Path(model).stem


def store_of(options: argparse.Namespace, seconds: float) -> "tuple[Store | None, bytes | None]":
    """Return the store for calls, if not the process, and the key that authenticates them.

    Raises:
        UserError: for options that exclude each other, and for a key that cannot be read.
    """
    from asrkit.serve.call_store import FolderStore, RedisStore

    folder, url, path = options.state_dir, options.redis, options.state_key_file
    if folder is not None and url is not None:
        raise UserError("--state-dir and --redis exclude each other: leave one out")
    if url is not None and path is None:
        raise UserError("--redis needs --state-key-file, with a secret that other users lack")
    if folder is None and url is None:
        if path is not None or options.save_seconds is not None:
            raise UserError("--save-seconds and --state-key-file need --state-dir or --redis")
        return None, None
    store = RedisStore(url, seconds) if url is not None else FolderStore(folder, seconds)
    if isinstance(store, FolderStore) and path is None:
        return store, store.key()
    key = path.read_bytes()
    if not 16 <= len(key) <= 4096:
        raise UserError(f"{shown(path)} must be a key of 16 to 4096 bytes, got {len(key)}")
    return store, key


def token_of(options: argparse.Namespace) -> str | None:
    """Return the token that clients have to send.

    Raises:
        UserError: without a token on an address that others can reach.
    """
    token = given_token(options)
    if token is None and not options.insecure and not is_loopback(options.host):
        raise UserError(
            f"--host {shown(options.host)} can be reached from elsewhere: give --token-file, or "
            "--insecure if everybody who can reach it may use it"
        )
    return token


def port_without_token(options: argparse.Namespace, token: str | None) -> socket.socket:
    """Return the socket of --wyoming.

    Raises:
        UserError: for a port that cannot be had, or that would let in clients without the token.
    """
    if not options.insecure and (token is not None or not is_loopback(options.host)):
        raise UserError(
            "--wyoming has no token, as its clients send none: give --insecure if everybody who "
            f"can reach the port on {shown(options.host)} may use it"
        )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.wyoming), family=family)
    except OSError as error:
        raise UserError(f"--wyoming {options.wyoming}: {reason(error)}") from None


def place_of(port: socket.socket) -> str:
    """Return host and port of a socket."""
    host, number = port.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{number}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

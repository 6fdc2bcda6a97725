"""Serve a model to many callers: asrkit serve --model MODEL --port 8000"""

from pathlib import Path

from asrkit.cli.options import MODEL, add_device, add_recognizer
from asrkit.cli.parser import Parser, real, whole

LOGS = ("off", "text", "json")


def main(argv: list[str] | None = None) -> int:
    return arguments_of().run("serve:serve", argv)


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
        help="save calls to this folder: they outlive the process, and other processes on this "
        "machine can resume them",
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
        help="file with the key that authenticates saved calls, 16 bytes or more (default: a file "
        "created in DIR)",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

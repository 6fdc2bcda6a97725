"""Serve a model to many callers: asrkit serve --model MODEL --port 8000"""

from pathlib import Path

from asrkit.cli.options import MODEL, add_device, add_recognizer, parser
from asrkit.cli.parser import real, whole
from asrkit.cli.run import run_command, work

LOGS = ("off", "text", "json")


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit serve", __doc__,
        "asrkit serve --model MODEL\n"
        "  asrkit serve --model en=MODEL --model de=MODEL\n"
        "  asrkit serve --model MODEL --host 0.0.0.0 --token-file /etc/asrkit.token\n"
        "  curl -F file=@x.wav http://127.0.0.1:8000/v1/audio/transcriptions",
        "[--model MODEL] [options]",
    )  # fmt: skip
    arguments.group("model").add_argument(
        "--model", action="append", metavar="[NAME=]MODEL",
        help=f"{MODEL}; with the name that clients ask for; may be repeated (default "
        "small-en-alnum)",
    )  # fmt: skip
    add_device(arguments)
    add_recognizer(arguments, live=True)
    group = arguments.group("network")
    group.add_argument("--host", default="127.0.0.1", help="address (default 127.0.0.1)")
    group.add_argument(
        "--port", type=whole(0, 65535), default=8000, help="0: any free one (default 8000)"
    )
    group.add_argument(
        "--token", help="that clients have to send; other users of the machine see it"
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="a file that holds it")
    group.add_argument(
        "--insecure", action="store_true", help="without a token on an address of the network"
    )
    group.add_argument(
        "--origin", action="append", default=[], metavar="URL",
        help="a page elsewhere that may connect, as https://example.org; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name of this server, where it asks for no token: addresses and localhost are "
        "allowed; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--trust-proxy", action="append", default=[], metavar="ADDRESS",
        help="a proxy in front, by its address or network: its X-Forwarded-For names the client; "
        "may be repeated",
    )  # fmt: skip
    group.add_argument("--tls-cert", metavar="FILE", help="certificate, in PEM")
    group.add_argument("--tls-key", metavar="FILE", help="its key")
    group = arguments.group("limits")
    group.add_argument(
        "--threads", type=whole(1, 256), default=1, help="that run the network (default 1)"
    )
    group.add_argument(
        "--streams", type=whole(1, 100_000),
        help="calls at the same time (default: measured at the start)",
    )  # fmt: skip
    group.add_argument(
        "--upload-mb", type=whole(1, 100_000), default=200, help="largest file (default 200)"
    )
    group.add_argument(
        "--call-minutes", type=whole(1, 100_000), default=240, help="longest call (default 240)"
    )
    arguments.add_argument(
        "--log", choices=LOGS, default="off",
        help="calls and requests on standard error, without their texts (default off: problems)",
    )  # fmt: skip
    group = arguments.group("restarts")
    group.add_argument(
        "--state-dir", type=Path, metavar="DIR",
        help="keep calls there: they outlive the process, and other processes may go on with them",
    )  # fmt: skip
    group.add_argument(
        "--redis", metavar="URL", help="keep them there, for several machines: redis://host:6379/0"
    )
    group.add_argument(
        "--save-seconds", type=real(0.1, 30.0), metavar="S",
        help="that a process that is killed may lose, and clients send again (default 5)",
    )  # fmt: skip
    group.add_argument(
        "--state-key-file", type=Path, metavar="FILE",
        help="what authenticates these calls, 16 bytes or more (default: a file made in DIR)",
    )  # fmt: skip
    return run_command(work("serve"), arguments, argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Compare streaming with offline, station by station: python -m asrkit.verify --model M x.wav"""

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser, whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit verify", __doc__,
        "python -m asrkit.verify --model MODEL x.wav\n"
        "  python -m asrkit.verify --model MODEL --chunk-ms 160,640 --left-ms 2560 x.wav y.wav\n"
        "  python -m asrkit.verify --kernels",
    )  # fmt: skip
    arguments.group("model").add_argument("--model", help=MODEL)
    arguments.add_argument(
        "--chunk-ms", default="160,320,640,1280", metavar="MS,…",
        help="chunks in ms (default 160,320,640,1280)",
    )  # fmt: skip
    arguments.add_argument(
        "--left-ms", default="0,1280,5120", metavar="MS,…",
        help="left contexts in ms (default 0,1280,5120)",
    )  # fmt: skip
    arguments.add_argument(
        "--right-ms", metavar="MS,…",
        help="right contexts in ms (default: the model's own, and those of its training)",
    )  # fmt: skip
    arguments.add_argument("--exported", metavar="FILE", help="file that asrkit export wrote")
    arguments.add_argument("--seed", type=whole(0, 2**63), default=0, help="seed of packet sizes")
    arguments.add_argument(
        "--kernels", action="store_true",
        help="compare the attention kernels on this machine's GPU with the plain attention, "
        "without a model or recordings",
    )  # fmt: skip
    arguments.add_argument("files", nargs="*", help="recordings")
    return arguments.run("verify:verify", argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Check a corpus before training, or pack it in shards: python -m asrkit.data check train.jsonl"""

import sys

from asrkit.cli.options import MODEL, parser
from asrkit.cli.parser import complain, whole
from asrkit.cli.run import run_command, work
from asrkit.registry import refusal


def main(argv: list[str] | None = None) -> int:
    action, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if action in ACTIONS:
        return ACTIONS[action](rest)
    if action in ("-h", "--help"):
        print(USAGE)
        return 0
    complain("asrkit data", f"the first argument {refusal(action, ACTIONS)}; --help says more")
    return 2


def shard_main(argv: list[str]) -> int:
    """Pack a manifest: `asrkit data shard`."""
    arguments = parser(
        "asrkit data shard", PURPOSES["shard"],
        "python -m asrkit.data shard train.jsonl --output train-shards\n\n"
        "exit status: 0 packed, 2 nothing could be packed",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a JSONL or lhotse manifest")
    arguments.add_argument(
        "--output", required=True, metavar="DIR", help="new folder of the shards and their index"
    )
    arguments.add_argument(
        "--shard-size", type=whole(1, 1_000_000), default=1000, metavar="N",
        help="utterances in a shard (default 1000)",
    )  # fmt: skip
    return run_command(work("data", "shard"), arguments, argv)


def check_main(argv: list[str]) -> int:
    """Check manifests: `asrkit data check`."""
    arguments = parser(
        "asrkit data check", PURPOSES["check"],
        "python -m asrkit.data check train.jsonl dev.jsonl --config conf/mine.yaml\n"
        "  python -m asrkit.data check train.jsonl --list --write clean.jsonl\n\n"
        "exit status: 0 no errors, 1 errors, 2 nothing could be checked",
    )  # fmt: skip
    arguments.add_argument(
        "manifests", nargs="+", help="JSONL or lhotse manifests, the training set first"
    )
    rules = arguments.add_mutually_exclusive_group()
    rules.add_argument(
        "--config",
        help="judge by this configuration, with the tokenizer of the first manifest's texts "
        "(default: the configuration's defaults, characters)",
    )
    rules.add_argument("--model", help=f"judge by the configuration and tokenizer of {MODEL}")
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    arguments.add_argument("--list", action="store_true", help="print every finding, one a line")
    arguments.add_argument("--strict", action="store_true", help="let warnings count as errors")
    arguments.add_argument("--no-audio", action="store_true", help="read headers only: seconds")
    arguments.add_argument(
        "--jobs", type=whole(1, 1024), metavar="N",
        help="threads that read files (default: one for each core)",
    )  # fmt: skip
    arguments.add_argument(
        "--write", metavar="CLEAN", help="write the manifest's utterances without errors here"
    )
    return run_command(work("data", "check"), arguments, argv)


PURPOSES = {
    "check": "Find what is wrong with a corpus before training",
    "shard": "Pack a manifest and its audio in shards, which read faster than files",
}


ACTIONS = {"check": check_main, "shard": shard_main}


USAGE = "\n".join([
    "usage: asrkit data <action> [options]; asrkit data <action> --help says more\n",
    *(f"  {name:7}{PURPOSES[name]}" for name in ACTIONS),
    "\nexample:\n  asrkit data check train.jsonl dev.jsonl --config conf/mine.yaml",
])  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

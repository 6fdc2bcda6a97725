"""Import, check, normalize, segment or pack a corpus: asrkit data check train.jsonl"""

import importlib
import sys

from asrkit.cli.parser import complain
from asrkit.registry import refusal

PURPOSES = {
    "import": "Turn any corpus into checked manifests, divided by speaker",
    "check": "Find what is wrong with a corpus before training",
    "normalize": "Normalize a manifest's texts, and report each kind of change",
    "segment": "Divide a long recording with its text into utterances",
    "shard": "Pack a manifest and its audio in shards, which read faster",
}
USAGE = "\n".join(
    [
        "usage: asrkit data <action> [options]; asrkit data <action> --help says more\n",
        *(f"  {name:11}{PURPOSES[name]}" for name in PURPOSES),
        "\nexample:\n  asrkit data import folder recordings --output corpus\n"
        "  asrkit data check corpus/train.jsonl corpus/dev.jsonl --config mine.yaml",
    ]
)


def main(argv: list[str] | None = None) -> int:
    action, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if action in PURPOSES:
        status: int = importlib.import_module(f"asrkit.commands.data_{action}").main(rest)
        return status
    if action in ("-h", "--help"):
        print(USAGE)
        return 0
    complain("asrkit data", f"the first argument {refusal(action, PURPOSES)}; --help says more")
    return 2

"""Import, check, normalize or pack a corpus: asrkit data check train.jsonl"""

import sys

from asrkit.cli.dispatch import dispatch

ACTIONS = {
    "import": "turn any corpus into checked manifests, divided by speaker",
    "check": "find what is wrong with a corpus before training",
    "normalize": "normalize a manifest's texts, and report each kind of change",
    "shard": "pack a manifest and its audio in shards, which read faster",
}
EXAMPLE = """asrkit data import folder recordings --output corpus
  asrkit data check corpus/train.jsonl corpus/dev.jsonl --config mine.yaml"""


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    return dispatch("asrkit data", {"commands": ACTIONS}, EXAMPLE, arguments)

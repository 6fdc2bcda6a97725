"""The command asrkit: asrkit <command> …"""

import importlib
import sys

from asrkit.cli.parser import complain
from asrkit.registry import refusal
from asrkit.version import __version__

GROUPS = {
    "use": {
        "stream": "stream a file, the microphone or raw samples",
        "decode": "decode files or a manifest",
        "serve": "serve a model to many callers, with a page to talk to",
        "listen": "stream a file or the microphone to a server",
        "align": "find the times of the words of a known text",
    },
    "corpora": {
        "data import": "turn any corpus into checked manifests, divided by speaker",
        "data check": "find what is wrong with a corpus before training",
        "data normalize": "normalize a manifest's texts, and report each kind of change",
        "data shard": "pack a manifest and its audio in shards, which read faster",
    },
    "train": {
        "plan": "write a training configuration that fits a corpus and this machine",
        "train": "train a recogniser on a manifest",
        "evaluate": "measure word errors and delays on a manifest, at several chunk sizes",
        "compare": "compare two models, or their seeds, on the same recordings",
        "report": "show a training as one page: scores, curves, alignments, errors",
        "tune": "find the weight of a language model",
        "ngram": "estimate a language model from texts",
    },
    "models": {
        "models": "print the models that a name downloads, with languages and licences",
        "import": "convert a checkpoint of NeMo, WeNet or Whisper to a model file",
        "export": "write the encoder or the whole model for other programs",
        "info": "print the contents of a model file",
        "average": "average the weights of models",
        "pack": "store a model file's weights in half the bytes",
        "push": "upload a model file and its card to the Hugging Face hub",
        "verify": "compare streaming with offline on recordings",
        "bench": "measure a model's speed here on each backend, for several streams",
    },
}
COMMANDS = {name: purpose for group in GROUPS.values() for name, purpose in group.items()}


def main(argv: list[str] | None = None) -> int:
    """Run the command of the first arguments, or print the list of all; return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--version"]:
        print(f"asrkit {__version__}")
        return 0
    words = 2 if arguments[:1] == ["data"] else 1
    command = " ".join(arguments[:words])
    if command in COMMANDS:
        name = "import_" if command == "import" else command.replace(" ", "_")  # a keyword
        return importlib.import_module(f"asrkit.commands.{name}").main(arguments[words:])
    if {*arguments[:words]} <= {"data", "-h", "--help"}:
        print(usage())
        return 0
    complain("asrkit", f"the command {refusal(command, COMMANDS)}")
    return 2


def usage() -> str:
    lines = ["usage: asrkit <command> [options]; asrkit <command> --help says more"]
    for title, commands in GROUPS.items():
        width = max(map(len, commands))
        lines += [f"\n{title}:", *(f"  {name:{width}}  {each}" for name, each in commands.items())]
    return "\n".join([*lines, "\nexample:\n  asrkit decode --model small-en-alnum a.wav"])


if __name__ == "__main__":
    sys.exit(main())

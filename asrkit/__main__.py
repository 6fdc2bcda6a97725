"""The command asrkit: asrkit <command> …"""

import importlib
import sys

from asrkit.registry import refusal
from asrkit.version import __version__

COMMANDS = {
    "plan": "write a training configuration that fits a corpus and this machine",
    "train": "train a recogniser on a manifest",
    "decode": "decode files or a manifest",
    "align": "find the times of the words of a known text",
    "evaluate": "measure word errors and delays on a manifest, at several chunk sizes",
    "compare": "compare two models, or their seeds, on the same recordings",
    "report": "show a training as one page: scores, curves, alignments, errors",
    "ngram": "estimate a language model from texts",
    "tune": "find the weight of a language model",
    "stream": "stream a file, the microphone or raw samples",
    "serve": "serve a model to many callers, with a page to talk to",
    "listen": "stream a file or the microphone to a server",
    "export": "write the encoder or the whole model for other programs",
    "import": "convert a checkpoint of NeMo, WeNet or Whisper to a model file",
    "average": "average the weights of models, or of a training's epochs",
    "pack": "store a model file's weights in half the bytes",
    "push": "upload a model file and its card to the Hugging Face hub",
    "data": "find what is wrong with a corpus before training",
    "bench": "measure a model's speed here on each backend, for several streams",
    "verify": "compare streaming with offline, station by station",
    "models": "print the models that a name downloads, with languages and licences",
    "info": "print the contents of a model file",
}


def main(argv: list[str] | None = None) -> int:
    command, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if command in ("-h", "--help"):
        print(usage())
    elif command == "--version":
        print(f"asrkit {__version__}")
    elif command in COMMANDS:
        status: int = importlib.import_module(module_of(command)).main(rest)
        return status
    else:
        print(f"asrkit: the command {refusal(command, COMMANDS)}", file=sys.stderr)
        return 2
    return 0


def module_of(command: str) -> str:
    """Return the name of a command's module; `import` is a keyword of Python."""
    return f"asrkit.commands.{command}{'_' * (command == 'import')}"


def usage() -> str:
    commands = "\n".join(f"  {name:9}{purpose}" for name, purpose in COMMANDS.items())
    return (
        "usage: asrkit <command> [options]; asrkit <command> --help says more\n"
        f"       asrkit --version\n\n{commands}\n\n"
        "example:\n  asrkit decode --model exp/conformer/model.safetensors x.wav"
    )


if __name__ == "__main__":
    sys.exit(main())

"""asrkit <command> …"""

import importlib
import sys

COMMANDS = {
    "train": "train a recogniser on a manifest",
    "decode": "decode files or a manifest",
    "align": "when the words of a known text were said",
    "evaluate": "word errors and delays over a manifest, at several chunk sizes",
    "report": "a training as one page: scores, curves, alignments, what was heard wrong",
    "ngram": "estimate a language model from texts",
    "tune": "how far to trust a language model",
    "stream": "stream a file, the microphone or raw samples",
    "export": "write the encoder or the whole model for other programs",
    "pack": "store a model file's weights in half the bytes",
    "data": "find what is wrong with a corpus before training",
    "bench": "how fast a model is here, on each backend, and for how many streams",
    "verify": "compare streaming with offline, station by station",
    "info": "print what is in a model file",
}
PACKAGES = {"data", "export", "report"}


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: asrkit <command> [options]; asrkit <command> --help says more\n")
        for name, purpose in COMMANDS.items():
            print(f"  {name:9}{purpose}")
        print("\nexample:\n  asrkit decode --model exp/conformer/model.safetensors x.wav")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        known = ", ".join(COMMANDS)
        print(f"asrkit: unknown command {command!r}; there are {known}", file=sys.stderr)
        return 2
    module = f"{command}.__main__" if command in PACKAGES else command
    return importlib.import_module(f"asrkit.{module}").main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())

"""Print the contents of a model file: python -m asrkit.info MODEL"""

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    arguments = Parser("asrkit info", __doc__, "asrkit info exp/conformer/model.safetensors")
    arguments.add_argument("model", help=MODEL)
    return arguments.run("info:info", argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Print the contents of a model file: python -m asrkit.info MODEL"""

from asrkit.cli.options import MODEL, parser
from asrkit.cli.run import run_command, work


def main(argv: list[str] | None = None) -> int:
    arguments = parser("asrkit info", __doc__, "asrkit info exp/conformer/model.safetensors")
    arguments.add_argument("model", help=MODEL)
    return run_command(work("info"), arguments, argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Store a model file's weights in half the bytes: python -m asrkit.pack --model M --output SMALL"""

from asrkit.cli.options import add_model_file
from asrkit.cli.parser import Parser, Target
from asrkit.cli.terms import add_terms


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit pack", __doc__,
        "python -m asrkit.pack --model exp/conformer/model.safetensors --output small.safetensors",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the model file")
    return arguments.run("pack:pack", argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Apply adapters to the model that they were trained on, or remove them: asrkit adapters apply M A

Training with `training.keep=adapters` writes the adapters beside its model. Removing them gives the
first model back, bit for bit.
"""

from asrkit.cli.parser import Parser, Target


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit adapters", __doc__,
        "asrkit adapters apply small-en-alnum adapters.safetensors --output mine.safetensors\n"
        "  asrkit adapters remove mine.safetensors adapters.safetensors --output first.safetensors",
    )  # fmt: skip
    arguments.add_argument("action", choices=["apply", "remove"], help="direction")
    arguments.add_argument("model", metavar="MODEL", help="a model file, or a ready model's name")
    arguments.add_argument("adapters", metavar="ADAPTERS", help="the adapter file")
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    return arguments.run("adapters:run", argv)


if __name__ == "__main__":
    raise SystemExit(main())

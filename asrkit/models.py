"""Print the models that a name downloads: asrkit models"""

from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    return Parser("asrkit models", __doc__, "asrkit models").run("models:models", argv)


if __name__ == "__main__":
    raise SystemExit(main())

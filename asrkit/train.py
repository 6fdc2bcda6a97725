"""Train a recogniser: python -m asrkit.train --config conf/conformer.yaml [section.key=value]"""

from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit train", __doc__,
        "python -m asrkit.train --config conformer training.epochs=10\n"
        "  python -m asrkit.train --config conformer --resume\n"
        "  torchrun --nproc-per-node 2 -m asrkit.train --config my/config.yaml",
    )  # fmt: skip
    arguments.add_argument("--config", required=True, help="YAML file, or a name of conf/")
    arguments.add_argument("--resume", action="store_true", help="continue where training stopped")
    arguments.add_argument(
        "--change-schedule", action="store_true",
        help="with --resume: continue with other epochs, rates, batches, draws or recordings",
    )  # fmt: skip
    arguments.add_argument("overrides", nargs="*", metavar="section.key=value")
    return arguments.run("train:train", argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser
from asrkit.cli.terms import add_terms


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit push", __doc__,
        "asrkit push exp/mine/model.safetensors me/mine --licence CC-BY-4.0 --dry-run",
    )  # fmt: skip
    arguments.add_argument("model", help=MODEL)
    arguments.add_argument(
        "repository", metavar="owner/name",
        help="repository, made if missing; owner/name@branch: a branch, also made if missing",
    )  # fmt: skip
    add_terms(arguments, "that of the model file")
    arguments.add_argument("--private", action="store_true", help="make a private repository")
    arguments.add_argument("--message", help="commit message")
    arguments.add_argument(
        "--overwrite-card", action="store_true", help="replace an existing README.md"
    )
    arguments.add_argument(
        "--dry-run", action="store_true", help="print the card, and upload nothing"
    )
    return arguments.run("push:push", argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Find the weight of a language model: python -m asrkit.tune --model M --lm lm.arpa dev.jsonl"""

from asrkit.cli.options import add_batch, add_context, add_model, add_search
from asrkit.cli.parser import Parser


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit tune", __doc__,
        "python -m asrkit.tune --model MODEL --lm lm.arpa data/an4/dev.jsonl\n"
        "  python -m asrkit.tune --model MODEL --lm t.arpa --lm-units tokens --beam 20 dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts, not used in training")
    return arguments.run("tune:tune", argv)


if __name__ == "__main__":
    raise SystemExit(main())

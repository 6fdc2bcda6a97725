"""How far to trust a language model: python -m asrkit.tune --model M --lm lm.arpa dev.jsonl

The network works on every utterance once. Then pairs of a weight and a bonus are tried: from one to
the best of its neighbours, and in finer steps when none is better.
"""

from asrkit.cli.options import add_batch, add_context, add_model, add_search, parser
from asrkit.cli.run import run_command, work


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit tune", __doc__,
        "python -m asrkit.tune --model MODEL --lm lm.arpa data/an4/dev.jsonl\n"
        "  python -m asrkit.tune --model MODEL --lm t.arpa --lm-units tokens --beam 20 dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    add_search(arguments)
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts, none of them trained on")
    return run_command(work("tune"), arguments, argv)


if __name__ == "__main__":
    raise SystemExit(main())

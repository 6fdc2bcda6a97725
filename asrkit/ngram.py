"""Estimate a language model from texts: python -m asrkit.ngram --order 3 train.jsonl --output A"""

from asrkit.cli.choices import MAX_ORDER
from asrkit.cli.parser import Parser, Target, whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit ngram", __doc__,
        "python -m asrkit.ngram --order 3 data/an4/train.jsonl --output lm.arpa\n"
        "  python -m asrkit.ngram --units tokens --model MODEL --order 6 a.txt --output t.arpa",
    )  # fmt: skip
    arguments.add_argument(
        "--order", type=whole(1, MAX_ORDER), default=3, metavar="N",
        help=f"units in an n-gram, up to {MAX_ORDER} (default 3)",
    )  # fmt: skip
    arguments.add_argument("--output", type=Target, required=True, help="the ARPA file to write")
    arguments.add_argument("--model", help="normalise the texts as this model file does")
    arguments.add_argument(
        "--units", choices=["words", "tokens"], default="words",
        help="unit of an n-gram; words: also characters of scripts without spaces; tokens: those "
        "of the --model's tokenizer",
    )  # fmt: skip
    arguments.add_argument(
        "--prune", type=whole(0, 1000), nargs="+", default=[0], metavar="N",
        help="for each order, leave out n-grams that occur at most N times; the last N applies to "
        "all higher orders (default 0; 0 0 0 1 for large texts)",
    )  # fmt: skip
    arguments.add_argument(
        "texts", nargs="+", help="manifests (.jsonl, lhotse's), or text files, a sentence per line"
    )
    return arguments.run("ngram:ngram", argv)


if __name__ == "__main__":
    raise SystemExit(main())

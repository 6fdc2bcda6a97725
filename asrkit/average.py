"""Average the weights of models with a common start: asrkit average a.safetensors b.safetensors

The labels are the first model's. Models that were fine-tuned from the same weights are often worse
than their average (Wortsman et al. 2022, Model soups).
"""

from asrkit.cli.parser import Parser, Target
from asrkit.cli.terms import add_terms


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit average", __doc__,
        "asrkit average one.safetensors two.safetensors --output mean.safetensors\n"
        "  asrkit average mine.safetensors=0.75 small-en-alnum=0.25 --output mean.safetensors\n"
        "  asrkit average exp/mine/model.safetensors --epochs 28,29,30 --output mean.safetensors",
    )  # fmt: skip
    arguments.add_argument(
        "models", nargs="+", metavar="MODEL[=SHARE]",
        help="model files; shares sum to 1 (default: equal ones)",
    )  # fmt: skip
    arguments.add_argument(
        "--epochs", metavar="N,…",
        help="a single model, with the mean weights of these epochs of its training; the files are "
        "beside it (training.average keeps them)",
    )  # fmt: skip
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the models")
    return arguments.run("average:average", argv)


if __name__ == "__main__":
    raise SystemExit(main())

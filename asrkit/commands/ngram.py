"""Estimate a language model from texts: asrkit ngram --order 3 train.jsonl --output A"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from asrkit.atomic_write import write_text
from asrkit.cli.parser import Parser, Target, whole
from asrkit.errors import UserError
from asrkit.lines import LineKind, text_lines
from asrkit.lm.lm_fusion import as_word
from asrkit.lm.ngram import MAX_NGRAMS, MAX_ORDER


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit ngram", __doc__,
        "asrkit ngram --order 3 data/an4/train.jsonl --output lm.arpa\n"
        "  asrkit ngram --units tokens --model MODEL --order 6 a.txt --output t.arpa",
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
        "texts", nargs="+", help="manifests (.jsonl), shards, or text files, a sentence per line"
    )
    return arguments.run(ngram, argv)


Split = Callable[[str], list[str]]  # splits a text into units or tokens


def ngram(options: argparse.Namespace) -> int:
    from asrkit.lm.kneser_ney import arpa_lines, estimate

    if options.prune[0] or options.prune != sorted(options.prune):
        shown = " ".join(map(str, options.prune))
        raise UserError(f"--prune must begin with 0, for 1-grams, and never fall, got {shown}")
    split = splitter(options)
    model = estimate(sentences(options.texts, split), options.order, options.prune)
    write_text(options.output, "\n".join(arpa_lines(model)) + "\n")
    sizes = ", ".join(f"{len(each)} {order}-grams" for order, each in enumerate(model, start=1))
    print(f"{options.output}: {sizes}", file=sys.stderr)
    if sum(map(len, model)) > MAX_NGRAMS:
        print(f"asrkit reads at most {MAX_NGRAMS} n-grams: use --prune", file=sys.stderr)
    return 0


def splitter(options: argparse.Namespace) -> Split:
    """Return the function that splits a text into units or tokens."""
    from asrkit.build import build_normalizer
    from asrkit.config.training import TextConfig
    from asrkit.runtime.load import load_runnable
    from asrkit.text.graphemes import units

    file = load_runnable(options.model) if options.model else None
    normalize = build_normalizer(file.config.text if file else TextConfig())
    if options.units == "words":
        return lambda text: units(normalize(text))
    if file is None:
        raise UserError("--units tokens needs a --model, whose tokenizer splits the texts")
    tokenizer = file.tokenizer
    return lambda text: [as_word(tokenizer.piece(t)) for t in tokenizer.encode(normalize(text))]


def sentences(paths: list[str], split: Split) -> Iterator[list[str]]:
    """Yield the texts of all files, split; texts that a tokenizer cannot encode are left out."""
    from asrkit.text import TextError

    reasons = []
    for path in paths:
        for text in texts_of(Path(path)):
            try:
                yield split(text.encode("utf-8", "replace").decode())  # without lone surrogates
            except TextError as error:
                reasons.append(error)
    if reasons:
        count = len(reasons)
        print(f"asrkit ngram: {count} texts left out; the first: {reasons[0]}", file=sys.stderr)


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a manifest, or the lines of any other file."""
    from asrkit.data.inputs import read_recordings
    from asrkit.data.manifest import MAX_LINE

    if not path.exists():
        raise UserError(f"no text or manifest {path}")
    if path.is_dir() or ".jsonl" in path.suffixes:
        yield from (each.text or "" for each in read_recordings(str(path)))
    elif path.is_file():
        kind = LineKind("a text", UserError, MAX_LINE)
        yield from (line for _, line in text_lines(path, kind))
    else:
        raise UserError(f"{path} is not a file")

"""Estimate a language model from texts: python -m asrkit.ngram --order 3 train.jsonl --output A"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from asrkit.atomic_write import replacing
from asrkit.build import build_normalizer
from asrkit.config import TextConfig
from asrkit.data.manifest import MAX_EMPTY, MAX_LINE, LeftOut, is_lhotse, read_manifest
from asrkit.errors import UserError
from asrkit.lines import LineKind, text_lines
from asrkit.lm.kneser_ney import arpa_lines, estimate
from asrkit.lm.lm_fusion import as_word
from asrkit.lm.ngram import MAX_NGRAMS
from asrkit.model_file import load_model
from asrkit.text import TextError
from asrkit.text.graphemes import units

Split = Callable[[str], list[str]]  # splits a text into units or tokens


def ngram(options: argparse.Namespace) -> int:
    if options.prune[0] or options.prune != sorted(options.prune):
        shown = " ".join(map(str, options.prune))
        raise UserError(f"--prune must begin with 0, for 1-grams, and never fall, got {shown}")
    split = splitter(options)
    model = estimate(sentences(options.texts, split), options.order, options.prune)
    with replacing(options.output) as temporary:
        temporary.write_text("\n".join(arpa_lines(model)) + "\n", encoding="utf-8")
    sizes = ", ".join(f"{len(each)} {order}-grams" for order, each in enumerate(model, start=1))
    print(f"{options.output}: {sizes}", file=sys.stderr)
    if sum(map(len, model)) > MAX_NGRAMS:
        print(f"asrkit reads at most {MAX_NGRAMS} n-grams: use --prune", file=sys.stderr)
    return 0


def splitter(options: argparse.Namespace) -> Split:
    """Return the function that splits a text into units or tokens."""
    file = load_model(options.model) if options.model else None
    normalize = build_normalizer(file.config.text if file else TextConfig())
    if options.units == "words":
        return lambda text: units(normalize(text))
    if file is None:
        raise UserError("--units tokens needs a --model, whose tokenizer splits the texts")
    tokenizer = file.tokenizer
    return lambda text: [as_word(tokenizer.piece(t)) for t in tokenizer.encode(normalize(text))]


def sentences(paths: list[str], split: Split) -> Iterator[list[str]]:
    """Yield the texts of all files, split; texts that a tokenizer cannot encode are left out."""
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
    if not path.exists():
        raise UserError(f"no text or manifest {path}")
    if is_lhotse(path):
        from asrkit.data.cuts import load_cuts, text_of

        yield from map(text_of, load_cuts(path, []))
    elif path.suffix == ".jsonl":
        left_out: list[LeftOut] = []
        yield from (utterance.text or "" for utterance in read_manifest(path, left_out))
        for each in left_out:
            print(f"asrkit ngram: {each}", file=sys.stderr)
    elif path.is_file():
        kind = LineKind("a text", UserError, MAX_LINE, MAX_EMPTY)
        yield from (line for _, line in text_lines(path, kind))
    else:
        raise UserError(f"{path} is not a file")

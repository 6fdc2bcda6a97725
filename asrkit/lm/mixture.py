"""Linear interpolation of n-gram models: p(w | h) = sum of weight_i p_i(w | h).

The weights maximise the likelihood of held-out texts (expectation maximisation, Jelinek and Mercer
1980). The mixture is again one back-off model. It is exact for every n-gram that any of the models
has; for all others it uses its own back-off (Stolcke 2002, SRILM, section 4).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from asrkit.lm.kneser_ney import NgramEntry, Words
from asrkit.lm.ngram import BEGIN, END, UNKNOWN

Model = Sequence[dict[Words, NgramEntry]]  # the n-grams of each order, from 1 on

ITERATIONS = 100  # of expectation maximisation; the weights converge much earlier
LEAST = 1e-12  # smallest probability left for other n-grams; rounding could make it negative


def probability(model: Model, words: Words) -> float:
    """Return p(the last word | the words before it)."""
    entry = model[len(words) - 1].get(words) if len(words) <= len(model) else None
    if entry is not None:
        return float(10**entry.log_prob)
    if len(words) == 1:
        return probability(model, (UNKNOWN,))
    return backoff(model, words[:-1]) * probability(model, words[1:])


def backoff(model: Model, context: Words) -> float:
    """Return the factor for the probabilities of the next shorter context."""
    entry = model[len(context) - 1].get(context) if len(context) <= len(model) else None
    return 1.0 if entry is None or entry.log_backoff is None else float(10**entry.log_backoff)


def probabilities(models: Sequence[Model], sentences: Iterable[list[str]]) -> np.ndarray:
    """Return the probability of every word and sentence end in each model: (words, models)."""
    order = max(map(len, models))
    rows: list[list[float]] = []
    for sentence in sentences:
        padded = (BEGIN, *sentence, END)
        for end in range(2, len(padded) + 1):
            words = padded[max(0, end - order) : end]
            rows.append([probability(model, words) for model in models])
    return np.array(rows).reshape(-1, len(models))


def best_weights(found: np.ndarray) -> np.ndarray:
    """Return the weights, of sum 1, that maximise the likelihood, given `probabilities`' result."""
    weights = np.full(found.shape[1], 1.0 / found.shape[1])
    for _ in range(ITERATIONS):
        shares = found * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


def perplexity(found: np.ndarray) -> float:
    """Return the perplexity of words with these probabilities."""
    return math.exp(-float(np.log(found).mean()))


def interpolate(models: Sequence[Model], weights: np.ndarray) -> list[dict[Words, NgramEntry]]:
    """Return the mixture of models of the same words, as the n-grams of each order.

    Args:
        models: results of `estimate`, all with the same `vocabulary`.
        weights: weights (models,), of sum 1.
    """
    probs: list[dict[Words, float]] = []
    rows: dict[Words, int] = {}
    table = np.ones((0, len(models)))
    for order in range(1, max(map(len, models)) + 1):
        own = [model[order - 1] if order <= len(model) else {} for model in models]
        lower_rows, lower = rows, table
        rows = {words: row for row, words in enumerate(dict.fromkeys(chain(*own)))}
        table = np.empty((len(rows), len(models)))
        for i, (entries, model) in enumerate(zip(own, models, strict=True)):
            for words, row in rows.items():
                entry = entries.get(words)
                if entry is not None:
                    table[row, i] = 10**entry.log_prob
                else:
                    shorter = lower[lower_rows[words[1:]], i]
                    table[row, i] = backoff(model, words[:-1]) * shorter
        probs.append(dict(zip(rows, (table @ weights).tolist(), strict=True)))
    return list(with_backoffs(probs))


def with_backoffs(probs: list[dict[Words, float]]) -> Iterator[dict[Words, NgramEntry]]:
    """Yield the entries of all orders, with the weights that let each context sum to 1."""
    for of_order, longer in zip(probs, [*probs[1:], {}], strict=True):
        taken: dict[Words, float] = defaultdict(float)  # probability of the longer n-grams
        covered: dict[Words, float] = defaultdict(
            float
        )  # probability of the same words in this order
        for words, p in longer.items():
            taken[words[:-1]] += p
            covered[words[:-1]] += of_order[words[1:]]
        yield {
            words: NgramEntry(
                math.log10(p),
                math.log10(max(LEAST, 1 - taken[words]) / max(LEAST, 1 - covered[words]))
                if words in taken
                else None,
            )
            for words, p in of_order.items()
        }

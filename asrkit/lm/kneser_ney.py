"""Estimation of n-gram models: interpolated modified Kneser-Ney (Chen and Goodman 1999).

For a word w after a context h, and h' the context without its first word,

    p(w | h) = (a(hw) - D(a(hw))) / a(h) + g(h) p(w | h')
    a(h) = sum of a(hw) over w        g(h) = sum of D(a(hw)) over w / a(h)

where a(hw) is the n-gram's count at the highest order and for n-grams that begin with <s>, and
otherwise the number of different words before it. The recursion ends with the empty n-gram, where
all words, </s> and <unk> are equally likely. A pruned n-gram adds its whole count to g(h); other
n-grams add their discount.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from asrkit.errors import UserError
from asrkit.lm.ngram import BEGIN, END, UNKNOWN, is_unknown

NEVER = -99.0  # log10 of the probability of <s>, which never follows a word

Words = tuple[str, ...]


class NgramEntry(NamedTuple):
    """An n-gram in ARPA format, with logarithms to the base 10."""

    log_prob: float
    log_backoff: float | None  # None if no longer n-gram has it as context


Discounts = tuple[float, float, float]  # of counts 1, 2, and 3 or more
FALLBACK: Discounts = (0.5, 1.0, 1.5)  # KenLM's, for texts that are too small to estimate discounts


def estimate(
    sentences: Iterable[list[str]], order: int, prune: Sequence[int] = (0,)
) -> list[dict[Words, NgramEntry]]:
    """Estimate the n-grams of each order, from 1 on.

    Args:
        sentences: lists of words.
        order: highest order; the result has fewer orders if no sentence is long enough.
        prune: threshold for each order; n-grams with at most this count are pruned (as KenLM's
            --prune). The last holds for all higher orders. The first is 0, and none is lower than
            the one before.
    """
    raw = raw_counts(sentences, order)
    counts = adjusted(raw)
    uniform = 1.0 / (len(counts[0]) + 1)  # + 1 for <unk>
    probs: list[dict[Words, float]] = []
    backoffs: list[dict[Words, float]] = []  # for the contexts of each order
    lower: dict[Words, float] = {(): uniform}
    for size, of_order in enumerate(counts, start=1):
        kept = of_order
        if threshold := prune[min(size, len(prune)) - 1]:
            kept = {words: n for words, n in of_order.items() if raw[size - 1][words] > threshold}
        discounts = discounts_of(of_order.values())
        totals, backoff = context_sums(of_order, kept, discounts)
        lower = {
            words: (count - discounts[min(count, 3) - 1]) / totals[words[:-1]]
            + backoff[words[:-1]] * lower[words[1:]]
            for words, count in kept.items()
        }
        probs.append(lower)
        backoffs.append(backoff)
    probs[0][UNKNOWN,] = backoffs[0][()] * uniform
    while not probs[-1]:  # the whole order was pruned
        del probs[-1], backoffs[-1]
    return entries(probs, backoffs)


def entries(
    probs: list[dict[Words, float]], backoffs: list[dict[Words, float]]
) -> list[dict[Words, NgramEntry]]:
    """Join each order's probabilities with the back-off weights of the next, as logarithms."""
    following = [*backoffs[1:], {}]
    model = []
    for of_order, weights in zip(probs, following, strict=True):
        logs = {words: math.log10(weight) for words, weight in weights.items()}
        model.append({w: NgramEntry(math.log10(p), logs.get(w)) for w, p in of_order.items()})
    begin = following[0].get((BEGIN,))
    model[0][BEGIN,] = NgramEntry(NEVER, None if begin is None else math.log10(begin))
    return model


def raw_counts(sentences: Iterable[list[str]], order: int) -> list[Counter[Words]]:
    """Count the n-grams of each order that occurs."""
    counts: list[Counter[Words]] = [Counter() for _ in range(order)]
    for sentence in filter(None, sentences):
        for word in sentence:
            if word in (BEGIN, END) or is_unknown(word):
                raise UserError(
                    f"{word!r} must not be a word of a text, got {' '.join(sentence)!r}"
                )
        padded = (BEGIN, *sentence, END)
        for size, of_order in enumerate(counts, start=1):
            of_order.update(padded[i : i + size] for i in range(len(padded) - size + 1))
    del counts[0][BEGIN,]
    if not counts[0]:
        raise UserError("the texts have no words: a language model needs at least one")
    return [of_order for of_order in counts if of_order]


def adjusted(counts: list[Counter[Words]]) -> list[dict[Words, int]]:
    """Return the counts a: below the highest order, the number of different preceding words.

    N-grams that begin with <s> keep their counts, because no word comes before <s>.
    """
    found: list[dict[Words, int]] = []
    for of_order, longer in itertools.pairwise(counts):
        before = Counter(words[1:] for words in longer)
        found.append({w: n if w[0] == BEGIN else before[w] for w, n in of_order.items()})
    return [*found, dict(counts[-1])]


def discounts_of(counts: Iterable[int]) -> Discounts:
    """Return Chen and Goodman's estimates, from the numbers of n-grams with counts 1, 2, 3 and 4.

    The result is FALLBACK if one of these numbers is 0, or a discount is not between 0 and its
    count.
    """
    having = Counter(counts)
    n1, n2, n3, n4 = (having[count] for count in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    fits = all(0 < discount < count for count, discount in enumerate(found, start=1))
    return found if fits else FALLBACK


def context_sums(
    counts: dict[Words, int], kept: Container[Words], discounts: Discounts
) -> tuple[dict[Words, int], dict[Words, float]]:
    """Return a(h) and g(h) of every context; n-grams that are not in `kept` were pruned."""
    totals: dict[Words, int] = defaultdict(int)
    taken: dict[Words, float] = defaultdict(float)
    for words, count in counts.items():
        totals[words[:-1]] += count
        taken[words[:-1]] += discounts[min(count, 3) - 1] if words in kept else count
    return totals, {context: taken[context] / total for context, total in totals.items()}


def arpa_lines(model: list[dict[Words, NgramEntry]]) -> Iterator[str]:
    """Yield the lines of an ARPA file, with n-grams in alphabetical order."""
    yield "\\data\\"
    for order, of_order in enumerate(model, start=1):
        yield f"ngram {order}={len(of_order)}"
    for order, of_order in enumerate(model, start=1):
        yield f"\n\\{order}-grams:"
        for words, (log_prob, log_backoff) in sorted(of_order.items()):
            weight = "" if log_backoff is None else f"\t{log_backoff:.7f}"
            yield f"{log_prob:.7f}\t{' '.join(words)}{weight}"
    yield "\n\\end\\"

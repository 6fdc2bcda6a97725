"""Kneser-Ney: against the paper's formulas, and summing to one."""

import math
import random
from fractions import Fraction
from pathlib import Path

import pytest

from asrkit.errors import UserError
from asrkit.lm import NGram, kneser_ney, read_arpa
from asrkit.lm.kneser_ney import arpa_lines, estimate

Sentences = list[list[str]]


def random_texts(seed: int) -> Sentences:
    """Sentences of a few to a hundred, of words some of which are rare."""
    draw = random.Random(seed)
    words = [f"w{i}" for i in range(draw.choice([1, 2, 5, 20]))]
    shares = [1 / (1 + i) for i in range(len(words))]
    count = draw.choice([1, 2, 3, 10, 120])
    return [draw.choices(words, shares, k=draw.randint(1, 7)) for _ in range(count)]


def read(texts: Sentences, order: int, path: Path) -> NGram:
    """The model by way of its file."""
    path.write_text("\n".join(arpa_lines(estimate(texts, order))) + "\n")
    return read_arpa(path)


class Paper:
    """Chen and Goodman (1999), section 3.4, formula by formula, over lists and sets."""

    def __init__(self, texts: Sentences, order: int) -> None:
        self.padded = [["<s>", *text, "</s>"] for text in texts]
        self.order = min(order, max(map(len, self.padded)))
        self.vocabulary = {word for text in texts for word in text} | {"</s>", "<unk>"}

    def grams(self, size: int) -> list[tuple[str, ...]]:
        return [
            tuple(text[i : i + size])
            for text in self.padded
            for i in range(len(text) - size + 1)
            if text[i : i + size] != ["<s>"]
        ]

    def count(self, gram: tuple[str, ...]) -> int:
        """c at the highest order and after <s>, elsewhere the number of words before."""
        if len(gram) == self.order or gram[0] == "<s>":
            return self.grams(len(gram)).count(gram)
        return len({longer[0] for longer in set(self.grams(len(gram) + 1)) if longer[1:] == gram})

    def discounts(self, size: int) -> tuple[Fraction, ...]:
        counts = [self.count(gram) for gram in set(self.grams(size))]
        n = [Fraction(counts.count(i)) for i in range(5)]
        if 0 in n[1:]:
            return Fraction(1, 2), Fraction(1), Fraction(3, 2)
        y = n[1] / (n[1] + 2 * n[2])
        found = tuple(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
        if not all(0 < d < i for i, d in enumerate(found, start=1)):
            return Fraction(1, 2), Fraction(1), Fraction(3, 2)
        return found

    def probability(self, word: str, context: tuple[str, ...]) -> Fraction:
        """p of the word after a context of any length."""
        context = context[max(0, len(context) - self.order + 1) :]
        d = self.discounts(len(context) + 1)
        after = {gram for gram in self.grams(len(context) + 1) if gram[:-1] == context}
        counts = {gram[-1]: self.count(gram) for gram in after}
        lower = (
            self.probability(word, context[1:]) if context else Fraction(1, len(self.vocabulary))
        )
        if not counts:
            return lower
        taken = sum(d[min(count, 3) - 1] for count in counts.values())
        own = counts.get(word, 0)
        own = own - d[min(own, 3) - 1] if own else Fraction(0)
        return (own + taken * lower) / sum(counts.values())


@pytest.mark.parametrize("seed", range(40))
def test_the_papers_formulas(seed: int, tmp_path: Path) -> None:
    """Every word after contexts seen and unseen, of every length, through file and reader."""
    draw = random.Random(seed)
    texts, order = random_texts(seed)[:25], draw.randint(1, 4)
    paper, model = Paper(texts, order), read(texts, order, tmp_path / "lm.arpa")
    assert model.order == paper.order
    words = sorted(paper.vocabulary)
    for _ in range(6):
        context, state = ("<s>",), model.start()
        for word in draw.choices(sorted(paper.vocabulary - {"</s>"}), k=draw.randint(0, 4)):
            state, context = model.score(state, word)[1], (*context, word)
        for word in draw.sample(words, min(6, len(words))):
            expected = math.log(paper.probability(word, context))
            assert model.score(state, word)[0] == pytest.approx(expected, abs=2e-6)


def sums(model: NGram) -> list[float]:
    """The probabilities of all words, summed, after each n-gram of the model as context."""
    words = [word for word in model.words if word != "<s>"]
    return [
        sum(math.exp(model.score(state, word)[0]) for word in words)
        for state in range(len(model.log_probs))
    ]


TOO_SMALL = [[["a"]], [["a"]] * 9, [["a"] * 50], [["a", "b"], ["b", "a"]]]


@pytest.mark.parametrize("texts", [*map(random_texts, range(40)), *TOO_SMALL])
@pytest.mark.parametrize("order", [1, 2, 3, 5, 10])
def test_every_context_sums_to_one(texts: Sentences, order: int, tmp_path: Path) -> None:
    found = sums(read(texts, order, tmp_path / "lm.arpa"))
    assert found == pytest.approx([1.0] * len(found), abs=1e-5)


def test_control_weights_that_are_too_small_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is taken from the counts, half is lost."""
    right = kneser_ney.context_sums

    def wasteful(*arguments):  # type: ignore[no-untyped-def]
        totals, weights = right(*arguments)
        return totals, {context: weight / 2 for context, weight in weights.items()}

    monkeypatch.setattr(kneser_ney, "context_sums", wasteful)
    assert all(total < 0.99 for total in sums(read(random_texts(4), 3, tmp_path / "lm.arpa")))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("prune", [[0, 1], [0, 0, 1], [0, 0, 1, 3], [0, 9]])
def test_a_pruned_model_sums_to_one(seed: int, prune: list[int], tmp_path: Path) -> None:
    """What is left out is rare."""
    texts, arpa = random_texts(seed), tmp_path / "lm.arpa"
    whole = estimate(texts, 4)
    model = estimate(texts, 4, prune)
    arpa.write_text("\n".join(arpa_lines(model)) + "\n")
    found = sums(read_arpa(arpa))
    assert found == pytest.approx([1.0] * len(found), abs=1e-5)
    counts = kneser_ney.raw_counts(texts, 4)
    for size, full in enumerate(whole, start=1):
        threshold = prune[min(size, len(prune)) - 1]
        rare = {words for words in full if size > 1 and counts[size - 1][words] <= threshold}
        assert full.keys() - rare == (model[size - 1].keys() if size <= len(model) else set())


def test_control_pruned_counts_that_are_lost_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if nothing had been pruned: the back-off weights do not get what was left out."""
    right, arpa = kneser_ney.context_sums, tmp_path / "lm.arpa"
    monkeypatch.setattr(
        kneser_ney, "context_sums", lambda counts, _, discounts: right(counts, counts, discounts)
    )
    arpa.write_text("\n".join(arpa_lines(estimate(random_texts(4), 3, [0, 1]))) + "\n")
    assert min(sums(read_arpa(arpa))) < 0.99


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "the texts have no words"),
        ([["a", "<s>"]], "'<s>' must not be a word of a text, got 'a <s>'"),
        ([["a", "<UNK>"]], "'<UNK>' must not be a word"),  # a reader takes it for the unknown word
    ],
)
def test_texts_that_cannot_be_used(texts: Sentences, message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate(texts, 3)

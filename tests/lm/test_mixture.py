"""Interpolated n-gram models: the weighted mean of their probabilities, and one model again."""

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest

from asrkit.lm import mixture, read_arpa
from asrkit.lm.kneser_ney import NgramEntry, Words, arpa_lines, estimate
from asrkit.lm.mixture import best_weights, interpolate, perplexity, probabilities, probability

Model = list[dict[Words, NgramEntry]]
WORDS = ["a", "b", "c", "d"]


def random_models(seed: int) -> list[Model]:
    """Of two or three texts with different words, of different orders, some of them pruned."""
    draw = random.Random(seed)
    models = []
    for _ in range(draw.choice([2, 3])):
        words = draw.sample(WORDS, draw.randint(1, 4))
        texts = [draw.choices(words, k=draw.randint(1, 6)) for _ in range(draw.choice([2, 20]))]
        prune = draw.choice([[0], [0, 0, 1]])
        models.append(estimate(texts, draw.randint(1, 4), prune, WORDS))
    return models


def contexts(order: int) -> list[Words]:
    """All sequences of up to order - 1 words, with and without <s> before them."""
    plain = [c for n in range(order) for c in itertools.product(WORDS, repeat=n)]
    return plain + [("<s>", *c) for c in plain if len(c) < order - 1]


@pytest.mark.parametrize("seed", range(20))
def test_every_n_gram_has_the_weighted_mean_and_every_context_sums_to_one(seed: int) -> None:
    models = random_models(seed)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(models)))
    mixed = interpolate(models, weights)
    for words in itertools.chain(*mixed):
        expected = sum(
            weight * probability(model, words)
            for weight, model in zip(weights, models, strict=True)
        )
        assert probability(mixed, words) == pytest.approx(expected, rel=1e-9)
    assert {w for of_order in mixed for w in of_order} == {
        w for model in models for of_order in model for w in of_order
    }
    for context in contexts(len(mixed)):
        total = sum(probability(mixed, (*context, w)) for w in [*WORDS, "</s>", "<unk>"])
        assert total == pytest.approx(1.0, abs=1e-9)


def test_control_without_new_back_off_weights_contexts_do_not_sum_to_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = random_models(1)
    right = mixture.with_backoffs

    def stale(probs):  # type: ignore[no-untyped-def]
        for entries in right(probs):
            yield {w: NgramEntry(e.log_prob, e.log_backoff and -0.1) for w, e in entries.items()}

    monkeypatch.setattr(mixture, "with_backoffs", stale)
    mixed = interpolate(models, np.full(len(models), 1 / len(models)))
    totals = [
        sum(probability(mixed, (*c, w)) for w in [*WORDS, "</s>", "<unk>"])
        for c in contexts(len(mixed))
    ]
    assert max(abs(total - 1) for total in totals) > 0.01


def test_one_model_alone_is_itself(tmp_path: Path) -> None:
    model = random_models(3)[0]
    assert list(arpa_lines(interpolate([model], np.ones(1)))) == list(arpa_lines(model))


def test_probability_is_that_of_the_file(tmp_path: Path) -> None:
    """Of words and contexts seen and unseen."""
    model = random_models(5)[0]
    (tmp_path / "lm.arpa").write_text("\n".join(arpa_lines(model)) + "\n")
    read = read_arpa(tmp_path / "lm.arpa")
    for sentence in itertools.product(["a", "b", "zebra"], repeat=3):
        state, expected = read.start(), []
        for word in sentence:
            log_prob, state = read.score(state, word)
            expected.append(math.exp(log_prob))
        found = probabilities([model], [list(sentence)])
        assert found[:, 0].tolist() == pytest.approx(
            [*expected, math.exp(read.finish(state))], abs=1e-6
        )


def test_the_weights_are_the_best() -> None:
    """Of text that is more like the first of two models than like the second."""
    first = estimate([["a", "b"]] * 9 + [["b"]], 2, vocabulary=WORDS)
    second = estimate([["c", "d"]] * 9 + [["a"]], 2, vocabulary=WORDS)
    found = probabilities([first, second], [["a", "b"]] * 3 + [["c", "d"]])
    weights = best_weights(found)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] > 0.6
    assert weights[1] > 0.1
    lowest = perplexity(found @ weights)
    for share in np.linspace(0.01, 0.99, 50):
        assert perplexity(found @ np.array([share, 1 - share])) >= lowest - 1e-9

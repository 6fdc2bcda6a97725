"""A language model inside the beam searches: sums over all paths, splits, and tokenizers."""

import itertools
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from asrkit.backends.pytorch import EagerParts
from asrkit.build import pieces_of
from asrkit.errors import UserError
from asrkit.lm import Hotwords, NGram, TokenFusion, Weighted, WordFusion
from asrkit.lm.kneser_ney import arpa_lines, estimate
from asrkit.lm.lm_fusion import as_word
from asrkit.lm.ngram import read_arpa
from asrkit.search import Both, Fusion, GreedySearch, PrefixBeamSearch, Ranked, TransducerBeamSearch
from asrkit.text import CharTokenizer, SentencePieceTokenizer, Tokenizer, WordTokenizer, decode
from asrkit.text.graphemes import complete_units, units
from tests.lm.phrases import advance, worth
from tests.search.test_prefix_beam import ALL, all_paths, nbest, random_log_probs, textbook
from tests.search.test_transducer_searches import SMALL, alignments, definition
from tests.search.test_transducer_searches import frames as encoded_frames
from tests.search.test_transducer_searches import head as transducer
from tests.search.test_transducer_searches import nbest as nbest_of_transducer

TEXTS = ["a ab b", "ab a", "b b ab a", "a", "ab", "ba a b"]
PIECES = ["", " ", "a", "b"]
KINDS = ["words", "tokens", "hotwords", "words and hotwords"]


def written(sentences: list[list[str]], folder: Path, order: int = 3) -> NGram:
    path = folder / "lm.arpa"
    path.write_text("\n".join(arpa_lines(estimate(sentences, order))))
    return read_arpa(path)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> NGram:
    return written([text.split() for text in TEXTS], tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> NGram:
    split = [[as_word(letter) for letter in text] for text in TEXTS]
    return written(split, tmp_path_factory.mktemp("letters"))


def scored(
    model: NGram, words: list[str], weight: float, bonus: float, ended: bool = True
) -> float:
    """By definition: what a language model adds to a text."""
    state, total = model.start(), 0.0
    for word in words:
        log_prob, state = model.score(state, word)
        total += weight * log_prob + bonus
    return total + weight * model.finish(state) if ended else total


def added(fusion: Fusion, tokens: Sequence[int]) -> float:
    """What a fusion adds to a text token by token, with the end."""
    state, total = fusion.start(), 0.0
    for token in tokens:
        state, gain = fusion.step(state, token)
        assert gain <= fusion.ceiling + 1e-9
        total += gain
    return total + fusion.finish(state)


Case = tuple[Fusion, Callable[[tuple[int, ...]], float], Callable[[tuple[int, ...]], float]]


def case(kind: str, seed: int, words: NGram, letters: NGram) -> Case:
    """A fusion, and by definition what it adds to a text so far, and to a text that ends."""
    if kind == "words and hotwords":
        (first, *of_first), (second, *of_second) = (
            case(each, seed, words, letters) for each in kind.split(" and ")
        )
        so_far, ended = zip(of_first, of_second, strict=True)
        return (
            Both(first, second),
            lambda tokens: sum(each(tokens) for each in so_far),
            lambda tokens: sum(each(tokens) for each in ended),
        )
    draw = random.Random(seed)
    weight, bonus = draw.choice([0.0, 0.3, 1.0, 2.5]), draw.choice([-1.0, 0.0, 0.7, 2.0])

    def text(tokens: tuple[int, ...]) -> str:
        return "".join(PIECES[token] for token in tokens)

    if kind == "hotwords":
        phrases = draw.sample(["a", "b", "ab", "ab a", "b b ab", "bab", "a ab"], 3)
        bonuses = {phrase: draw.uniform(0.0, 5.0) for phrase in phrases}
        return (
            Hotwords(bonuses, PIECES),
            lambda tokens: (
                worth(f"{text(tokens)}|".split()[:-1], bonuses) + advance(text(tokens), bonuses)
            ),
            lambda tokens: worth(text(tokens).split(), bonuses),
        )
    if kind == "tokens":
        return (
            TokenFusion(Weighted(letters, weight, bonus), PIECES),
            lambda tokens: scored(letters, [*map(as_word, text(tokens))], weight, bonus, False),
            lambda tokens: scored(letters, [*map(as_word, text(tokens))], weight, bonus),
        )
    return (
        WordFusion(Weighted(words, weight, bonus), PIECES, complete_units),
        lambda tokens: scored(words, text(tokens).rpartition(" ")[0].split(), weight, bonus, False),
        lambda tokens: scored(words, text(tokens).split(), weight, bonus),
    )


def scores(found: list[Ranked]) -> dict[tuple[int, ...], float]:
    return {each.hypothesis.tokens: each.score for each in found}


def exactly(expected: dict[tuple[int, ...], float]) -> object:
    return pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(60))
def test_all_texts_when_nothing_is_pruned(
    kind: str, seed: int, words: NGram, letters: NGram
) -> None:
    """The sum of a text's paths times what the language model makes of the text and its end."""
    fusion, _, ended = case(kind, seed, words, letters)
    log_probs = random_log_probs(seed, 1 + seed % 5, 4)
    paths = all_paths(log_probs)
    expected = {text: math.log(total) + ended(text) for text, (total, _) in paths.items()}
    search = PrefixBeamSearch(5000, **ALL, fusion=fusion)
    found = nbest(search, log_probs)
    assert scores(found) == exactly(expected)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    for hypothesis, _ in found:  # with the times of the likeliest path all the same
        assert hypothesis[:3] == paths[hypothesis.tokens][1][:3]
    best = search.best(search.step(search.start(), log_probs))
    assert best.tokens == max(expected, key=lambda tokens: expected[tokens])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(60))
def test_a_beam_is_that_of_trying_all_tokens(
    kind: str, seed: int, words: NGram, letters: NGram
) -> None:
    fusion, so_far, ended = case(kind, seed, words, letters)
    beam, log_probs = 1 + seed % 8, random_log_probs(seed, 15, 4, scale=0.5 + seed % 3)
    kept = textbook(log_probs, beam, so_far)
    found = nbest(PrefixBeamSearch(beam, **ALL, fusion=fusion), log_probs)
    assert scores(found) == exactly({t: kept[t] - so_far(t) + ended(t) for t in kept})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_all_texts_of_a_transducer(kind: str, seed: int, words: NGram, letters: NGram) -> None:
    """The same for the sum of a text's alignments: blanks and frames add nothing."""
    fusion, _, ended = case(kind, seed, words, letters)
    own = transducer(**SMALL[seed] | {"max_symbols": 1 + seed % 2})
    encoded = encoded_frames(2, seed)
    totals = alignments(own, encoded)
    found = nbest_of_transducer(
        TransducerBeamSearch(EagerParts(own), beam=10**6, **ALL, fusion=fusion), encoded
    )
    assert scores(found) == exactly({text: totals[text][0] + ended(text) for text in totals})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_a_beam_of_a_transducer_is_that_of_trying_all_tokens(
    kind: str, seed: int, words: NGram, letters: NGram
) -> None:
    fusion, so_far, ended = case(kind, seed, words, letters)
    own, encoded, beam = transducer(**SMALL[seed % 4]), encoded_frames(8, seed), 1 + seed % 8
    kept = definition(own, encoded, beam, so_far)
    search = TransducerBeamSearch(EagerParts(own), beam=beam, **ALL, fusion=fusion)
    found = nbest_of_transducer(search, encoded)
    assert scores(found) == exactly({t: kept[t] - so_far(t) + ended(t) for t in kept})


def test_long_texts_with_a_bonus_do_not_overflow(words: NGram) -> None:
    """Each word multiplies the sums, beyond all that a float can hold: about e to the 710."""
    frames = torch.full((2000, 4), 1e-9)
    frames[range(2000), torch.tensor([2, 0, 1, 0] * 500)] = 1.0
    fusion = WordFusion(Weighted(words, 0.1, 9.0), PIECES, complete_units)
    (best, *_) = nbest(PrefixBeamSearch(fusion=fusion), frames.log().numpy())
    assert best.hypothesis.tokens == (2, 1) * 500
    assert 800 < best.score < 9.0 * 500


def test_a_search_with_one_more_leaves_the_first_as_it_was() -> None:
    """The other prefers its phrase, and prunes no better than it may."""
    search, log_probs = PrefixBeamSearch(3), random_log_probs(0, 15, 4)
    expected = nbest(search, log_probs)
    hotwords = Hotwords({"a b": 9.0}, PIECES)
    with_one = nbest(search.plus(hotwords), log_probs)
    assert with_one == nbest(PrefixBeamSearch(3, fusion=hotwords), log_probs)
    assert with_one != expected == nbest(search, log_probs)
    with pytest.raises(UserError, match="cannot use hotwords; choose search prefix_beam"):
        GreedySearch().plus(hotwords)


SENTENCES = ["THE CAT SAT", "A CAT", "THE MAT SAT", "CAT THE A", "SAT SAT"]


def tokenizers() -> dict[str, Tokenizer]:
    return {
        "characters": CharTokenizer.train(SENTENCES),
        "words": WordTokenizer.train(SENTENCES),
        "unigram": SentencePieceTokenizer.train(SENTENCES * 3, 14, "unigram"),
        "bpe": SentencePieceTokenizer.train(SENTENCES * 3, 14, "bpe"),
    }


@pytest.mark.parametrize("kind", ["characters", "words", "unigram", "bpe"])
def test_words_of_every_tokenizer(kind: str, tmp_path: Path) -> None:
    """Token by token a text adds what its words add; words take one token only of one tokenizer."""
    tokenizer = tokenizers()[kind]
    model = written([text.split() for text in SENTENCES], tmp_path)
    fusion = WordFusion(Weighted(model, 0.7, 0.3), pieces_of(tokenizer), complete_units)
    sizes = []
    for text in [*SENTENCES, "MAT A THE", "CAT"]:
        tokens = tokenizer.encode(text)
        assert decode(tokenizer, tokens) == text
        assert added(fusion, tokens) == pytest.approx(scored(model, text.split(), 0.7, 0.3))
        sizes.append(len(tokens) / len(text.split()))
    assert (max(sizes) > 1) == (kind != "words")


UNSPACED = ["你好，世界。", "好世你", "世界iPhone你", "ที่นี่ไป", "แม่ hello 好"]


@pytest.mark.parametrize("kind", ["characters", "unigram", "bpe"])
@pytest.mark.parametrize("bonus", [0.3, -0.5])
def test_units_of_scripts_without_spaces(kind: str, bonus: float, tmp_path: Path) -> None:
    """Token by token a text adds what its units add, by labels of one character and of several."""
    tokenizer: Tokenizer
    if kind == "characters":
        tokenizer = CharTokenizer(sorted({*"".join(UNSPACED)}))
    else:
        tokenizer = SentencePieceTokenizer.train(UNSPACED * 3, 60, kind)
    model = written([units(text) for text in UNSPACED], tmp_path)
    fusion = WordFusion(Weighted(model, 0.7, bonus), pieces_of(tokenizer), complete_units)
    assert fusion.misfit() == ""
    for text in [*UNSPACED, "好你iPhone世 界", "hello"]:
        assert text not in UNSPACED or all(map(model.has_word, units(text)))
        expected = scored(model, units(text), 0.7, bonus)
        assert added(fusion, tokenizer.encode(text)) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["characters", "unigram", "bpe"])
def test_tokens_of_every_tokenizer(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizers()[kind]
    split = [[as_word(tokenizer.piece(t)) for t in tokenizer.encode(text)] for text in SENTENCES]
    model = written(split, tmp_path)
    fusion = TokenFusion(Weighted(model, 1.0, 0.0), pieces_of(tokenizer))
    for text, words in zip(SENTENCES, split, strict=True):
        assert "<unk>" not in words
        expected = scored(model, words, 1.0, 0.0)
        assert added(fusion, tokenizer.encode(text)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: Weighted(m, -1.0, 0.0), "the weight must be between 0 and 20, got -1"),
        (lambda m: Weighted(m, math.nan, 0.0), "the weight must be between 0 and 20, got nan"),
        (lambda m: Weighted(m, 1.0, 200.0), "the bonus must be between -20 and 20, got 200"),
        (
            lambda m: WordFusion(Weighted(m, 1.0, 0.0), ["", " ", "A", "B"], complete_units),
            "its words, such as 'a', 'ab', 'b', cannot be written with the recogniser's tokens",
        ),
        (
            lambda m: TokenFusion(Weighted(m, 1.0, 0.0), ["", " a", " b"]),
            "its words are 'a', 'ab', 'b', expected the tokens ▁a, ▁b, …",
        ),
    ],
)
def test_model_that_does_not_fit_is_refused_by_name(
    make: Callable[[NGram], object], message: str, words: NGram
) -> None:
    with pytest.raises(ValueError, match=message):
        make(words)


NUMBERS = ["".join(letters) for letters in itertools.product("ab", repeat=8)]
SHARE = "of its words, such as"


@pytest.mark.parametrize(
    ("texts", "pieces", "line"),
    [
        (SENTENCES, " ACEHMST", ""),
        (["the cat SAT"], " ACEHMST", f"67 % {SHARE} 'cat', 'the', cannot be written with the"),
        (["KATZE THE", "ZUG"], " ACEHMST", f"67 % {SHARE} 'KATZE', 'ZUG', cannot be"),
        ([" ".join(["ä", *NUMBERS[:199]])], " ab", ""),  # one of 200
        ([" ".join(["ä", *NUMBERS[:99]])], " ab", f"1 % {SHARE} 'ä', cannot be written"),
        (["你好 世 界"], "你好世界", f"33 % {SHARE} '你好', cannot be written with"),
        (["你 好 世 界"], "你好世界", ""),
    ],
)  # fmt: skip
def test_words_that_no_text_can_have_are_reported(
    texts: list[str], pieces: str, line: str, tmp_path: Path
) -> None:
    """In another spelling, or of several units, into which a recogniser's text is divided."""
    model = written([text.split() for text in texts], tmp_path)
    found = WordFusion(Weighted(model, 0.7, 0.3), ["", *pieces], complete_units).misfit()
    assert found.startswith(line)
    assert bool(found) == bool(line)


def test_tokens_that_the_model_lacks_are_reported(tmp_path: Path) -> None:
    model = written([["a", "b"]], tmp_path)
    fusion = TokenFusion(Weighted(model, 1.0, 0.0), ["", "a", "b", "c", "d"])
    assert fusion.misfit() == "it lacks 2 of the 4 tokens, such as 'c', 'd'"
    assert TokenFusion(Weighted(model, 1.0, 0.0), ["", "a", "b"]).misfit() == ""

"""Warnings before training about the texts of the dev set."""

from collections import Counter

from asrkit.config import Config
from asrkit.errors import shown
from asrkit.text import TextError, Tokenizer
from asrkit.training.dataset import Corpus, texts_of

EXAMPLES = 5
ADVICE = {
    "words": "text.tokenizer=words can write only the words of data.train: use "
    "text.tokenizer=unigram or characters"
}
OTHER_ADVICE = "add recordings with their letters to data.train, or spell data.dev like data.train"


def dev_warning(corpus: Corpus, config: Config) -> str | None:
    """Return a warning if dev has no words, or has words that the labels cannot write, or None."""
    texts = map(corpus.encode.normalize, texts_of(corpus.dev))
    words = Counter(word for text in texts for word in text.split())
    if not words:
        return no_words(len(corpus.dev), config)
    lacking = unwritable(words, corpus.encode.tokenizer)
    if not lacking:
        return None
    count, total = lacking.total(), words.total()
    named = ", ".join(f"{shown(word)} {times}×" for word, times in lacking.most_common(EXAMPLES))
    return (
        f"data.dev {config.data.dev}: {count} of {total} words cannot be written with the labels "
        f"and count as errors ({100 * count / total:.0f} % WER or more); {len(lacking)} different: "
        f"{named}{', …' * (len(lacking) > EXAMPLES)}; "
        f"{ADVICE.get(config.text.tokenizer, OTHER_ADVICE)}"
    )


def no_words(count: int, config: Config) -> str:
    """Return the warning for a dev set of `count` texts without a word."""
    best = config.training.average_of == "best"
    last = ", and the last epoch is used instead of the best" if best else ""
    return (
        f"data.dev {config.data.dev}: none of its {count} texts has a word, so WER and CER cannot "
        f"be computed{last}; name recordings with their texts"
    )


def unwritable(words: Counter[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return the words that the tokenizer cannot encode, with their counts."""
    found = Counter[str]()
    for word, count in words.items():
        try:
            tokenizer.encode(word)
        except TextError:
            found[word] = count
    return found

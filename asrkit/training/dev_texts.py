"""A warning before training about the texts of the dev set."""

from collections import Counter

from asrkit.config import Config
from asrkit.errors import shown
from asrkit.evaluation.wer import without_errors
from asrkit.text import TextError, Tokenizer
from asrkit.text.graphemes import units
from asrkit.training.dataset import MAX_TEXTS, Corpus

EXAMPLES = 5
ADVICE = {
    "words": "text.tokenizer=words can write only the words of data.train: use "
    "text.tokenizer=unigram or characters"
}
OTHER_ADVICE = "add recordings with their letters to data.train, or spell data.dev like data.train"


def dev_warning(corpus: Corpus, config: Config) -> str | None:
    """Return a warning if dev has no words, or has words that the labels cannot write, or None."""
    words = Counter(
        word
        for text in corpus.dev.texts(MAX_TEXTS)
        for word in corpus.encode.normalize(text).split()
    )
    written = [unit for word in words.elements() for unit in units(word)]
    if not written:
        return (
            f"data.dev {config.data.dev}: none of its {len(corpus.dev)} texts has a word, so WER "
            "and CER cannot be computed; name recordings with their texts"
        )
    lacking = unwritable(words, corpus.encode.tokenizer)
    if not lacking:
        return None
    rate = without_errors(written)._replace(deletions=lacking.total())
    named = ", ".join(f"{shown(unit)} {times}×" for unit, times in lacking.most_common(EXAMPLES))
    return (
        f"data.dev {config.data.dev}: {rate.errors} of {len(written)} {rate.unit}s cannot be "
        f"written with the labels and count as errors ({rate.rate:.0f} % {rate.name} or more); "
        f"{len(lacking)} different: {named}{', …' * (len(lacking) > EXAMPLES)}; "
        f"{ADVICE.get(config.text.tokenizer, OTHER_ADVICE)}"
    )


def unwritable(words: Counter[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return the units of words that the tokenizer cannot encode, with their counts."""

    def is_writable(text: str) -> bool:
        try:
            tokenizer.encode(text)
        except TextError:
            return False
        return True

    lacking = Counter[str]()
    for word, count in words.items():
        for unit in units(word) if not is_writable(word) else ():
            lacking[unit] += count * (not is_writable(unit))
    return +lacking

"""Warnings before training about the texts and the recordings of the dev set."""

import os
from collections import Counter

from lhotse import CutSet

from asrkit.config import Config
from asrkit.errors import shown
from asrkit.evaluation.wer import without_errors
from asrkit.text import TextError, Tokenizer
from asrkit.text.graphemes import units
from asrkit.training.dataset import Corpus, texts_of
from asrkit.training.fingerprints import audio_of

EXAMPLES = 5
ADVICE = {
    "words": "text.tokenizer=words can write only the words of data.train: use "
    "text.tokenizer=unigram or characters"
}
OTHER_ADVICE = "add recordings with their letters to data.train, or spell data.dev like data.train"


def dev_warning(corpus: Corpus, config: Config) -> str | None:
    """Return a warning if dev has no words, or has words that the labels cannot write, or None."""
    words = Counter(
        word for text in texts_of(corpus.dev) for word in corpus.encode.normalize(text).split()
    )
    found = [unit for word in words.elements() for unit in units(word)]
    if not found:
        return no_words(len(corpus.dev), config)
    lacking = unwritable(words, corpus.encode.tokenizer)
    if not lacking:
        return None
    rate = without_errors(found)._replace(deletions=lacking.total())
    named = ", ".join(f"{shown(word)} {times}×" for word, times in lacking.most_common(EXAMPLES))
    return (
        f"data.dev {config.data.dev}: {rate.errors} of {len(found)} {rate.unit}s cannot be written "
        f"with the labels and count as errors ({rate.rate:.0f} % {rate.name} or more); "
        f"{len(lacking)} different: "
        f"{named}{', …' * (len(lacking) > EXAMPLES)}; "
        f"{ADVICE.get(config.text.tokenizer, OTHER_ADVICE)}"
    )


def trained_warning(corpus: Corpus, config: Config) -> str | None:
    """Return a warning if the manifest of dev or its recordings are in data.train too, or None.

    Recordings are compared in memory only, not those of an index.
    """
    dev = os.path.realpath(config.data.dev)
    if dev in map(os.path.realpath, config.data.train):
        what = "is in data.train too"
    elif isinstance(corpus.train, CutSet) and isinstance(corpus.dev, CutSet):
        places = {str(audio_of(cut, os.curdir)) for cut in corpus.train}
        count = sum(1 for cut in corpus.dev if str(audio_of(cut, os.curdir)) in places)
        what = f"has {count} of {len(corpus.dev)} recordings in data.train too" if count else ""
    else:
        what = ""
    advice = "its scores do not predict those of new recordings: asrkit data import divides anew"
    return f"data.dev {config.data.dev} {what}; {advice}" if what else None


def no_words(count: int, config: Config) -> str:
    """Return the warning for a dev set of `count` texts without a word."""
    best = config.training.average_of == "best"
    last = ", and the last epoch is used instead of the best" if best else ""
    return (
        f"data.dev {config.data.dev}: none of its {count} texts has a word, so WER and CER cannot "
        f"be computed{last}; name recordings with their texts"
    )


def unwritable(words: Counter[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return the units of words that the tokenizer cannot encode, with their counts."""
    found = Counter[str]()
    for word, count in words.items():
        if not writable(word, tokenizer):
            for unit in units(word):
                found[unit] += count * (not writable(unit, tokenizer))
    return +found


def writable(text: str, tokenizer: Tokenizer) -> bool:
    """Return whether the tokenizer can encode a text."""
    try:
        tokenizer.encode(text)
    except TextError:
        return False
    return True

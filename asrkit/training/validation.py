"""Word error rate and lateness of a model on batches, at several chunk sizes."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from asrkit.audio import SAMPLE_RATE, Fbank, features
from asrkit.data.dataset import Batch
from asrkit.data.manifest import ManifestError
from asrkit.model import FRAME_MS, FULL_CONTEXT, ConformerCTC
from asrkit.search import GreedySearch, Hypothesis
from asrkit.search.align import Delay, align, delays, summarize
from asrkit.text import ErrorRate, TextError, Tokenizer, decode, wer

logger = logging.getLogger(__name__)


def chunk_name(chunk_size: int) -> str:
    """ "full", or the chunk in milliseconds."""
    return "full" if chunk_size == FULL_CONTEXT else f"{chunk_size * FRAME_MS} ms"


class Score(NamedTuple):
    words: ErrorRate
    delay: Delay | None  # of tokens, against their forced alignment in full context

    def __str__(self) -> str:
        if self.delay is None:
            return str(self.words)
        mean, median, p90, last = self.delay
        last_too = "" if last is None else f", last {last:.0f}"
        late = f"{mean:.0f} ms late (median {median:.0f}, 90 % {p90:.0f}{last_too})"
        return f"{self.words}; tokens {late}"


class Outcome(NamedTuple):
    """One utterance in every context, by name of the chunk size."""

    id: str
    seconds: float
    reference: str
    texts: dict[str, str]
    delays: dict[str, tuple[list[int], list[int]]]  # of `align.delays`; none where none aligns


def validate(
    model: ConformerCTC,
    fbank: Fbank,
    tokenizer: Tokenizer,
    batches: Iterable[Batch],
    contexts: list[tuple[int, int]],
) -> dict[str, Score]:
    """Greedy WER and delay for each (chunk_size, left_context), by name of the chunk size."""
    return scores(outcomes(model, fbank, tokenizer, batches, contexts))


def scores(outcomes: Iterable[Outcome]) -> dict[str, Score]:
    """WER and delay over a corpus, by name of the chunk size.

    Raises:
        ManifestError: if there is no utterance.
    """
    outcomes = list(outcomes)
    if not outcomes:
        raise ManifestError("no utterance of the held-out manifest could be read")
    references = [outcome.reference for outcome in outcomes]
    found = {}
    for name in outcomes[0].texts:
        words = wer(references, [outcome.texts[name] for outcome in outcomes])
        late = [outcome.delays[name] for outcome in outcomes if name in outcome.delays]
        tokens, last = ([frames for each in late for frames in each[of]] for of in (0, 1))
        found[name] = Score(words, summarize(tokens, last, FRAME_MS))
    return found


@torch.inference_mode()
def outcomes(
    model: ConformerCTC,
    fbank: Fbank,
    tokenizer: Tokenizer,
    batches: Iterable[Batch],
    contexts: list[tuple[int, int]],
) -> Iterator[Outcome]:
    """Every utterance's greedy texts and delays, as its batch is done."""
    model.eval()
    device = next(model.parameters()).device
    for batch in batches:
        for utterance in batch.left_out:
            logger.warning("not scored %s: %s", utterance.id, utterance.reason)
        if not batch.ids:
            continue
        feats, lengths = features(fbank, batch.samples.to(device), batch.num_samples.to(device))
        full = frames_of(model, feats, lengths, FULL_CONTEXT, 0)
        aligned = [reference_of(f, t, tokenizer) for f, t in zip(full, batch.texts, strict=True)]
        seconds = (batch.num_samples / SAMPLE_RATE).tolist()
        done = [Outcome(*of, {}, {}) for of in zip(batch.ids, seconds, batch.texts, strict=True)]
        for chunk_size, left_context in contexts:
            whole = chunk_size == FULL_CONTEXT
            rows = full if whole else frames_of(model, feats, lengths, chunk_size, left_context)
            for outcome, log_probs, reference in zip(done, rows, aligned, strict=True):
                listen(outcome, log_probs, reference, chunk_size, tokenizer)
        yield from done


def listen(
    outcome: Outcome,
    log_probs: Tensor,
    reference: Hypothesis | None,
    chunk_size: int,
    tokenizer: Tokenizer,
) -> None:
    """Add what is recognised in chunks of this size."""
    search, name = GreedySearch(), chunk_name(chunk_size)
    best = search.best(search.step(search.start(), log_probs))
    outcome.texts[name] = decode(tokenizer, best.tokens)
    if reference is not None:
        outcome.delays[name] = delays(reference, best, chunk_size, len(log_probs))


def frames_of(
    model: ConformerCTC, feats: Tensor, lengths: Tensor, chunk_size: int, left_context: int
) -> list[Tensor]:
    """(E, V) log-probabilities of each row."""
    output = model(feats, lengths, model.init_state(len(feats), left_context), chunk_size)
    return [row[:n] for row, n in zip(output.log_probs, output.lengths.tolist(), strict=True)]


def reference_of(log_probs: Tensor, text: str, tokenizer: Tokenizer) -> Hypothesis | None:
    """Where a text's tokens are; None for what the tokenizer cannot write or CTC cannot align."""
    try:
        return align(log_probs, tokenizer.encode(text))
    except TextError:
        return None

"""Error rates and lateness of a model on batches, at several chunk sizes."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from asrkit.audio import SAMPLE_RATE, Fbank, features
from asrkit.data.dataset import Batch
from asrkit.data.manifest import ManifestError
from asrkit.evaluation.delays import Delay, delays, summarize
from asrkit.evaluation.wer import ErrorRate, Interval, bootstrap, cer, wer
from asrkit.model import BLANK, FRAME_MS, FULL_CONTEXT, ConformerCTC
from asrkit.search import Hypothesis, Search
from asrkit.search.align import align, frames_needed
from asrkit.text import TextError, Tokenizer, decode

logger = logging.getLogger(__name__)


def chunk_name(chunk_size: int) -> str:
    """ "full", or the chunk in milliseconds."""
    return "full" if chunk_size == FULL_CONTEXT else f"{chunk_size * FRAME_MS} ms"


class Loss(NamedTuple):
    """CTC loss of an utterance."""

    nats: float
    tokens: int


class Score(NamedTuple):
    words: ErrorRate
    characters: ErrorRate  # what counts where a language writes no spaces
    delay: Delay | None  # of tokens, against their forced alignment in full context
    each: dict[str, ErrorRate]  # words, of every utterance by id
    loss: float | None = None  # CTC, nats a token; none where no text can be written and aligned

    @property
    def interval(self) -> Interval:
        """95 % of the word error rate in percent."""
        return bootstrap(list(self.each.values()))

    def __str__(self) -> str:
        rates = f"{self.words}, CER {self.characters.rate:.2f} %"
        if self.delay is None:
            return rates
        mean, median, p90, last = self.delay
        last_too = "" if last is None else f", last {last:.0f}"
        late = f"{mean:.0f} ms late (median {median:.0f}, 90 % {p90:.0f}{last_too})"
        return f"{rates}; tokens {late}"


class Outcome(NamedTuple):
    """One utterance in every context, by name of the chunk size."""

    id: str
    seconds: float
    reference: str
    texts: dict[str, str]
    # Of `align.delays`; none where they were not measured or none aligns.
    delays: dict[str, tuple[list[int], list[int]]]
    heard: dict[str, Hypothesis]  # the tokens of the texts
    said: Hypothesis | None = None  # the reference's forced alignment, if it was measured
    # Of the reference; none if it cannot be written or aligned.
    losses: Mapping[str, Loss] = MappingProxyType({})


def scores(outcomes: Iterable[Outcome]) -> dict[str, Score]:
    """Error rates and delay over a corpus, by name of the chunk size.

    Raises:
        ManifestError: if there is no utterance.
    """
    outcomes = list(outcomes)
    if not outcomes:
        raise ManifestError("no utterance of the held-out manifest could be read")
    references = [outcome.reference for outcome in outcomes]
    found = {}
    for name in outcomes[0].texts:
        texts = [outcome.texts[name] for outcome in outcomes]
        late = [outcome.delays[name] for outcome in outcomes if name in outcome.delays]
        tokens, last = ([frames for each in late for frames in each[of]] for of in (0, 1))
        delay = summarize(tokens, last, FRAME_MS)
        each = {outcome.id: wer([outcome.reference], [outcome.texts[name]]) for outcome in outcomes}
        losses = [outcome.losses[name] for outcome in outcomes if name in outcome.losses]
        nats, units = sum(loss.nats for loss in losses), sum(loss.tokens for loss in losses)
        loss = nats / units if units else None
        found[name] = Score(wer(references, texts), cer(references, texts), delay, each, loss)
    return found


def rates(found: dict[str, Score]) -> dict[str, dict[str, float]]:
    """WER and CER in percent, by name of the chunk size."""
    return {
        "wer": {name: score.words.rate for name, score in found.items()},
        "cer": {name: score.characters.rate for name, score in found.items()},
    }


def losses_of(found: dict[str, Score]) -> dict[str, float]:
    """CTC loss a token, by name of the chunk size."""
    return {name: score.loss for name, score in found.items() if score.loss is not None}


class Validation:
    """A model to be heard on held-out batches, in several contexts.

    Args:
        model: is put into evaluation mode.
        fbank: its features.
        tokenizer: of its labels.
        search: for the texts.
        batches: with their references.
        contexts: (chunk_size, left_context) of each.
    """

    def __init__(
        self,
        model: ConformerCTC,
        fbank: Fbank,
        tokenizer: Tokenizer,
        search: Search,
        batches: Iterable[Batch],
        contexts: list[tuple[int, int]],
    ) -> None:
        self.model, self.fbank, self.tokenizer = model, fbank, tokenizer
        self.search, self.batches, self.contexts = search, batches, contexts

    @torch.inference_mode()
    def recognize(self) -> Iterator[Outcome]:
        """Every utterance's texts and losses, as its batch is done."""
        for batch, feats, lengths in with_features(self.model, self.fbank, self.batches):
            yield from self._outcomes(batch, feats, lengths)

    @torch.inference_mode()
    def measure(self) -> Iterator[Outcome]:
        """Every utterance's texts, losses and delays, which take an alignment of each."""
        for batch, feats, lengths in with_features(self.model, self.fbank, self.batches):
            full = frames_of(self.model, feats, lengths, FULL_CONTEXT, 0)
            for i, outcome in enumerate(self._outcomes(batch, feats, lengths, full)):
                said = reference_of(full[i], outcome.reference, self.tokenizer)
                if said is not None:
                    for chunk_size, _ in self.contexts:
                        name = chunk_name(chunk_size)
                        late = delays(said, outcome.heard[name], chunk_size, len(full[i]))
                        outcome.delays[name] = late
                yield outcome._replace(said=said)

    def _outcomes(
        self, batch: Batch, feats: Tensor, lengths: Tensor, full: list[Tensor] | None = None
    ) -> Iterator[Outcome]:
        """Texts and losses of each row; `full`: its frames in full context, if known."""
        search, heard, losses = self.search, {}, {}
        for chunk_size, left_context in self.contexts:
            rows = full if chunk_size == FULL_CONTEXT else None
            rows = rows or frames_of(self.model, feats, lengths, chunk_size, left_context)
            name = chunk_name(chunk_size)
            heard[name] = [search.best(search.step(search.start(), row)) for row in rows]
            losses[name] = [
                loss_of(row, text, self.tokenizer)
                for row, text in zip(rows, batch.texts, strict=True)
            ]
        seconds = (batch.num_samples / SAMPLE_RATE).tolist()
        for i, of in enumerate(zip(batch.ids, seconds, batch.texts, strict=True)):
            hypotheses = {name: rows[i] for name, rows in heard.items()}
            texts = {name: decode(self.tokenizer, each.tokens) for name, each in hypotheses.items()}
            known = {name: loss for name, rows in losses.items() if (loss := rows[i]) is not None}
            yield Outcome(*of, texts, {}, hypotheses, losses=known)


def with_features(
    model: ConformerCTC, fbank: Fbank, batches: Iterable[Batch]
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """The batches that can be heard, with features and lengths; the model is to evaluate."""
    model.eval()
    device = next(model.parameters()).device
    for batch in batches:
        for utterance in batch.left_out:
            logger.warning("not scored %s", utterance)
        if batch.ids:
            samples, num_samples = batch.samples.to(device), batch.num_samples.to(device)
            yield batch, *features(fbank, samples, num_samples)


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


def loss_of(log_probs: Tensor, text: str, tokenizer: Tokenizer) -> Loss | None:
    """CTC loss of a text; None for what the tokenizer cannot write or CTC cannot align."""
    try:
        tokens = tokenizer.encode(text)
    except TextError:
        return None
    frames = len(log_probs)
    if not tokens or frames_needed(tokens) > frames:
        return None
    loss = functional.ctc_loss(
        log_probs[:, None], torch.tensor([tokens], device=log_probs.device),
        torch.tensor([frames]), torch.tensor([len(tokens)]), BLANK, reduction="sum",
    )  # fmt: skip
    return Loss(float(loss), len(tokens))

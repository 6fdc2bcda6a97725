"""Word error rate of a model on batches, at several chunk sizes."""

import logging
from collections.abc import Iterable

import torch

from asrkit.audio import Fbank, features
from asrkit.data.dataset import Batch
from asrkit.data.manifest import ManifestError
from asrkit.model import FRAME_MS, FULL_CONTEXT, ConformerCTC
from asrkit.search import GreedySearch
from asrkit.text import ErrorRate, Tokenizer, decode, wer

logger = logging.getLogger(__name__)


def chunk_name(chunk_size: int) -> str:
    """ "full", or the chunk in milliseconds."""
    return "full" if chunk_size == FULL_CONTEXT else f"{chunk_size * FRAME_MS} ms"


@torch.inference_mode()
def validate(
    model: ConformerCTC,
    fbank: Fbank,
    tokenizer: Tokenizer,
    batches: Iterable[Batch],
    contexts: list[tuple[int, int]],
) -> dict[str, ErrorRate]:
    """Greedy WER for each (chunk_size, left_context), by name of the chunk size."""
    model.eval()
    search = GreedySearch()
    device = next(model.parameters()).device
    references: list[str] = []
    hypotheses: dict[str, list[str]] = {chunk_name(chunk): [] for chunk, _ in contexts}
    for batch in batches:
        for utterance in batch.left_out:
            logger.warning("not scored %s: %s", utterance.id, utterance.reason)
        references += batch.texts
        if not batch.ids:
            continue
        feats, lengths = features(fbank, batch.samples.to(device), batch.num_samples.to(device))
        for chunk_size, left_context in contexts:
            state = model.init_state(len(batch.ids), left_context)
            output = model(feats, lengths, state, chunk_size)
            for log_probs, length in zip(output.log_probs, output.lengths.tolist(), strict=True):
                best = search.best(search.step(search.start(), log_probs[:length]))
                hypotheses[chunk_name(chunk_size)].append(decode(tokenizer, best.tokens))
    if not references:
        raise ManifestError("no utterance of data.dev could be read")
    return {name: wer(references, texts) for name, texts in hypotheses.items()}

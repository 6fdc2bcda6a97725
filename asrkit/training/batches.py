"""Batches: to score, and for a training loop that may be one of several."""

import logging

import torch
from lhotse import CutSet
from torch.utils.data import DataLoader

from asrkit.build import build_normalizer
from asrkit.data.cuts import load_cuts
from asrkit.data.dataset import Batch, SpeechDataset, TextEncoder
from asrkit.data.manifest import LeftOut
from asrkit.data.sampling import EpochBatches
from asrkit.model_file import ModelFile

logger = logging.getLogger(__name__)


def loaded(dataset: SpeechDataset, batches: EpochBatches, num_workers: int) -> DataLoader[Batch]:
    """Batches read ahead by worker processes."""
    return DataLoader(dataset, batch_size=None, sampler=batches, num_workers=num_workers)


def held_out(
    cuts: CutSet,
    encode: TextEncoder,
    max_batch_seconds: float,
    num_workers: int = 0,
) -> DataLoader[Batch]:
    """Batches to score, not to train on: every utterance once, as it was recorded."""
    batches = EpochBatches(cuts, max_batch_seconds, num_buckets=20, seed=0, epoch=0)
    return loaded(SpeechDataset(encode, to_train=False), batches, num_workers)


def held_out_manifest(path: str, file: ModelFile, max_batch_seconds: float) -> DataLoader[Batch]:
    """A manifest in batches for a model; what cannot be read is named and left out."""
    left_out: list[LeftOut] = []
    cuts = load_cuts(path, left_out)
    for utterance in left_out:
        logger.warning("not scored %s", utterance)
    encode = TextEncoder(file.tokenizer, build_normalizer(file.config.text))
    return held_out(cuts, encode, max_batch_seconds)


def report_left_out(batch: Batch) -> None:
    for utterance in batch.left_out:
        logger.warning("left out %s", utterance)


def filler() -> Batch:
    """A second of silence, for a rank that has nothing left but has to step with the others."""
    one = torch.ones(1, dtype=torch.int64)
    return Batch("filler", [], torch.zeros(1, 16000), one * 16000, one[None], one, [], [], 0.0)

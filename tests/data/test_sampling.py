"""Batches: within budget, in an order that can be resumed and shared."""

import functools
import operator
import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from asrkit.config.training import AugmentationConfig, DataConfig
from asrkit.data.recordings import Recordings, load_recordings
from asrkit.data.sampling import EpochBatches
from asrkit.training.utterances import Augmentation, SpeechDataset
from tests.data.encoding import ENCODE

ALL = list(range(12))  # places of the corpus


def order(corpus: Path, **options: int) -> list[tuple[str, list[str]]]:
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    batches = EpochBatches(recordings.durations, 4.0, 2, **({"seed": 0, "epoch": 0} | options))
    return [(seed, [recordings[place].id for place in places]) for seed, places in batches]


def test_every_utterance_once_within_the_budget(corpus: Path) -> None:
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    batches = [ids for _, ids in order(corpus)]
    assert sorted(functools.reduce(operator.iadd, batches, [])) == sorted(
        each.id for each in recordings
    )
    seconds = {each.id: each.duration or 0.0 for each in recordings}
    assert max(sum(seconds[name] for name in ids) for ids in batches) <= 4.0 + 1.6


@pytest.mark.parametrize("chosen", [None, np.arange(20, 80)])
def test_padding_is_the_share_of_each_batch_beyond_its_utterances(
    chosen: np.ndarray | None,
) -> None:
    durations = np.random.default_rng(0).uniform(1.0, 9.0, 100)
    batches = EpochBatches(durations, 40.0, 5, seed=0, epoch=0, chosen=chosen)
    found = [durations[places] for _, places in batches]
    audio, full = sum(map(sum, found)), sum(len(each) * max(each) for each in found)
    assert batches.padding == pytest.approx(1.0 - audio / full, abs=1e-12)
    assert 0.02 < batches.padding < 0.5
    one = EpochBatches(np.ones(100), 40.0, 5, seed=0, epoch=0)
    assert one.padding == 0.0


def first_places(count: int, epoch: int) -> list[int]:
    """Where in the manifest the first utterances of an epoch stand."""
    batches = EpochBatches(np.ones(count), 50.0, 2, seed=0, epoch=epoch)
    return [place for _, batch in islice(batches, 20) for place in batch]


def test_a_large_manifest_is_shuffled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands last may come first, in another order each epoch."""
    places = first_places(30_000, epoch=0)
    assert 0.28 < np.mean([place >= 20_000 for place in places]) < 0.39
    assert places == first_places(30_000, epoch=0)
    assert places != first_places(30_000, epoch=1)
    # Control: in order.
    monkeypatch.setattr(random.Random, "shuffle", lambda self, items: None)
    assert np.mean([place >= 20_000 for place in first_places(30_000, epoch=0)]) < 0.05


def length_at_the_end(batches: Iterable[Sequence[float]]) -> float:
    """Mean length of utterances in an epoch's last twentieth, as a share of that in all."""
    means = [np.mean(batch) for batch in batches]
    return float(np.mean(means[-len(means) // 20 :]) / np.mean(means))


def test_the_last_batches_are_like_the_others() -> None:
    lengths = np.random.default_rng(0).choice([0.8, 3.0, 5.0], 2000)
    batches = EpochBatches(lengths, 24.0, 3, seed=0, epoch=0)
    assert 0.85 < length_at_the_end(lengths[batch] for _, batch in batches) < 1.15
    # Control: in order of length.
    assert not 0.85 < length_at_the_end(np.split(np.sort(lengths), 100)) < 1.15


def test_resuming_and_ranks(corpus: Path) -> None:
    whole = order(corpus)
    assert order(corpus, start=2) == whole[2:]
    assert order(corpus, rank=0, world_size=2) == whole[0::2]
    assert order(corpus, rank=1, world_size=2) == whole[1::2]
    assert order(corpus, start=2, rank=1, world_size=2) == whole[3::2]


def test_fewer_utterances_than_buckets(corpus: Path) -> None:
    recordings = load_recordings(str(corpus / "dev.jsonl"), [])
    for count, buckets in ((3, 10), (1, 10), (3, 1)):
        batches = EpochBatches(recordings.durations[:count], 4.0, buckets, 0, 0)
        assert sorted(place for _, batch in batches for place in batch) == list(range(count))


def augmented(corpus: Path, recordings: Recordings, **options: object) -> SpeechDataset:
    noise = load_recordings(str(corpus / "dev.jsonl"), [])
    values = {"noise_probability": 1.0, "noise_snr_db": (0.0, 10.0), "reverb_probability": 0.5,
              "silence_seconds": 2.0} | options  # fmt: skip
    augmentation = Augmentation(noise, AugmentationConfig(**values))  # type: ignore[arg-type]
    return SpeechDataset(recordings, ENCODE, augmentation)


@pytest.mark.parametrize("name", ["silence", "telephone"])
def test_a_share_of_the_utterances_is_augmented(name: str, corpus: Path) -> None:
    """The same utterances for the same seed; the others are untouched."""
    recordings = load_recordings(str(corpus / "train.jsonl"), [])
    options = {"noise_probability": 0.0, "reverb_probability": 0.0, f"{name}_probability": 0.5}
    dataset, plain = augmented(corpus, recordings, **options), SpeechDataset(recordings, ENCODE)

    def rows(dataset: SpeechDataset, seed: str) -> list[torch.Tensor]:
        batch = dataset[(seed, ALL)]
        return [row[:size] for row, size in zip(batch.samples, batch.num_samples, strict=True)]

    clean, first, again, other = rows(plain, "a"), *(rows(dataset, seed) for seed in "aab")
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))
    assert 4 < sum(map(torch.equal, first + other, clean + clean)) < 20  # of 24
    assert max(len(a) - len(b) for a, b in zip(first + other, clean + clean, strict=True)) <= 64000


def test_an_augmentation_that_fails_leaves_its_utterance_out(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("no room")

    monkeypatch.setattr(Augmentation, "__call__", fails)
    batch = augmented(corpus, load_recordings(str(corpus / "dev.jsonl"), []))[("a", [0, 1, 2])]
    assert batch.ids == []
    assert [u.reason for u in batch.left_out] == ["no room"] * 3


def padding(num_buckets: int) -> float:
    """Share of the batches that is padding, of utterances as speech has them: 1 to 17 seconds."""
    seconds = np.random.default_rng(0).lognormal(1.2, 0.6, 3000).clip(1.0, 17.0)
    batches = [seconds[batch] for _, batch in EpochBatches(seconds, 32.0, num_buckets, 0, 0)]
    padded = sum(len(batch) * max(batch) for batch in batches)
    return 1.0 - sum(map(sum, batches)) / padded


def test_little_is_padding() -> None:
    assert padding(DataConfig.model_fields["num_buckets"].default) < 0.08
    assert padding(1) > 0.25  # the control

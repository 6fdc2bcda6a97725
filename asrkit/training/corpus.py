"""The training data: checked utterances, the tokenizer, the statistics of the features."""

import hashlib
import random
from typing import NamedTuple

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from torch import Tensor

from asrkit.audio import SAMPLE_RATE, AudioError, Frontend, features
from asrkit.build import build_frontend, build_normalizer, train_tokenizer
from asrkit.config import Config
from asrkit.data.cuts import load_cuts, perturb_speed, text_of, usable
from asrkit.data.dataset import TextEncoder, load_samples
from asrkit.data.manifest import LeftOut, ManifestError


class Corpus(NamedTuple):
    """The training and dev sets, checked, with their tokenizer."""

    train: CutSet  # each utterance at each speed
    dev: CutSet
    encode: TextEncoder
    seconds: float  # of train
    left_out: list[LeftOut]
    fingerprints: tuple[str, str]  # of train and dev
    noise: CutSet | None = None  # recordings to mix in


def load_corpus(config: Config) -> Corpus:
    """Read and check both manifests; the tokenizer is made from the training texts.

    Raises:
        ManifestError: if nothing usable is left.
    """
    left_out: list[LeftOut] = []
    train, dev = load_cuts(config.data.train, left_out), load_cuts(config.data.dev, left_out)
    text = config.text
    tokenizer = train_tokenizer(text, (text_of(cut) for cut in train))
    encode = TextEncoder(
        tokenizer, build_normalizer(text), config.model.num_frames, build_frontend(config.model)
    )

    def too_long(cut: Cut) -> str | None:
        shortest, longest = config.data.min_seconds, config.data.max_seconds
        if shortest <= cut.duration <= longest:
            return None
        limits = f"data.min_seconds {shortest} and data.max_seconds {longest}"
        return f"{cut.duration:.2f} s long: not between {limits}"

    def why_not(cut: Cut) -> str | None:
        samples = int(cut.duration * SAMPLE_RATE)
        return too_long(cut) or encode.why_not(text_of(cut), samples)

    train = usable(perturb_speed(train, config.augmentation.speed_factors), why_not, left_out)
    dev = usable(dev, too_long, left_out)  # texts that cannot be encoded count as errors
    for cuts, path in ((train, config.data.train), (dev, config.data.dev)):
        if next(iter(cuts), None) is None:
            reasons = "".join(f"\n  {u}" for u in left_out[:5])
            raise ManifestError(f"{path} has no usable utterance{reasons}")
    (seconds, of_train), (_, of_dev) = measured(train), measured(dev)
    noise = config.augmentation.noise
    noises = None
    if noise is not None:
        noises = load_cuts(noise, left_out).resample(SAMPLE_RATE).to_eager()
        if not len(noises):
            raise ManifestError(f"augmentation.noise {noise} has no usable recording")
    return Corpus(train, dev, encode, seconds, left_out, (of_train, of_dev), noises)


def measured(cuts: CutSet) -> tuple[float, str]:
    """Total seconds, and a fingerprint: SHA-256 of all ids and durations in order."""
    seconds, found = 0.0, hashlib.sha256()
    for number, cut in enumerate(cuts):
        seconds += cut.duration
        line = f"{cut.id} {cut.duration}"
        found.update((f"\n{line}" if number else line).encode(errors="surrogatepass"))
    return seconds, found.hexdigest()


def hours_of_epoch(hours: float, speed_factors: list[float]) -> str:
    """The hours of an epoch as text, with those of the recordings if there are several speeds."""
    shown = f"{hours:.2f} h"
    if speed_factors == [1.0]:
        return shown
    recorded = hours / sum(1.0 / factor for factor in speed_factors)
    count = len(speed_factors)
    return f"{shown} ({recorded:.2f} h at {count} speed{'s' if count > 1 else ''})"


def feature_statistics(
    cuts: CutSet, frontend: Frontend, max_seconds: float = 1200.0
) -> tuple[Tensor, Tensor]:
    """Mean (F,) and 1 / standard deviation (F,) of the log mels of about `max_seconds` of audio."""
    sums = torch.zeros(2, frontend.num_mels, dtype=torch.float64)
    frames, seconds = 0, 0.0
    chosen = cuts if cuts.is_lazy else random.Random(0).sample(list(cuts), len(cuts))
    for cut in chosen:
        if seconds > max_seconds:
            break
        try:
            samples = torch.from_numpy(load_samples(cut))[None]
        except AudioError:  # the training loop logs it
            continue
        feats = features(frontend, samples, torch.tensor([samples.size(1)]))[0][0]  # (T, F)
        feats = feats[frontend.lead_frames :].double()
        sums += torch.stack([feats.sum(0), feats.square().sum(0)])
        frames, seconds = frames + len(feats), seconds + cut.duration
    if frames == 0:
        raise ManifestError("the audio of no training utterance could be read")
    mean = sums[0] / frames
    variance = (sums[1] / frames - mean.square()).clamp(min=1e-4)
    return mean.float(), variance.rsqrt().float()

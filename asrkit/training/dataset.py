"""Training data: checked utterances, the tokenizer, the statistics of the features."""

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from asrkit.audio import SAMPLE_RATE, Frontend, features
from asrkit.build import build_frontend, build_normalizer, read_tokenizer
from asrkit.build_network import frames_needed
from asrkit.config.schema import Config
from asrkit.data.manifest import LeftOut, ManifestError
from asrkit.data.recordings import Joined, Recordings, load_recordings
from asrkit.data.text_encoder import TextEncoder
from asrkit.errors import UserError
from asrkit.text import TextError, Tokenizer, end_of_turn
from asrkit.training.distributed import Ranks
from asrkit.training.labels import tokenizer_of

logger = logging.getLogger(__name__)

MOST_SECONDS = 1200.0  # of audio whose features are measured
MAX_TEXTS = 100_000  # texts of a set that are checked, and that the labels must write


class Corpus(NamedTuple):
    """The training and dev sets, checked, with their tokenizer."""

    train: Recordings | Joined  # each utterance at each speed: the new ones, then those of replay
    dev: Recordings
    encode: TextEncoder
    seconds: float  # length of an epoch, with its replay
    left_out: list[LeftOut]
    identity: dict[str, str]  # hashes of the tokenizer and of each set's utterances, by name
    num_new: int  # utterances of data.train
    canary: dict[str, Recordings]  # more dev sets, by name
    noise: Recordings | None = None  # recordings to mix in


def load_corpus(config: Config, labels: Path | None = None) -> Corpus:
    """Read and check both manifests, and train the tokenizer or keep that of the first model.

    If a set has more than MAX_TEXTS utterances, only durations and lengths of texts are checked
    here. Utterances with texts that cannot be learned are later left out of their batches.

    Args:
        labels: file with the bytes of a tokenizer, which is used if the file exists.
    """
    left_out: list[LeftOut] = []
    data = config.data
    train = [*readable(data.train, config, left_out), *readable(data.replay, config, left_out)]
    (dev,) = readable([data.dev], config, left_out)
    if labels is not None and labels.is_file():
        tokenizer = read_tokenizer(config.text, labels.read_bytes())
    else:
        tokenizer = tokenizer_of(config, [text for part in train for text in part.texts(MAX_TEXTS)])
        if any(len(part) > MAX_TEXTS for part in train):
            logger.info("labels: %d texts of each set are read", MAX_TEXTS)
    encode = text_encoder(config, tokenizer)
    paths, factors = [*data.train, *data.replay], config.augmentation.speed_factors
    train = [
        fitting(part.at_speeds(factors), path, config, left_out, encode)
        for part, path in zip(train, paths, strict=True)
    ]
    # Texts of dev that cannot be encoded count as errors.
    dev = fitting(dev, data.dev, config, left_out)
    canary = {
        name: fitting(readable([path], config, left_out)[0], path, config, left_out)
        for name, path in data.canary.items()
    }
    first = len(data.train)
    identity = {
        "the tokenizer": hashlib.sha256(tokenizer.to_bytes()).hexdigest(),
        "the training utterances": fingerprint(train[:first], data.train),
        "the dev utterances": fingerprint([dev], [data.dev]),
    }
    seconds = sum(float(np.add.accumulate(part.durations)[-1]) for part in train[:first])
    if data.replay:
        seconds /= 1.0 - data.replay_share
        identity["the replay utterances"] = fingerprint(train[first:], data.replay)
    return Corpus(
        train[0] if len(train) == 1 else Joined(train), dev, encode, seconds, left_out,
        identity, sum(map(len, train[:first])), canary, noises_of(config, left_out),
    )  # fmt: skip


def fingerprint(sets: Sequence[Recordings], manifests: Sequence[str]) -> str:
    """Hash the utterances of several manifests."""
    digest = hashlib.sha256()
    for part, manifest in zip(sets, manifests, strict=True):
        part.update(digest, os.path.abspath(os.path.dirname(manifest)))
    return digest.hexdigest()


def noises_of(config: Config, left_out: list[LeftOut]) -> Recordings | None:
    """Return the recordings of augmentation.noise; None without it."""
    noise = config.augmentation.noise
    if noise is None:
        return None
    noises = load_recordings(noise, left_out)
    if not len(noises):
        raise ManifestError(f"augmentation.noise {noise} has no usable recording")
    return noises


def shared_corpus(config: Config, ranks: Ranks, labels: Path | None = None) -> Corpus:
    """Run `load_corpus` on the first rank and return its result on all ranks."""

    def packed() -> tuple[dict[str, Any], bytes]:
        fields = load_corpus(config, labels)._asdict()
        return fields, fields.pop("encode").tokenizer.to_bytes()

    fields, tokenizer = ranks.from_first(packed)
    return Corpus(**fields, encode=text_encoder(config, read_tokenizer(config.text, tokenizer)))


def text_encoder(config: Config, tokenizer: Tokenizer) -> TextEncoder:
    """Return the encoder of texts for the configuration's model."""
    return TextEncoder(
        tokenizer, build_normalizer(config.text), config.model.rate.num_frames,
        frames_needed(config.model), build_frontend(config.model),
        end_of_turn(tokenizer) if config.text.end_of_turn else None,
    )  # fmt: skip


def readable(paths: Sequence[str], config: Config, left_out: list[LeftOut]) -> list[Recordings]:
    """Return the utterances of a set's manifests; others are appended to `left_out`.

    Raises:
        ManifestError: if more than data.max_bad_share of the set cannot be read.
    """
    bad: list[LeftOut] = []
    sets, share = [load_recordings(path, bad) for path in paths], config.data.max_bad_share
    count = sum(map(len, sets)) + len(bad)
    if len(bad) > share * count:
        reasons = "".join(f"\n  {each}" for each in bad[:5])
        raise ManifestError(
            f"{', '.join(paths)}: {len(bad)} of {count} utterances cannot be read, more than "
            f"data.max_bad_share {share:g}{reasons}"
        )
    left_out += bad
    return sets


def fitting(
    part: Recordings, path: str, config: Config, left_out: list[LeftOut],
    encode: TextEncoder | None = None,
) -> Recordings:  # fmt: skip
    """Select the utterances of the right length and, for training, with texts that can be learned.

    Args:
        part: utterances of the manifest `path`; of more than MAX_TEXTS, only the presence of a
            text is checked.
        left_out: list to which the other utterances are appended, once for all their speeds.
        encode: encoder of the training texts; None does not check texts.

    Raises:
        ManifestError: if no utterance is left.
    """
    shortest, longest = config.data.min_seconds, config.data.max_seconds
    limits = f"data.min_seconds {shortest} and data.max_seconds {longest}"
    seconds = part.durations
    fits = (shortest <= seconds) & (seconds <= longest)
    if encode is not None:
        fits &= part.has_text
    doubtful = np.ones_like(fits) if encode is not None and len(part) <= MAX_TEXTS else ~fits
    places, rows = np.flatnonzero(doubtful).tolist(), part.rows
    problems: dict[int, LeftOut] = {}  # of the first speed of each row that has one
    for place, each in zip(places, part.chosen(doubtful), strict=True):
        length, reason = float(seconds[place]), None
        if not shortest <= length <= longest:
            reason = f"{length:.2f} s long: not between {limits}"
        elif not fits[place]:
            reason = "empty text"
        elif encode is not None:
            reason = encode.why_not(each.text or "", int(length * SAMPLE_RATE))
        if reason is not None:
            problems.setdefault(int(rows[place]), LeftOut(each.id, reason))
            fits[place] = False
    left_out += problems.values()
    chosen = part.chosen(fits)
    if not len(chosen):
        reasons = "".join(f"\n  {utterance}" for utterance in left_out[:5])
        raise ManifestError(f"{path} has no usable utterance{reasons}")
    return chosen


def unwritable(corpus: Corpus, path: str) -> str | None:
    """Return a warning about texts of dev, the manifest `path`, that the labels cannot write."""
    problems, texts = list[str](), corpus.dev.texts(MAX_TEXTS)
    for text in texts:
        try:
            corpus.encode(text)
        except TextError as error:
            problems.append(str(error))
    if not problems:
        return None
    return (
        f"data.dev {path}: {len(problems)} of {len(texts)} texts cannot be written with the labels "
        f"and count as errors, for example: {problems[0]}; asrkit data check finds all"
    )


def feature_statistics(
    recordings: Recordings | Joined, frontend: Frontend
) -> tuple[Tensor, Tensor]:
    """Return mean (F,) and 1 / standard deviation (F,) of the log mels of about MOST_SECONDS."""
    sums = np.zeros((2, frontend.num_mels))
    frames, seconds = 0, 0.0
    unread: UserError | None = None
    for place in map(int, np.random.default_rng(0).permutation(len(recordings))):
        if seconds > MOST_SECONDS:
            logger.info("mean and variance of the features are those of %.0f s of audio", seconds)
            break
        try:
            samples = recordings.load(place)[None]
        except UserError as error:  # the training loop logs it
            unread = error
            continue
        feats = features(frontend, samples, np.array([samples.shape[1]]))[0][0]  # (T, F)
        feats = feats[frontend.lead_frames :].astype(np.float64)
        sums += np.stack([feats.sum(axis=0), np.square(feats).sum(axis=0)])
        frames, seconds = frames + len(feats), seconds + float(recordings.durations[place])
    if frames == 0:
        raise ManifestError(
            f"none of {len(recordings)} training utterances can be read; one of them: {unread}"
        )
    mean = sums[0] / frames
    variance = (sums[1] / frames - np.square(mean)).clip(1e-4)
    return torch.from_numpy(mean).float(), torch.from_numpy(variance**-0.5).float()

"""Batches of recordings: load, augment, encode, pad. Utterances that fail are left out by id."""

import random
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit import audio
from asrkit.config.training import AugmentationConfig
from asrkit.data.manifest import LeftOut
from asrkit.data.recording import Recording
from asrkit.data.recordings import Joined, Recordings, load
from asrkit.data.text_encoder import TextEncoder
from asrkit.text import TextError
from asrkit.training import augment


class Batch(NamedTuple):
    """A batch of B utterances, without the unusable ones in `left_out`."""

    seed: str  # seed of every random draw for this batch
    ids: list[str]
    samples: Tensor  # (B, N) float32 at 16 kHz, zero-padded
    num_samples: Tensor  # (B,)
    tokens: Tensor  # (B, U), zero-padded
    token_lengths: Tensor  # (B,)
    texts: list[str]  # normalised
    left_out: list[LeftOut]
    num_bad: int  # utterances in `left_out` that could not be read
    seconds: float  # durations in the manifest, including `left_out`, without added silences


class Augmentation(NamedTuple):
    """Rooms (Luo and Yu 2022), noise, silences and a telephone, each with its probability.

    Augmentation changes the same samples that decoding uses, after the reader and the resampler.
    Silence is common in streams and rare in corpora.
    """

    noise: Recordings | None  # recordings to mix in, or None
    options: AugmentationConfig

    def __call__(self, samples: np.ndarray, draw: random.Random) -> np.ndarray:
        """Augment samples (n,) at 16 kHz, by `draw` and, for rooms, torch's generator."""
        options = self.options
        if happens(options.reverb_probability, draw):
            samples = augment.in_a_room(samples, draw.getrandbits(31), draw.getrandbits(31))
        if self.noise is not None and happens(options.noise_probability, draw):
            noise = self.drawn_noise(len(samples) / audio.SAMPLE_RATE, draw)
            samples = augment.mix_noise(samples, noise, draw.uniform(*options.noise_snr_db))
        if happens(options.pause_probability, draw):
            samples = augment.with_pauses(samples, options.pause_seconds, draw)
        if happens(options.silence_probability, draw):
            samples = augment.between_silences(samples, options.silence_seconds, draw)
        if happens(options.telephone_probability, draw):
            samples = augment.through_telephone(samples)
        return samples

    def drawn_noise(self, seconds: float, draw: random.Random) -> np.ndarray:
        """Return a random recording of noise, at most about `seconds` long: (n,) at 16 kHz."""
        assert self.noise is not None
        recording = self.noise[draw.randrange(len(self.noise))]
        longer = (recording.duration or 0.0) - seconds
        if longer > 0.0:
            start = (recording.start or 0.0) + draw.uniform(0.0, longer)
            recording = recording.model_copy(update={"start": start, "duration": seconds})
        return load(recording)


def happens(probability: float, draw: random.Random) -> bool:
    """Draw whether an event happens; a probability of 0 uses no random number."""
    return probability > 0.0 and draw.random() < probability


@dataclass(eq=False)
class SpeechDataset(torch.utils.data.Dataset[Batch]):
    """A dataset of batches of tensors. Every random draw depends only on a batch's seed."""

    recordings: Recordings | Joined
    encode: TextEncoder
    augmentation: Augmentation | None = None
    # Leave out utterances with texts that cannot be learnt. For scoring, leave out only those
    # without a text: words that the tokenizer cannot encode count as errors.
    to_train: bool = True

    def __getitem__(self, item: tuple[str, list[int]]) -> Batch:
        """Return the batch for (seed, indices of the utterances)."""
        seed, places = item
        seed_everything(f"{seed}-audio")  # rooms draw from torch too
        draw = random.Random(f"{seed}-audio")
        ids, samples, tokens, texts, left_out = [], [], [], [], []
        num_bad = 0
        for place in places:
            name = f"utterance {place}"
            try:
                recording = self.recordings[place]
                name = recording.id
                loaded = self.recordings.load(place)
                if self.augmentation is not None:
                    loaded = self.augmentation(loaded, draw)
            except Exception as error:  # decoders and lhotse raise many types
                left_out.append(LeftOut(name, str(error) or type(error).__name__))
                num_bad += 1
                continue
            try:
                text, labels = self.read(recording, len(loaded))
            except TextError as error:
                left_out.append(LeftOut(name, str(error)))
                continue
            ids.append(name)
            samples.append(torch.from_numpy(loaded))
            texts.append(text)
            tokens.append(torch.tensor(labels))
        return Batch(
            seed=seed,
            ids=ids,
            samples=pad(samples, torch.float32),
            num_samples=torch.tensor([len(s) for s in samples], dtype=torch.int64),
            tokens=pad(tokens, torch.int64),
            token_lengths=torch.tensor([len(t) for t in tokens], dtype=torch.int64),
            texts=texts,
            left_out=left_out,
            num_bad=num_bad,
            seconds=sum(self.recordings.durations[places].tolist()),
        )

    def read(self, recording: Recording, num_samples: int) -> tuple[str, list[int]]:
        """Return a recording's normalised text and its tokens, which are [0] for scoring.

        Raises:
            TextError: if the recording has no text, or its text cannot be learnt from its samples.
        """
        if self.to_train:
            return self.encode.learnable(recording.text or "", num_samples)
        if recording.text is None:
            raise TextError("no text")
        return self.encode.normalize(recording.text), [0]


def seed_everything(seed: str) -> None:
    """Seed the global generators, so that resuming needs no generator state."""
    random.seed(seed)
    torch.manual_seed(zlib.crc32(seed.encode()))


def pad(rows: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Join rows of different lengths to a zero-padded tensor; (0, 0) without rows."""
    return pad_sequence(rows, batch_first=True) if rows else torch.zeros(0, 0, dtype=dtype)

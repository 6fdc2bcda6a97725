"""From cuts to batches: load, augment, encode, pad. Utterances that fail are left out by id."""

import random
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from lhotse import CutSet
from lhotse.cut import Cut
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from asrkit import audio
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import has_text, text_of
from asrkit.data.indexed_cuts import Cuts, durations_of
from asrkit.data.manifest import LeftOut
from asrkit.text import TextError, Tokenizer


class Batch(NamedTuple):
    """B utterances, without those of `left_out`, which could not be used."""

    seed: str  # of every random draw made for this batch
    ids: list[str]
    samples: Tensor  # (B, N) float32 at 16 kHz, zero-padded
    num_samples: Tensor  # (B,)
    tokens: Tensor  # (B, U), zero-padded
    token_lengths: Tensor  # (B,)
    texts: list[str]  # normalised
    left_out: list[LeftOut]
    num_bad: int  # of those left out: the ones that could not be read
    seconds: float  # by the manifest: with those left out, without augmentation's silences


class TextEncoder:
    """Raw text to (normalised text, tokens).

    Args:
        tokenizer: of normalised text.
        normalize: gives every text one spelling.
        num_frames: function that returns the encoder frames of a number of feature frames.
        frames_needed: function that returns the fewest frames which the head needs for tokens.
        frontend: the network's frontend; Kaldi's if None.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        normalize: Callable[[str], str],
        num_frames: Callable[[int], int],
        frames_needed: Callable[[Sequence[int]], int],
        frontend: audio.Frontend | None = None,
    ) -> None:
        self.tokenizer, self.normalize = tokenizer, normalize
        self.num_frames, self.frames_needed = num_frames, frames_needed
        self.frontend = frontend or audio.Fbank()

    def __call__(self, text: str) -> tuple[str, list[int]]:
        """Raises TextError for a symbol that the tokenizer does not have."""
        text = self.normalize(text)
        return text, self.tokenizer.encode(text)

    def learnable(self, text: str, num_samples: int) -> tuple[str, list[int]]:
        """Return what `__call__` returns, for a text that fits its samples at 16 kHz.

        Raises:
            TextError: if the network cannot learn the text from so many samples.
        """
        if not text.strip():
            raise TextError("empty text")
        text, tokens = self(text)
        frames = self.num_frames(self.frontend.num_frames(num_samples))
        needed = self.frames_needed(tokens)
        if frames < needed:
            raise TextError(f"too short: {frames} encoder frames, but its labels need {needed}")
        return text, tokens

    def why_not(self, text: str, num_samples: int) -> str | None:
        """Return why the network cannot learn a text from so many samples, or None if it can."""
        try:
            self.learnable(text, num_samples)
        except TextError as error:
            return str(error)
        return None


class Augmentation(NamedTuple):
    """Reverberation, noise, silence before and after, and a telephone, each with a probability.

    They change the samples that decoding gets, after the reader and the resampler.

    Attributes:
        noise: cuts to mix in, or None.
        noise_probability: of noise, where there is any.
        noise_snr_db: lowest and highest ratio of speech to noise.
        reverb_probability: of the impulse response of a random synthetic room (Luo and Yu 2022).
        silence_probability: of silence, which streams are full of and corpora lack.
        silence_seconds: longest silence, before and after.
        telephone_probability: of 8 kHz and 8 bits.
    """

    noise: CutSet | None
    noise_probability: float
    noise_snr_db: tuple[float, float]
    reverb_probability: float
    silence_probability: float
    silence_seconds: float
    telephone_probability: float

    def __call__(self, cut: Cut, draw: random.Random) -> np.ndarray:
        """Augmented samples (n,) at 16 kHz, a function of the cut and the states of the generators.

        Args:
            cut: utterance.
            draw: generator of the draws; those of a room also come from torch's global one.

        Raises:
            AudioError: if the audio of the cut, or of the noise, cannot be read.
        """
        samples = load_samples(cut)
        if happens(self.reverb_probability, draw):
            samples = audio.in_a_room(samples, draw.getrandbits(31), draw.getrandbits(31))
        if self.noise is not None and happens(self.noise_probability, draw):
            noise = self.drawn_noise(len(samples) / audio.SAMPLE_RATE, draw)
            samples = audio.mix_noise(samples, noise, draw.uniform(*self.noise_snr_db))
        if happens(self.silence_probability, draw):
            samples = audio.between_silences(samples, self.silence_seconds, draw)
        if happens(self.telephone_probability, draw):
            samples = audio.through_telephone(samples)
        return samples

    def drawn_noise(self, seconds: float, draw: random.Random) -> np.ndarray:
        """A recording of noise, or a part of this length of a longer one: (n,) at 16 kHz."""
        assert self.noise is not None
        cut: Cut = self.noise[draw.randrange(len(self.noise))]
        longer = cut.duration - seconds
        if longer > 0.0:
            cut = cut.truncate(offset=draw.uniform(0.0, longer), duration=seconds)
        return load_samples(cut)


def happens(probability: float, draw: random.Random) -> bool:
    """Whether an event of this probability happens; one of probability 0 draws nothing."""
    return probability > 0.0 and draw.random() < probability


class SpeechDataset(torch.utils.data.Dataset[Batch]):
    """Utterances to batches of tensors. Every random draw is a function of a batch's seed.

    Args:
        cuts: the utterances.
        encode: raw text to tokens.
        augmentation: of the audio, or None.
        to_train: leave out utterances that cannot be learnt from. Otherwise, for scoring, only
            those without a text: a word that the tokenizer cannot encode counts as an error.
    """

    def __init__(
        self,
        cuts: Cuts,
        encode: TextEncoder,
        augmentation: Augmentation | None = None,
        to_train: bool = True,
    ) -> None:
        self.cuts, self.encode = cuts, encode
        self.augmentation, self.to_train = augmentation, to_train
        self.durations = durations_of(cuts)

    def __getitem__(self, item: tuple[str, list[int]]) -> Batch:
        """The batch of (seed, places of the utterances)."""
        seed, places = item
        seed_everything(f"{seed}-audio")  # rooms draw from torch too
        draw = random.Random(f"{seed}-audio")
        ids, samples, tokens, texts, left_out = [], [], [], [], []
        num_bad = 0
        for place in places:
            name = f"utterance {place}"
            try:
                cut = self.cuts[place]
                name, augment = cut.id, self.augmentation
                loaded = load_samples(cut) if augment is None else augment(cut, draw)
            except Exception as error:  # lhotse raises many types
                left_out.append(LeftOut(name, str(error) or type(error).__name__))
                num_bad += 1
                continue
            try:
                text, labels = self.read(cut, len(loaded))
            except TextError as error:
                left_out.append(LeftOut(cut.id, str(error)))
                continue
            ids.append(cut.id)
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
            seconds=sum(self.durations[places].tolist()),
        )

    def read(self, cut: Cut, num_samples: int) -> tuple[str, list[int]]:
        """Return a cut's normalised text and its tokens; [0] for scoring.

        Raises:
            TextError: if the cut has no text, or one that cannot be learnt from its samples.
        """
        if self.to_train:
            return self.encode.learnable(text_of(cut), num_samples)
        if not has_text(cut):
            raise TextError("no text")
        return self.encode.normalize(text_of(cut)), [0]


def seed_everything(seed: str) -> None:
    """Seed the global generators, so that resuming needs no generator state."""
    random.seed(seed)
    torch.manual_seed(zlib.crc32(seed.encode()))


def pad(rows: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Rows of different lengths as one zero-padded tensor; (0, 0) if there are none."""
    return pad_sequence(rows, batch_first=True) if rows else torch.zeros(0, 0, dtype=dtype)

"""Base of all frontends: frames of samples in steps of any size, and both ends of a stream."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from asrkit.audio.resampler import SAMPLE_RATE

WINDOW = 400  # samples, 25 ms
HOP = 160  # samples, 10 ms
FFT_SIZE = 512
NYQUIST = SAMPLE_RATE / 2  # Hz

Count = TypeVar("Count", int, Tensor)


class MelScale(NamedTuple):
    """A frequency scale on which filters have equal widths."""

    of_hertz: Callable[[Tensor], Tensor]
    to_hertz: Callable[[Tensor], Tensor]

    def edges(self, low: float, high: float, num_mels: int) -> Tensor:
        """Return (F+2,) edges in mel: filter i begins at edge i, peaks at i + 1, ends at i + 2."""
        ends = torch.tensor([low, high], dtype=torch.float64, device="cpu")
        first, last = self.of_hertz(ends).tolist()
        return torch.linspace(first, last, num_mels + 2, dtype=torch.float64, device="cpu")


class Frontend(nn.Module):
    """Log mel features: 25 ms windows every 10 ms, power spectrum, mel filters, logarithm.

    Every split of the samples into steps gives the same numbers:

        past = frontend.start(batch_size)
        feats, past = frontend(samples, past)

    A whole stream is followed by padding, see `ended`. A kind defines the filters (`mel_filters`),
    the power spectrum of a frame's samples (`power`), and the logarithm of the filters' energies
    (`log`).

    Args:
        window: (400,), factors of the samples of a window.
        before: samples of padding before a stream, without those of `lead_frames`.
        after: samples of padding after a stream. `model.context` has a picture.
        lead_frames: number of feature frames before a stream's first sample, for encoders that
            begin earlier. Their values do not matter to the encoder.
        mirrored: whether the stream's first samples in reverse order precede it instead of zeros.
        fft_size: samples of a Fourier transform, at least those of a window.
        low, high: start of the first filter and end of the last one, Hz.
        floor: lowest energy of a filter.
    """

    scale: MelScale  # scale of the filters
    log_scale = 1.0  # features of a natural logarithm
    window: Tensor
    filters: Tensor  # (fft_size/2+1, F); 257 with 512

    def __init__(
        self,
        num_mels: int,
        frame_size: int,
        window: Tensor,
        before: int,
        after: int,
        lead_frames: int,
        mirrored: bool = False,
        fft_size: int = FFT_SIZE,
        low: float = 0.0,
        high: float = NYQUIST,
        floor: float = 0.0,
    ) -> None:
        super().__init__()
        self.low, self.high, self.floor = low, high, floor
        self.num_mels, self.lead_frames = num_mels, lead_frames
        self.frame_size, self.hop, self.fft_size = frame_size, HOP, fft_size
        self.before, self.after = before + HOP * lead_frames, after
        self.mirrored, self.edge = before if mirrored else 0, 0
        # Frontends that mirror the start of a stream use a longer initial past. Its length tells
        # `forward` that the stream has not started.
        self.marker = frame_size if mirrored else 0
        self.preemphasis = 0.97
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", self.mel_filters(), persistent=False)

    def power(self, frames: Tensor) -> Tensor:
        """Frames of samples (B, T, frame_size) -> power spectra (B, T, 257)."""
        raise NotImplementedError

    def emphasized(self, frames: Tensor) -> Tensor:
        """Frames (B, T, 400) -> their pre-emphasis, times the window.

        The first sample of a frame has no predecessor; the window is 0 there.
        """
        frames = frames[:, :, 1:] - self.preemphasis * frames[:, :, :-1]
        return functional.pad(frames, (1, 0)) * self.window

    def spectra(self, windows: Tensor) -> Tensor:
        """Windows (B, T, n) -> power spectra (B, T, 257)."""
        spectrum = torch.fft.rfft(windows, n=self.fft_size, dim=2)
        return spectrum.real.square() + spectrum.imag.square()

    def log(self, mels: Tensor) -> Tensor:
        """Return the logarithm of the filters' energies."""
        return mels.clamp(min=self.floor).log()

    @torch.jit.unused
    def edges(self) -> Tensor:
        """Return the (F+2,) edges of the filters, see `MelScale.edges`."""
        return self.scale.edges(self.low, self.high, self.num_mels)

    @torch.jit.unused
    def mel_filters(self) -> Tensor:
        """Return the (fft_size/2+1, F) filters."""
        raise NotImplementedError

    @torch.jit.unused
    def num_mels_above(self, hertz: float) -> int:
        """Return the number of filters whose centre is above a frequency."""
        centres = self.scale.to_hertz(self.edges()[1:-1])
        return int((centres > hertz).sum())

    def start(self, batch_size: int) -> Tensor:
        """Return the past of streams that have not started: (B, marker+before)."""
        return self.filters.new_zeros([batch_size, self.marker + self.before])

    def beginning(self, samples: Tensor) -> Tensor:
        """Replace the initial past of a stream by its padding: (B, marker+before+N), N at least
        `mirrored` -> (B, before+N)."""
        if not self.mirrored:
            return samples
        samples = samples[:, self.marker :]
        lead, first = self.before - self.mirrored, samples[:, self.before :]
        mirror = first[:, self.edge : self.edge + self.mirrored].flip(1)
        return torch.cat([samples[:, :lead], mirror, first], dim=1)

    def forward(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Return the frames that end in these samples, and the new past.

        Args:
            samples: (B, N) in [-1, 1], any N.
            past: (B, P), samples from the start of the next frame on. After the first frame P is
                frame_size - 160 if all steps are multiples of 160 samples.

        Returns:
            (B, T, F) log mels with T = 1 + (P+N-frame_size) // 160, without frames that end before
            the stream; and the new past.
        """
        needed = self.frame_size
        begins = past.size(1) >= self.frame_size  # only an initial past is this long
        if begins:
            needed += self.lead_frames * self.hop + self.marker
        samples = torch.cat([past, samples], dim=1)  # (B, P+N)
        if samples.size(1) < needed:
            return samples.new_zeros([samples.size(0), 0, self.num_mels]), samples
        if begins:
            samples = self.beginning(samples)
        feats = self.frames(samples)
        return feats, samples[:, feats.size(1) * self.hop :]

    def frames(self, samples: Tensor) -> Tensor:
        """Return the features of all whole frames of samples: (B, N) -> (B, T, F)."""
        frames = samples.unfold(1, self.frame_size, self.hop)  # (B, T, frame_size)
        return self.log(self.power(frames) @ self.filters)

    @property
    @torch.jit.unused
    def lead_ms(self) -> int:
        """Return the milliseconds from the start of the first frame to the first sample."""
        return round(1000 * self.before / SAMPLE_RATE)

    def num_frames(self, num_samples: Count) -> Count:
        """Return the number of frames of a whole stream of `num_samples` samples."""
        size = num_samples + (self.before + self.after)
        frames = (size - (self.frame_size - self.hop)) // self.hop
        return frames * (frames > self.lead_frames)

    def ended(self, samples: Tensor, num_samples: Tensor) -> Tensor:
        """Append padding to whole streams: zeros after the pre-emphasis, (B, N) -> (B, N+after).

        Args:
            num_samples: (B,) valid samples of each row, before zeros.
        """
        if not self.after:
            return samples
        samples = functional.pad(samples, (0, self.after))
        places = torch.arange(samples.size(1), device=samples.device)
        beyond = (places + 1 - num_samples[:, None]).clamp(min=0)  # 1, 2, … after the last sample
        last = samples.gather(1, (num_samples[:, None] - 1).clamp(min=0))  # (B, 1)
        return torch.where(beyond > 0, last * self.preemphasis ** beyond.to(last), samples)


def features(frontend: Frontend, samples: Tensor, num_samples: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the features of whole zero-padded recordings: (B, N) in [-1, 1] -> (B, T, F).

    Also return the number of frames of each row, (B,), by its number of samples, (B,).
    """
    past = frontend.start(len(samples)).to(samples)
    feats, _ = frontend(frontend.ended(samples, num_samples), past)
    return feats, frontend.num_frames(num_samples)


def triangles(
    edges: Tensor, scale: Callable[[Tensor], Tensor] = torch.clone, fft_size: int = FFT_SIZE
) -> Tensor:
    """Return (fft_size/2+1, F) filters between (F+2,) edges on a scale, a function of Hz.

    Each filter rises from an edge to the next and falls to the one after it.
    """
    numbers = torch.arange(fft_size // 2 + 1, dtype=torch.float64, device="cpu")
    bins = scale((numbers * SAMPLE_RATE / fft_size)[:, None])
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    return torch.minimum(rising, falling).clamp(min=0.0)

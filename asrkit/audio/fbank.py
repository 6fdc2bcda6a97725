"""Kaldi log mel filterbank features, with their past in and out."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLE_RATE = 16000
WINDOW = 400  # samples, 25 ms
HOP = 160  # samples, 10 ms
FFT_SIZE = 512
LOW_FREQUENCY = 20.0  # Hz; the highest filter ends at SAMPLE_RATE / 2


class Fbank(nn.Module):
    """Samples to log mels, equal to Kaldi's with dither 0 and snip_edges true.

    25 ms povey windows every 10 ms, the mean taken out of each, pre-emphasis 0.97, power
    spectrum, triangular mel filters from 20 Hz to 8 kHz. The same numbers for every split of the
    samples into steps:

        feats, past = fbank(samples, past)

    where the past of a stream that has not begun is `samples[:, :0]`.
    """

    # TorchScript sees attributes, not globals.
    window_size: Final[int] = WINDOW
    hop: Final[int] = HOP
    fft_size: Final[int] = FFT_SIZE
    preemphasis: Final[float] = 0.97
    int16_scale: Final[float] = 32768.0  # Kaldi's features are those of int16 samples
    floor: Final[float] = 1.1920928955078125e-07  # of a mel energy: float32's epsilon

    window: Tensor  # (400,)
    filters: Tensor  # (257, F)

    def __init__(self, num_mels: int = 80) -> None:
        super().__init__()
        self.num_mels = num_mels
        self.register_buffer("window", povey_window(), persistent=False)
        self.register_buffer("filters", mel_filters(num_mels), persistent=False)

    def forward(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            samples: (B, N) in [-1, 1], any N.
            past: (B, P) samples that were not yet the start of a frame; after the first frame
                P is 240 when all steps are multiples of 160 samples.

        Returns:
            (B, T, F) and the new past: T = max(0, 1 + (P+N-400) // 160).
        """
        samples = torch.cat([past, samples], dim=1)  # (B, P+N)
        if samples.size(1) < self.window_size:
            return samples.new_zeros([samples.size(0), 0, self.num_mels]), samples
        frames = samples.unfold(1, self.window_size, self.hop)  # (B, T, 400)
        frames = frames - frames.mean(dim=2, keepdim=True)
        # The first sample lacks one before it; the window is zero there.
        frames = frames[:, :, 1:] - self.preemphasis * frames[:, :, :-1]
        frames = functional.pad(frames, (1, 0)) * (self.int16_scale * self.window)  # (B, T, 400)
        spectrum = torch.fft.rfft(frames, n=self.fft_size, dim=2)  # (B, T, 257)
        power = spectrum.real.square() + spectrum.imag.square()
        mels = power @ self.filters  # (B, T, F)
        return mels.clamp(min=self.floor).log(), samples[:, frames.size(1) * self.hop :]


def features(fbank: Fbank, samples: Tensor, num_samples: Tensor) -> tuple[Tensor, Tensor]:
    """Of whole recordings: (B, N) zero-padded and (B,) -> (B, T, F) and lengths (B,)."""
    feats, _ = fbank(samples, samples[:, :0])
    return feats, ((num_samples - (WINDOW - HOP)) // HOP).clamp(min=0)


def povey_window() -> Tensor:
    """Kaldi's window: a Hann window to the power 0.85, (400,)."""
    return (
        torch.hann_window(WINDOW, periodic=False, dtype=torch.float64, device="cpu")
        .pow(0.85)
        .float()
    )


def mel_filters(num_mels: int) -> Tensor:
    """Triangles of equal width on the mel scale 1127 ln(1 + f/700): (257, F)."""
    edges = mel_edges(num_mels)
    bins = (
        torch.arange(FFT_SIZE // 2 + 1, dtype=torch.float64, device="cpu") * SAMPLE_RATE / FFT_SIZE
    )
    bins = mel(bins)[:, None]  # (257, 1)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins - left) / (centre - left)
    falling = (right - bins) / (right - centre)
    filters = torch.minimum(rising, falling).clamp(min=0.0)
    filters[-1] = 0.0  # Kaldi leaves the Nyquist bin out
    return filters.float()


def mel(frequency: Tensor) -> Tensor:
    """Hertz to mel."""
    return 1127.0 * torch.log1p(frequency / 700.0)


def mel_edges(num_mels: int) -> Tensor:
    """Where the filters begin, peak and end, in mel: filter i from edge i to i + 2, (F+2,)."""
    ends = torch.tensor([LOW_FREQUENCY, SAMPLE_RATE / 2], dtype=torch.float64, device="cpu")
    low, high = mel(ends).tolist()
    return torch.linspace(low, high, num_mels + 2, dtype=torch.float64, device="cpu")

"""Kaldi's log mel filterbank features, computed in steps of any size."""

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
    """Log mel features, equal to Kaldi's with dither 0 and snip_edges true.

    25 ms povey windows every 10 ms, each minus its mean, pre-emphasis 0.97, power spectrum,
    triangular mel filters from 20 Hz to 8 kHz. Every split of the samples into steps gives the same
    numbers:

        feats, past = fbank(samples, past)

    The first past is empty: `samples[:, :0]`.
    """

    # TorchScript sees attributes, not globals.
    window_size: Final[int] = WINDOW
    hop: Final[int] = HOP
    fft_size: Final[int] = FFT_SIZE
    preemphasis: Final[float] = 0.97
    int16_scale: Final[float] = 32768.0  # Kaldi's features are those of int16 samples
    floor: Final[float] = 1.1920928955078125e-07  # lowest mel energy: float32's epsilon

    window: Tensor  # (400,)
    filters: Tensor  # (257, F)

    def __init__(self, num_mels: int = 80) -> None:
        super().__init__()
        self.num_mels = num_mels
        self.register_buffer("window", povey_window(), persistent=False)
        self.register_buffer("filters", mel_filters(num_mels), persistent=False)

    def forward(self, samples: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """The frames that end in these samples, and the new past.

        Args:
            samples: (B, N) in [-1, 1], any N.
            past: (B, P) samples from the start of the next frame on; after the first frame P is 240
                if all steps are multiples of 160 samples.

        Returns:
            (B, T, F) log mels with T = max(0, 1 + (P+N-400) // 160), and the new past.
        """
        samples = torch.cat([past, samples], dim=1)  # (B, P+N)
        if samples.size(1) < self.window_size:
            return samples.new_zeros([samples.size(0), 0, self.num_mels]), samples
        frames = samples.unfold(1, self.window_size, self.hop)  # (B, T, 400)
        frames = frames - frames.mean(dim=2, keepdim=True)
        # A frame's first sample has none before it for the pre-emphasis; the window is 0 there.
        frames = frames[:, :, 1:] - self.preemphasis * frames[:, :, :-1]
        frames = functional.pad(frames, (1, 0)) * (self.int16_scale * self.window)  # (B, T, 400)
        spectrum = torch.fft.rfft(frames, n=self.fft_size, dim=2)  # (B, T, 257)
        power = spectrum.real.square() + spectrum.imag.square()
        mels = power @ self.filters  # (B, T, F)
        return mels.clamp(min=self.floor).log(), samples[:, frames.size(1) * self.hop :]


def features(fbank: Fbank, samples: Tensor, num_samples: Tensor) -> tuple[Tensor, Tensor]:
    """Features of whole recordings, offline.

    Args:
        fbank: the frontend.
        samples: (B, N) in [-1, 1], zero-padded.
        num_samples: (B,) real samples of each row.

    Returns:
        (B, T, F) and (B,), the real frames of each row.
    """
    feats, _ = fbank(samples, samples[:, :0])
    return feats, ((num_samples - (WINDOW - HOP)) // HOP).clamp(min=0)


def povey_window() -> Tensor:
    """Kaldi's povey window (400,): a Hann window to the power of 0.85."""
    return (
        torch.hann_window(WINDOW, periodic=False, dtype=torch.float64, device="cpu")
        .pow(0.85)
        .float()
    )


def mel_filters(num_mels: int) -> Tensor:
    """(257, F) triangular filters of equal width on the mel scale 1127 ln(1 + f/700)."""
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
    """(F+2,) mel: filter i begins at edge i, peaks at i + 1 and ends at i + 2."""
    ends = torch.tensor([LOW_FREQUENCY, SAMPLE_RATE / 2], dtype=torch.float64, device="cpu")
    low, high = mel(ends).tolist()
    return torch.linspace(low, high, num_mels + 2, dtype=torch.float64, device="cpu")

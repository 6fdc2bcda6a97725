"""Dropout that a CPU can afford."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014); on a CPU a word of the generator decides four elements.

    torch draws a Bernoulli number for each, a twentieth more of a small model's training step
    (tools/README.md). The probability is rounded to 1/65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.jit.is_scripting():  # noqa: SIM102, or TorchScript would compile it
            if self.training and 0.0 < self.p < 1.0 and x.device.type == "cpu":
                return x * factors(x, self.p)
        return functional.dropout(x, self.p, self.training)


def factors(x: Tensor, chance: float) -> Tensor:
    """0 with this chance, else 1 / (1 - chance), for each element of x."""
    words = torch.empty([(x.numel() + 3) // 4], dtype=torch.int64).random_(-(1 << 63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # evenly from -32768 to 32767
    kept = (draws >= min(round(chance * 65536), 65535) - 32768).to(x.dtype)
    return kept.div_(1.0 - chance)

"""The feed-forward module of a Conformer layer."""

from torch import Tensor, nn
from torch.nn import functional

from asrkit.model.dropout import Dropout


class FeedForward(nn.Module):
    """LayerNorm, linear, SiLU, linear (Gulati et al. 2020, 2.3): (B, T, D) -> (B, T, D)."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden_dim)
        self.project = nn.Linear(hidden_dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(functional.silu(self.expand(self.norm(x))))  # (B, T, FFN)
        return self.dropout(self.project(hidden))

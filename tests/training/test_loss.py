"""The training loss."""

import pytest
import torch

from asrkit.model import ConformerEncoder, Context, CTCHead, Network
from asrkit.model.positions import KINDS
from asrkit.training.loss import Loss, View


@pytest.mark.parametrize("kind", KINDS)
def test_context_before_the_first_frame_changes_nothing(kind: str) -> None:
    """No key is made for frames before the utterance, however long the left context."""
    torch.manual_seed(0)
    encoder = ConformerEncoder(20, 16, 2, 2, 32, 5, position=kind)
    loss = Loss(Network(encoder, CTCHead(encoder.dim, 9)), [1], 0.3).double()
    lengths = torch.tensor([83, 60])
    feats, tokens = torch.randn(2, 83, 20).double(), torch.randint(1, 9, (2, 3))

    def of(left_context: int) -> torch.Tensor:
        view = View(feats, Context(4, left_context))
        return loss([view], lengths, tokens, torch.tensor([3, 2]))

    last_chunk_starts = 20  # of 21 encoder frames
    expected = of(last_chunk_starts)
    for left_context in (21, 24, 500):
        assert (of(left_context) - expected).abs().max() < 1e-9
    assert (of(last_chunk_starts - 4) - expected).abs().max() > 1e-6
    assert keys_made(loss, feats, lengths, tokens, 500) == keys_made(
        loss, feats, lengths, tokens, last_chunk_starts
    )


def keys_made(
    loss: Loss, feats: torch.Tensor, lengths: torch.Tensor, tokens: torch.Tensor, left: int
) -> int:
    """The width of the windows of keys that the first layer is given."""
    widths = []
    layer = loss.model.encoder.layers[0]
    hook = layer.register_forward_pre_hook(lambda _, inputs: widths.append(inputs[1].valid.size(4)))
    loss([View(feats, Context(4, left))], lengths, tokens, torch.tensor([3, 2]))
    hook.remove()
    return widths[0]

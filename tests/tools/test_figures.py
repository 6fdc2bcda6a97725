"""The figures of docs/concepts.md: the mask is what the network sees."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from asrkit.model import ConformerEncoder
from tools import figures
from tools.figures import CHUNK, FRAMES, LEFT, RIGHT, sees


def test_the_mask_is_what_the_network_sees() -> None:
    """By gradients through one layer whose convolution uses its own frame alone."""
    torch.manual_seed(0)
    encoder = ConformerEncoder(
        num_mels=8, dim=8, num_heads=2, num_layers=1, ffn_dim=8, kernel_size=2, dropout=0.0
    ).eval()
    feats = torch.randn(1, 4 * FRAMES, 8, dtype=torch.float64, requires_grad=True)
    encoder = encoder.double()
    with torch.no_grad():
        encoder.layers[0].convolution.depthwise.weight[..., 0] = 0.0  # nor the frame before
    state = encoder.init_state(1, LEFT)
    encoded, _, _ = encoder(feats, torch.tensor([4 * FRAMES]), state, CHUNK, RIGHT)
    weights = torch.randn(8, dtype=torch.float64)
    for query in range(FRAMES):
        (gradient,) = torch.autograd.grad(encoded[0, query] @ weights, feats, retain_graph=True)
        reached = gradient[0].abs().sum(1).view(FRAMES, 4).sum(1) > 0  # by groups of 4 frames
        seen = torch.tensor([bool(sees(query, key)) for key in range(FRAMES)])
        # A frame's features begin before it: the subsampling looks back, as far as two frames.
        back = torch.stack([seen.roll(-shift) & (torch.arange(FRAMES) < FRAMES - shift)
                            for shift in range(3)]).any(0)  # fmt: skip
        assert (reached | ~seen).all(), query
        assert (~reached | back).all(), query


def test_figures_are_svg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "IMAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["figures"])
    figures.main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mask.svg", "passes.svg", "pipeline.svg",
    ]  # fmt: skip
    for path in tmp_path.iterdir():
        ElementTree.parse(path)

"""The classes that docs/contributing.md shows keep the laws."""

import copy
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch

from asrkit.backends import registry
from asrkit.backends.backend import Output, State
from asrkit.backends.pytorch import eager
from asrkit.model import Context, subsampling
from asrkit.runtime import recognizer_of
from tests.conftest import PROJECT, speech, timed, tiny_encoder
from tests.laws.encoder_laws import offline, stream
from tests.laws.test_export import file_of
from tests.test_docs import blocks


def shown(name: str, module: Any) -> Any:
    """What the guide defines by a name, in a module with the names of another."""
    (block,) = (each for each in blocks(PROJECT / "docs/contributing.md") if f" {name}(" in each)
    names = {
        "copy": copy,
        "np": np,
        "eager": eager,
        "State": State,
        "Output": Output,
        **vars(module),
    }
    exec(dedent(block), names)
    return names[name]


def test_subsampling_of_the_guide_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = shown("Conv6Subsampling", subsampling)
    monkeypatch.setitem(subsampling.KINDS, "conv6", kind)
    encoder = tiny_encoder(subsampling="conv6")
    feats = torch.randn(2, 413, 20, dtype=torch.float64)
    expected = offline(encoder, feats, Context(4, 7))
    assert expected.shape == (2, 69, 24)
    assert (stream(encoder, feats, Context(4, 7), 1) - expected).abs().max() < 1e-9


def test_backend_of_the_guide_equals_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BACKENDS, "float64", shown("build", registry))
    file, recording = file_of(num_layers=1), speech(3.0, seed=3)
    ours, plain = (
        recognizer_of(file, Context(4, 8, 2), backend=each) for each in ("float64", "eager")
    )
    assert ours.backend.kind == "float64"
    session = ours.start()
    for packet in np.array_split(recording, [1, 300, 20_000]):
        session.accept(packet)
    expected = plain.transcribe(recording)
    assert len(expected.text) > 3
    assert timed(session.finish()) == timed(expected)

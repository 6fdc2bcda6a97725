"""What an engine computes where. The device without numbers stands for a GPU."""

import pytest
import torch
from torch import Tensor

from asrkit.backends import eager
from asrkit.model import Context, EncoderState, Network, StepOutput
from asrkit.runtime.engine import Engine, build_engine

GPU = torch.device("meta")


class Seen:
    """A step that keeps the devices of what it is given, and returns frames of that device."""

    def __init__(self) -> None:
        self.devices: list[str] = []

    def __call__(self, feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        self.devices += [feats.device.type, lengths.device.type]
        return StepOutput(feats.new_zeros(1, 4, 5), torch.tensor([4]), state)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def engine(model: Network, seen: Seen) -> Engine:
    backend = eager(model, Context(4, 8))
    backend = backend._replace(spec=backend.spec._replace(device=GPU), step=seen)
    return build_engine(backend, None, vad=False)


def test_features_of_streams_are_on_the_cpu(engine: Engine) -> None:
    feats, past = engine.features(torch.zeros(1, 1600), engine.frontend.start(1))
    assert feats.device.type == past.device.type == "cpu"
    assert {each.device for each in engine.batch_frontend.buffers()} == {GPU}


def test_a_step_takes_features_to_the_network(engine: Engine, seen: Seen) -> None:
    """And frames back; without numbers that fails, which shows that it is done."""
    feats = [torch.zeros(16, engine.spec.num_mels)]
    with pytest.raises(NotImplementedError, match="meta"):
        engine.step_of(feats, engine.init_state(1))
    assert seen.devices == ["meta", "meta"]


def test_frames_stay_where_a_search_calls_the_head(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(engine.backend.head), "IN_SEARCH", True)
    (frames,), _ = engine.step_of([torch.zeros(16, engine.spec.num_mels)], engine.init_state(1))
    assert frames.device == GPU

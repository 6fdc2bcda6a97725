"""Chunks that see R frames ahead see what is defined; `encoder_laws` has them stream.

The definition, with nothing of `blocks`: a chunk and the R frames after it go as one chunk through
the network without right context, behind the past of the chunks before it; the first C frames are
the chunk's.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from asrkit import audio
from asrkit.backends.export_metadata import Exported
from asrkit.backends.pytorch import eager
from asrkit.build import build_frontend
from asrkit.commands import info
from asrkit.export.description import samples_ahead
from asrkit.export.modules import of_stream
from asrkit.export.verification import eager_step
from asrkit.model import FULL, ConformerEncoder, Context, EncoderState
from asrkit.model.frontend import TorchFrontend
from asrkit.model_file import save_model
from asrkit.runtime import Recognizer
from asrkit.runtime.load import load
from asrkit.search import GreedySearch
from asrkit.training.loss import Loss, View
from tests.conftest import PADDED, speech, tiny_encoder, tiny_model
from tests.laws.encoder_laws import offline, stream
from tests.laws.test_export import file_of
from tests.laws.test_streaming import LETTERS, TOLERANCE


def defined(encoder: ConformerEncoder, feats: Tensor, context: Context) -> Tensor:
    """Chunk by chunk, by the definition; of `feats` in whole chunks of conv4."""
    chunk_size, left, right = context
    size, more = 4 * chunk_size, 4 * right
    state, outputs = encoder.init_state(1, left), []
    for start in range(0, feats.size(1), size):
        part = feats[:, start : start + size + more]
        seen = part.size(1) // 4  # C + R, or fewer at the end
        given: list[list[Tensor]] = [[], []]  # to the attention and the convolution of each layer
        hooks = [
            module.register_forward_hook(lambda m, i, output, to=to: to.append(output))
            for layer in encoder.layers
            for module, to in zip(
                (layer.attention.qkv, layer.convolution.expand), given, strict=True
            )
        ]
        encoded, _, _ = encoder(part, torch.tensor([part.size(1)]), state, seen)
        for hook in hooks:
            hook.remove()
        outputs.append(encoded[:, :chunk_size])
        own = encoder(part[:, :size], torch.tensor([size]), state, chunk_size).state
        state = own._replace(**past_of(state, given, chunk_size))
    return torch.cat(outputs, dim=1)


def past_of(state: EncoderState, given: list[list[Tensor]], chunk_size: int) -> dict[str, Tensor]:
    """The past of attention and convolutions up to the end of a chunk, which saw more."""
    past: dict[str, list[Tensor]] = {"keys": [], "values": [], "conv": []}
    for i, (qkv, expanded) in enumerate(zip(*given, strict=True)):
        _, keys, values = qkv[:, :chunk_size].chunk(3, dim=2)
        for name, new in (("keys", keys), ("values", values)):
            heads = new.unflatten(2, (state.keys.size(2), -1)).transpose(1, 2)
            past[name].append(
                torch.cat([getattr(state, name)[:, i], heads], dim=2)[:, :, chunk_size:]
            )
        new = functional.glu(expanded[:, :chunk_size], dim=2).transpose(1, 2)
        past["conv"].append(torch.cat([state.conv[:, i], new], dim=2)[:, :, chunk_size:])
    return {name: torch.stack(each, dim=1) for name, each in past.items()}


@pytest.mark.parametrize("right_context", [1, 3, 6])
@pytest.mark.parametrize(("chunk_size", "left"), [(1, 5), (4, 0), (4, 16), (16, 7)])
@torch.no_grad()
def test_a_chunk_sees_what_is_defined(chunk_size: int, left: int, right_context: int) -> None:
    encoder, context = tiny_encoder(), Context(chunk_size, left, right_context)
    feats = torch.randn(1, 4 * 64, 20, dtype=torch.float64)
    expected = defined(encoder, feats, context)
    assert (offline(encoder, feats, context) - expected).abs().max() < 1e-9
    fewer = context._replace(right=right_context - 1)  # a control
    assert (offline(encoder, feats, fewer) - expected).abs().max() > 1e-3


def test_a_trainings_loss_is_that_of_the_streams_frames() -> None:
    model = tiny_model()
    feats, tokens = torch.randn(1, 200, 80, dtype=torch.float64), torch.tensor([[1, 2, 3]])
    lengths, counts = torch.tensor([197]), torch.tensor([3])
    loss = Loss(model, [], 0.0)([View(feats, Context(4, 16, 3))], lengths, tokens, counts)
    encoded = stream(model.encoder, feats[:, :197], Context(4, 16, 3), 1)
    expected = functional.ctc_loss(
        model.head.emissions(encoded).transpose(0, 1), tokens, torch.tensor([50]), counts,
        reduction="none",
    )  # fmt: skip
    assert (loss - expected).abs().max() < 1e-4
    views = [View(feats, FULL), View(feats, Context(4, 16, 3))]  # that are made to agree
    assert torch.isfinite(Loss(model, [1], 0.3)(views, lengths, tokens, counts, 0.1)).all()


def from_samples(step: Any, samples: Tensor, ahead: int) -> list[Tensor]:
    """The frames of a stream (1, N) as docs/export.md says: a chunk at a time, with its end."""
    stream = torch.from_numpy(of_stream(step.frontend.kind, samples.float().numpy())).to(samples)
    found = list[Tensor]()
    past_size, chunk = step.past_size, step.chunk_samples
    padded = functional.pad(stream, (0, 2 * past_size + chunk))
    past, state = padded[:, :past_size], step.init_state(1)
    for rest in range(stream.size(1) - past_size, -ahead, -chunk):
        at = stream.size(1) - rest
        part, lengths = padded[:, at : at + chunk], torch.tensor([min(rest, chunk)])
        frames, lengths, past, state = step(part, lengths, past, state)
        found.append(frames[:, : int(lengths)])
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("chunk_size", "right"), [(1, 2), (4, 3), (16, 4), (2, 11)])
@pytest.mark.parametrize(
    ("subsampling", "frontend"),
    [("conv4", "kaldi"), ("conv4_valid", "sherpa_nemo"), (PADDED, "slaney")],
    ids=["conv4", "valid", "padded"],
)
@torch.no_grad()
def test_export_from_samples(
    subsampling: object, frontend: str, chunk_size: int, right: int, dtype: torch.dtype
) -> None:
    """Equal to eager offline, with all frames; not without the end, nor with another R."""
    file = file_of(subsampling=subsampling, frontend=frontend, num_layers=1)
    context = Context(chunk_size, 16, right)
    exported, model = Exported("model", context), file.model.to(dtype)
    step, ahead = eager_step(file, exported).to(dtype), samples_ahead(exported, file)
    features = TorchFrontend(build_frontend(file.config.model)).to(dtype).of_tensors()
    for size in (32_345, 3_000, 1_400):  # the last one is shorter than a stream's first past
        samples = torch.from_numpy(speech(4.0)[:size]).to(dtype)[None]
        feats, _ = audio.features(features, samples, torch.tensor([size]))
        expected = model.head.emissions(offline(model.encoder, feats, context))
        found = torch.cat(from_samples(step, samples, ahead), dim=1)
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < TOLERANCE[dtype]
        if size == 32_345:  # controls
            fewer = offline(model.encoder, feats, context._replace(right=right - 1))
            assert (model.head.emissions(fewer) - found).abs().max() > 1e-3
    assert from_samples(step, samples, 0) == []  # no end


def test_the_models_own_right_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loaded and shown; commands/test_verify.py verifies it."""
    file = file_of()
    context = file.config.context.model_copy(update={"right_context": 3, "right_contexts": [0, 3]})
    file = file._replace(config=file.config.model_copy(update={"context": context}))
    path = tmp_path / "m.safetensors"
    save_model(path, file)
    assert load(path).engine.spec.context.right == 3
    assert load(path).context == "640+120 ms"
    assert load(path, right_context=0).context == "640 ms"
    assert info.main([str(path)]) == 0
    assert "640 ms with 2560 ms before it and 120 ms after it" in capsys.readouterr().out


def test_a_second_pass_sees_nothing_ahead() -> None:
    """Pieces end where segments do: what a chunk would see ahead is another piece's."""
    live, larger = (eager(tiny_model(), Context(chunk, 16, 3)) for chunk in (4, 16))
    with pytest.raises(ValueError, match="its right_context must be 0"):
        Recognizer(live, LETTERS, GreedySearch(), second_pass=larger)

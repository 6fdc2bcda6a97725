"""Models that NeMo builds anew compute here what they compute there, where NeMo is installed.

python -m pytest -m slow -s tests/interop/test_nemo_anew.py
"""

import random
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asrkit.interop import import_checkpoint
from asrkit.model import Context
from asrkit.runtime import recognizer_of
from tests.conftest import PROJECT, speech
from tests.interop.test_nemo import (
    TOLERANCE,
    Fixture,
    blank_first,
    difference,
    features,
    offline,
    streamed,
)

pytestmark = pytest.mark.slow

# Every combination of subsampling, norm and labels. In each frame the best two labels are 1e-4
# apart with these, so that rounding changes no text.
SEEDS = range(48, 64)
SUBSAMPLINGS = [("dw_striding", 8), ("striding", 4), ("dw_striding", 8), ("dw_striding", 4)]
CHARACTERS = [" ", "'", *"abcdefghijklmnopqrstuvwxyz"]
PACKAGE = "nemo.collections.asr"
WANTED = "needs NeMo, in an environment of its own: see docs/import.md"
CLIP = "drawn"
# NeMo drops a space before a mark of its vocabulary, and doubles one where a sub-word is empty.
SPACES_BEFORE_MARKS = re.compile(rf"\s+(?=[{re.escape(string.punctuation)}])")


def draw_contexts(draw: random.Random) -> list[list[int]]:
    """Four of NeMo's [left, ahead] in any order: an ahead of 0, and three others up to 15."""
    chunks = [1, *draw.sample(range(2, 17), 3)]
    draw.shuffle(chunks)
    return [[chunk * draw.randrange(6), chunk - 1] for chunk in chunks]


def draw_settings(seed: int) -> dict[str, Any]:
    """NeMo's configuration of a small model, without its labels."""
    draw = random.Random(seed)
    heads, mels = draw.choice([1, 2, 4]), draw.choice([64, 80, 128])
    dim = heads * draw.choice([8, 12, 16])
    kind, factor = SUBSAMPLINGS[seed % 4]
    return {
        "sample_rate": 16000,
        "preprocessor": {
            "_target_": f"{PACKAGE}.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000, "normalize": draw.choice(["NA", None]), "window_size": 0.025,
            "window_stride": 0.01, "window": "hann", "features": mels, "n_fft": 512, "pad_to": 0,
        },
        "encoder": {
            "_target_": f"{PACKAGE}.modules.ConformerEncoder", "feat_in": mels,
            "n_layers": draw.randint(1, 3), "d_model": dim, "n_heads": heads,
            "ff_expansion_factor": draw.choice([2, 4]), "use_bias": draw.random() < 0.5,
            "subsampling": kind, "subsampling_factor": factor, "causal_downsampling": True,
            "subsampling_conv_channels": draw.choice([-1, 8, 20]),
            "att_context_style": "chunked_limited", "att_context_size": draw_contexts(draw),
            "xscaling": draw.random() < 0.5, "untie_biases": draw.random() < 0.7,
            "conv_kernel_size": draw.choice([3, 5, 9, 15]), "conv_context_size": "causal",
            "conv_norm_type": ["layer_norm", "batch_norm"][seed // 4 % 2],
        },
        "decoder": {"_target_": f"{PACKAGE}.modules.ConvASRDecoder", "feat_in": dim},
    }  # fmt: skip


@torch.no_grad()
def draw_weights(model: Any) -> None:
    """Random ones, so that none is without effect, and running statistics likewise."""
    for name, tensor in model.encoder.state_dict().items():
        if name.endswith("running_var") or ("norm" in name and name.endswith("weight")):
            tensor.uniform_(0.5, 2.0)
        elif tensor.is_floating_point():
            tensor.normal_(std=tensor[0].numel() ** -0.5 if tensor.dim() > 1 else 0.3)


@torch.no_grad()
def fit_head(decoder: Any, encoded: torch.Tensor) -> None:
    """No label wins on average, and `<unk>`, which NeMo writes otherwise, never does."""
    layer = decoder.decoder_layers[0]
    layer.weight.normal_(std=3 * layer.weight[0].numel() ** -0.5)
    layer.bias.sub_(layer(encoded).mean(dim=(0, 2)))
    if "<unk>" in decoder.vocabulary:
        layer.bias[decoder.vocabulary.index("<unk>")] -= 20


def build(seed: int, folder: Path) -> Any:
    """A model of NeMo's with sub-words or characters as labels, in evaluation."""
    models = pytest.importorskip(f"{PACKAGE}.models", reason=WANTED)
    from nemo.collections.common.tokenizers.sentencepiece_tokenizer import create_spt_model
    from omegaconf import OmegaConf

    settings = draw_settings(seed)
    if seed // 8 % 2:
        settings["decoder"] |= {"num_classes": len(CHARACTERS), "vocabulary": CHARACTERS}
        make = models.EncDecCTCModel
    else:
        create_spt_model(
            str(PROJECT / "LICENSE"), 96, -1, True, tokenizer_type="bpe", output_dir=str(folder)
        )
        settings["tokenizer"] = {"dir": str(folder), "type": "bpe"}
        settings["decoder"] |= {"num_classes": -1, "vocabulary": []}
        make = models.EncDecCTCModelBPE
    torch.manual_seed(seed)
    model = make(cfg=OmegaConf.create(settings)).eval()
    draw_weights(model)
    return model


def recording(seed: int) -> np.ndarray:
    """Two to four seconds with a stretch of digital silence."""
    draw = np.random.default_rng(seed)
    samples = speech(draw.uniform(2, 4), seed)
    start = draw.integers(len(samples))
    samples[start : start + 6000] = 0
    return samples


@torch.no_grad()
def computed(model: Any, samples: np.ndarray) -> dict[str, np.ndarray]:
    """What NeMo computes offline, in each context, by the names of the stored arrays."""
    signal = torch.from_numpy(samples)[None]
    feats, lengths = model.preprocessor(input_signal=signal, length=torch.tensor([signal.size(1)]))
    fit_head(model.decoder, model.encoder(audio_signal=feats, length=lengths)[0])
    arrays = {f"{CLIP}/audio": samples, f"{CLIP}/feats": feats[0, :, : lengths[0]].T.numpy()}
    for left, ahead in model.encoder.att_context_size_all:
        model.encoder.set_default_att_context_size([left, ahead])
        encoded, frames = model.encoder(audio_signal=feats, length=lengths)
        log_probs = model.decoder(encoder_output=encoded)
        name = f"{CLIP}/att_{left}_{ahead}"
        arrays[f"{name}/encoded"] = encoded[0, :, : frames[0]].T.numpy()
        arrays[f"{name}/log_probs"] = log_probs[0, : frames[0]].numpy()
        found = model.decoding.ctc_decoder_predictions_tensor(log_probs, decoder_lengths=frames)
        arrays[f"{name}/text"] = np.array(found[0].text)
    return arrays


def imported(model: Any, path: Path, arrays: dict[str, np.ndarray]) -> Fixture:
    model.save_to(str(path))
    return Fixture(import_checkpoint("nemo", path), arrays)


def without_spaces_before_marks(text: str) -> str:
    return SPACES_BEFORE_MARKS.sub("", " ".join(text.split()))


def differences(fixture: Fixture, seed: int) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """The largest of each kind over the contexts, and the texts, asrkit's and NeMo's."""
    lead = fixture.file.model.encoder.rate.lead_frames
    feats = difference(features(fixture, CLIP)[0, lead:], fixture.tensor(f"{CLIP}/feats"))
    rows, texts = [], []
    for name, chunk, left in fixture.contexts():
        recognizer = recognizer_of(fixture.file, Context(chunk, left))
        log_probs, text = streamed(recognizer, fixture.arrays[f"{CLIP}/audio"], seed)
        expected = blank_first(fixture.tensor(f"{CLIP}/{name}/log_probs"))
        rows.append((*offline(fixture, CLIP, name, chunk, left), difference(log_probs, expected)))
        texts.append((text, str(fixture.arrays[f"{CLIP}/{name}/text"])))
    encoder, head, stream = (max(column) for column in zip(*rows, strict=True))
    return {"features": feats, "encoder": encoder, "head": head, "streamed": stream}, texts


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_drawn_anew(seed: int, tmp_path: Path) -> None:
    model = build(seed, tmp_path)
    fixture = imported(model, tmp_path / "model.nemo", computed(model, recording(seed)))
    assert len(list(fixture.contexts())) == 4
    found, texts = differences(fixture, seed)
    print(seed, " ".join(f"{name} {value:.1e}" for name, value in found.items()))
    assert max(found.values()) < TOLERANCE
    for ours, theirs in texts:
        assert without_spaces_before_marks(ours) == without_spaces_before_marks(theirs)
        assert len(ours) > 10


@pytest.mark.parametrize("name", ["conv.batch_norm.bias", "self_attn.pos_bias_v"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_control_a_changed_weight_is_noticed(seed: int, name: str, tmp_path: Path) -> None:
    model = build(seed, tmp_path)
    arrays = computed(model, recording(seed))
    with torch.no_grad():
        model.encoder.layers[-1].get_parameter(name).add_(0.05)
    found, _ = differences(imported(model, tmp_path / "model.nemo", arrays), seed)
    assert found.pop("features") < TOLERANCE
    assert min(found.values()) > TOLERANCE

"""NVIDIA's published streaming models and others: their shapes, built by NeMo's classes with
random weights.

python -m pytest -m slow -s tests/interop/test_nemo_family.py
"""

import gc
import os
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asrkit.hub.catalogue import read_catalogue
from asrkit.interop import Imported, import_checkpoint
from tests.conftest import speech
from tests.interop.test_nemo import (
    TOLERANCE,
    Fixture,
    difference,
    features,
    head_differences,
    offline,
    recognized,
)
from tests.laws.test_streaming import packets

WHOLE = "ASRKIT_WHOLE_MODELS" in os.environ  # all layers, in place of LAYERS
LAYERS = 2
PACKAGE = "nemo.collections.asr"
WANTED = "needs NeMo, in an environment of its own: see docs/import.md"
CLIP = "drawn"
LABELS_WITHOUT_TEXT = re.compile("<EOU>|<EOB>|<[a-z]{2}-[A-Z]{2}>")


class Shape(NamedTuple):
    """A published model, as public sources describe it."""

    contexts: tuple[tuple[int, int], ...]  # NeMo's (left, ahead), the default first
    kind: str = "EncDecHybridRNNTCTCBPEModel"
    layers: int = 17
    dim: int = 512
    heads: int = 8
    mels: int = 80
    predictor_layers: int = 1
    labels: int = 1024
    biases: bool = True  # of the layers, with a scaled input
    marks: tuple[str, ...] = ()  # labels that are not text
    prompts: tuple[str, ...] = ()
    subsampling: tuple[str, int] = ("dw_striding", 8)
    norm: str = "layer_norm"


LARGE = Shape(((70, 13), (70, 6), (70, 1), (70, 0)))
MEDIUM = Shape(((70, 1),), layers=16, dim=256, heads=4)
NEMOTRON = LARGE._replace(
    kind="EncDecRNNTBPEModel", layers=24, dim=1024, mels=128, predictor_layers=2, biases=False
)
SHAPES = {
    "stt_en_fastconformer_hybrid_large_streaming_multi": LARGE,
    "stt_ka_fastconformer_hybrid_transducer_ctc_large_streaming_80ms_pc": LARGE._replace(
        contexts=((70, 1),)
    ),
    "stt_en_fastconformer_hybrid_medium_streaming_80ms": MEDIUM,
    "stt_en_fastconformer_hybrid_medium_streaming_80ms_pc": MEDIUM,
    "parakeet_realtime_eou_120m-v1": LARGE._replace(
        contexts=((70, 1),), kind="EncDecRNNTBPEModel", mels=128, labels=1026, biases=False,
        marks=("<EOU>", "<EOB>"),
    ),
    "nemotron-speech-streaming-en-0.6b": NEMOTRON,
    "nemotron-3.5-asr-streaming-0.6b": NEMOTRON._replace(
        contexts=((56, 3), (56, 0), (56, 6), (56, 13)), kind="EncDecRNNTBPEModelWithPrompt",
        labels=13087, marks=("<en-US>", "<de-DE>"), prompts=("auto", "de-DE"),
    ),
}  # fmt: skip
OTHERS = {  # that nobody has published
    "Conformer": MEDIUM._replace(
        contexts=((40, 7), (30, 2), (12, 0)), subsampling=("striding", 4), norm="batch_norm"
    ),
}
DIFFERENT = {shape: name for name, shape in SHAPES.items()}  # models of one shape are built once
PROMPTS = {"en-US": 0, "de-DE": 9, "auto": 101}


def settings(shape: Shape, tokenizer: Path) -> dict[str, Any]:
    """NeMo's configuration, in the form of its examples."""
    modules = f"{PACKAGE}.modules"
    dropout = {"dropout": 0.1, "dropout_pre_encoder": 0.1, "dropout_emb": 0.0, "dropout_att": 0.1}
    widths = {"enc_hidden": shape.dim, "pred_hidden": 640, "joint_hidden": 640}
    if shape.prompts:
        widths |= {"initialize_prompt_feature": True, "num_prompts": 128, "norm": "None",
                   "prompt_dictionary": PROMPTS}  # fmt: skip
    contexts = [list(context) for context in shape.contexts]
    return {
        "sample_rate": 16000, "compute_eval_loss": False, "log_prediction": True,
        "skip_nan_grad": False, "model_defaults": widths,
        "tokenizer": {"dir": str(tokenizer), "type": "bpe"},
        "preprocessor": {
            "_target_": f"{modules}.AudioToMelSpectrogramPreprocessor", "sample_rate": 16000,
            "normalize": "NA", "window_size": 0.025, "window_stride": 0.01, "window": "hann",
            "features": shape.mels, "n_fft": 512, "frame_splicing": 1, "dither": 1e-5, "pad_to": 0,
        },
        "encoder": {
            "_target_": f"{modules}.ConformerEncoder", "feat_in": shape.mels, "feat_out": -1,
            "n_layers": shape.layers if WHOLE else LAYERS, "d_model": shape.dim,
            "use_bias": shape.biases, "subsampling": shape.subsampling[0],
            "subsampling_factor": shape.subsampling[1],
            "subsampling_conv_channels": 256, "causal_downsampling": True, "reduction": None,
            "reduction_position": None, "reduction_factor": 1, "ff_expansion_factor": 4,
            "self_attention_model": "rel_pos", "n_heads": shape.heads,
            "att_context_size": contexts if len(contexts) > 1 else contexts[0],
            "att_context_style": "chunked_limited", "att_context_probs": None,
            "xscaling": shape.biases, "untie_biases": True, "pos_emb_max_len": 5000,
            "conv_kernel_size": 9, "conv_norm_type": shape.norm, "conv_context_size": "causal",
            "stochastic_depth_drop_prob": 0.0, "stochastic_depth_mode": "linear",
            "stochastic_depth_start_layer": 1, **dropout,
        },
        "decoder": {
            "_target_": f"{modules}.RNNTDecoder", "normalization_mode": None,
            "random_state_sampling": False, "blank_as_pad": True,
            "prednet": {"pred_hidden": 640, "pred_rnn_layers": shape.predictor_layers,
                        "t_max": None, "dropout": 0.2},
        },
        "joint": {
            "_target_": f"{modules}.RNNTJoint", "log_softmax": None, "preserve_memory": False,
            "fuse_loss_wer": True, "fused_batch_size": 4,
            "jointnet": {"joint_hidden": 640, "activation": "relu", "dropout": 0.2},
        },
        "decoding": {"strategy": "greedy_batch", "durations": [], "greedy": {"max_symbols": 10}},
        "aux_ctc": {  # nemotron-3.5-asr-streaming has it too, without such a layer
            "ctc_loss_weight": 0.3, "use_cer": False, "ctc_reduction": "mean_batch",
            "decoder": {"_target_": f"{modules}.ConvASRDecoder", "feat_in": None,
                        "num_classes": -1, "vocabulary": []},
            "decoding": {"strategy": "greedy"},
        },
        "interctc": {"loss_weights": [], "apply_at_layers": []},
        "loss": {"loss_name": "default"},
    }  # fmt: skip


def train_tokenizer(shape: Shape, folder: Path) -> None:
    """Write a sentencepiece model with this number of labels, from random words."""
    from nemo.collections.common.tokenizers.sentencepiece_tokenizer import create_spt_model

    draw, letters = random.Random(0), [chr(0x4E00 + i) for i in range(shape.labels // 2)]
    words = ["".join(draw.choices(letters, k=draw.randint(2, 6))) for _ in range(shape.labels)]
    path = folder / "words.txt"
    path.write_text("\n".join([*letters, *(" ".join(draw.choices(words, k=8)) for _ in words)]))
    create_spt_model(
        str(path), shape.labels, -1, False, tokenizer_type="bpe", output_dir=str(folder),
        user_defined_symbols=[*shape.marks] or None,
    )  # fmt: skip


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


def recording(seed: int) -> np.ndarray:
    """Two to four seconds with a stretch of digital silence."""
    draw = np.random.default_rng(seed)
    samples = speech(draw.uniform(2, 4), seed)
    start = draw.integers(len(samples))
    samples[start : start + 6000] = 0
    return samples


def build(shape: Shape, folder: Path) -> Any:
    """A model of NeMo's with random weights, in evaluation."""
    models = pytest.importorskip(f"{PACKAGE}.models", reason=WANTED)
    from omegaconf import OmegaConf

    if not hasattr(models, shape.kind):
        pytest.skip(f"this NeMo has no {shape.kind}: 3.0.0 has it")
    train_tokenizer(shape, folder)
    torch.manual_seed(0)
    model = getattr(models, shape.kind)(cfg=OmegaConf.create(settings(shape, folder))).eval()
    assert len(model.joint.vocabulary) == shape.labels
    draw_weights(model)
    for layer in [*getattr(model, "prompt_kernel", [])[::2], model.joint.enc]:
        layer.weight.data.normal_(std=1.5 * layer.in_features**-0.5)
    return model


@torch.no_grad()
def fit_joint(model: Any, encoded: torch.Tensor) -> None:
    """No label wins on average, the blank wins in most frames, and `<unk>` never does."""
    layer, blank = model.joint.joint_net[-1], len(model.joint.vocabulary)
    layer.weight.normal_(std=3 * layer.weight[0].numel() ** -0.5)
    before, _, _ = model.decoder(
        targets=torch.randint(blank, (1, 5)), target_length=torch.tensor([5])
    )
    grid = model.joint.joint(encoded.transpose(1, 2), before.transpose(1, 2)).flatten(0, 2)
    layer.bias.sub_(grid.mean(0))
    grid -= grid.mean(0)
    layer.bias[blank] += (grid[:, :blank].amax(1) - grid[:, blank]).quantile(0.7)
    layer.bias[model.joint.vocabulary.index("<unk>")] -= 20


@torch.no_grad()
def computed(model: Any, samples: np.ndarray, prompt: str | None) -> dict[str, np.ndarray]:
    """What NeMo computes offline, in each context, by the names of the fixtures' arrays."""
    signal = torch.from_numpy(samples)[None]
    feats, lengths = model.preprocessor(input_signal=signal, length=torch.tensor([signal.size(1)]))
    arrays = {f"{CLIP}/audio": samples, f"{CLIP}/feats": feats[0, :, : lengths[0]].T.numpy()}
    given: dict[str, Any] = {"processed_signal": feats, "processed_signal_length": lengths}
    if prompt is not None:
        given["prompt_indices"] = torch.tensor([PROMPTS[prompt]])
    ctc = getattr(model, "ctc_decoder", None)
    for number, (left, ahead) in enumerate(model.encoder.att_context_size_all):
        model.encoder.set_default_att_context_size([left, ahead])
        encoded, frames = model.encoder(audio_signal=feats, length=lengths)
        name = f"{CLIP}/att_{left}_{ahead}"
        arrays[f"{name}/encoded"] = encoded[0].T.numpy()
        encoded, frames = model(**given)
        if prompt is not None:
            arrays[f"{name}/prompted"] = encoded[0].T.numpy()
        if number == 0:
            fit_joint(model, encoded)
            if ctc is not None:
                fit_head(ctc, encoded)
        if ctc is not None:
            arrays[f"{name}/log_probs"] = ctc(encoder_output=encoded)[0].numpy()
        arrays |= {f"{name}/{key}": value for key, value in searched(model, encoded, frames)}
    return arrays


def searched(model: Any, encoded: torch.Tensor, frames: torch.Tensor) -> Any:
    """NeMo's greedy search, and the joint network on its path."""
    found = model.decoding.rnnt_decoder_predictions_tensor(
        encoder_output=encoded, encoded_lengths=frames, return_hypotheses=True
    )[0]
    tokens, starts = (np.array(part) for part in (found.y_sequence, found.timestamp))
    yield "tokens", tokens
    yield "frames", starts
    yield "text", np.array(LABELS_WITHOUT_TEXT.sub("", found.text))
    blank, path, labels, before = len(model.joint.vocabulary), [], [], []
    for frame in range(int(frames)):
        own = [int(each) for each in tokens[starts == frame]]
        own += [blank] * (len(own) < 10)  # max_symbols
        before += [int((starts < frame).sum()) + i for i in range(len(own))]
        path, labels = path + [frame] * len(own), labels + own
    outputs, _, _ = model.decoder(
        targets=torch.from_numpy(tokens)[None].long(), target_length=torch.tensor([len(tokens)])
    )
    rows = zip(encoded[0].T[path], outputs[0].T[before], strict=True)
    joined = [model.joint.joint(f[None, None], g[None, None])[0, 0, 0] for f, g in rows]
    assert labels.count(blank) > 10
    yield "path_labels", np.array(labels)
    yield "path_frames", np.array(path)
    yield "path_log_probs", torch.stack(joined).numpy()


def differences(fixture: Fixture) -> dict[str, float]:
    """The largest of each kind over the contexts; tokens, frames and text are NeMo's."""
    encoder = fixture.file.model.encoder
    feats = features(fixture, CLIP)[0, encoder.rate.lead_frames :]
    found = {"features": difference(feats, fixture.tensor(f"{CLIP}/feats"))}
    samples = fixture.arrays[f"{CLIP}/audio"]
    for seed, (name, context) in enumerate(fixture.contexts()):
        place = f"{CLIP}/{name}"
        rows = offline(fixture, CLIP, name, context)
        trace = recognized(fixture, place, context, packets(samples, seed))
        streamed = head_differences(fixture, place, trace.emissions)
        rows["streamed"] = max(streamed.values())
        found |= {key: max(value, found.get(key, 0.0)) for key, value in rows.items()}
    return found


CATALOGUE = {each.name: each for each in read_catalogue().models if each.format == "nemo"}


def test_every_checkpoint_of_the_catalogue_has_a_shape() -> None:
    assert CATALOGUE.keys() == SHAPES.keys()
    for name, shape in SHAPES.items():
        entry = CATALOGUE[name]
        assert entry.contexts == [str(80 * (ahead + 1)) for _, ahead in shape.contexts]
        assert ("end of turn" in entry.writes) == ("<EOU>" in shape.marks)
        assert (entry.prompt in shape.prompts) == bool(shape.prompts)
        assert entry.revision is not None or entry.sha256 is None


def require_catalogued(name: str, imported: Imported) -> None:
    """The contexts and the number of parameters are those of the catalogue."""
    entry, file, layers = CATALOGUE[name], imported.file, imported.file.model.encoder.layers
    context, frame_ms = file.config.context, file.model.encoder.rate.frame_ms
    assert entry.contexts == [str(chunk * frame_ms) for chunk in context.chunk_sizes]
    of_layer = sum(each.numel() for each in layers[0].parameters())
    count = file.num_parameters + (SHAPES[name].layers - len(layers)) * of_layer
    assert abs(count / 1e6 - entry.parameters) < 0.5  # one language of the prompts is left


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        *(
            (name, prompt)
            for shape, name in DIFFERENT.items()
            for prompt in shape.prompts or [None]
        ),
        *((name, None) for name in OTHERS),
    ],
)
def test_a_shape(name: str, prompt: str | None, tmp_path: Path) -> None:
    shape, path = (SHAPES | OTHERS)[name], tmp_path / "model.nemo"
    model = build(shape, tmp_path)
    arrays = computed(model, recording(0), prompt)
    model.save_to(str(path))
    del model
    gc.collect()
    fixture = Fixture(import_checkpoint("nemo", path, prompt=prompt), arrays)
    assert not fixture.imported.left_out
    if name in SHAPES:
        require_catalogued(name, fixture.imported)
    found = differences(fixture)
    print(name, prompt or "", f"{fixture.file.num_parameters / 1e6:.1f} M",
          " ".join(f"{key} {value:.1e}" for key, value in found.items()))  # fmt: skip
    assert max(found.values()) < TOLERANCE

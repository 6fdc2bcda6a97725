"""NeMo: a cache-aware FastConformer-CTC with random weights, as NeMo's examples stream it.

The configuration is that of examples/asr/conf/fastconformer/cache_aware_streaming/
fastconformer_ctc_char_streaming.yaml, without the number of layers. Streaming from features follows
examples/asr/asr_cache_aware_streaming/speech_to_text_cache_aware_streaming_infer.py, streaming from
samples tutorials/asr/Online_ASR_Microphone_Demo_Cache_Aware_Streaming.ipynb.
"""

import copy
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairs import LABELS, RANDOM, SEED, Pair, Settings

LEFT, AHEAD = 70, 6  # encoder frames of 80 ms
CONTEXT = f"chunk {80 * (AHEAD + 1)}, left {80 * LEFT}, right 0"
FRAME = 1280  # samples of an encoder frame
WHOLE = "`model(input_signal=…, input_signal_length=…)`"
CALLS = f"{WHOLE}; `CacheAwareStreamingAudioBuffer`, `model.conformer_stream_step(…)`"
LIVE = f"{WHOLE}; `preprocessor` of a chunk, `model.conformer_stream_step(…)`"

TAIL = (
    "rounding; the buffer drops features at the end that do not fill a frame, with which offline "
    "makes one more"
)
PHASE = (
    "the phase: nine zeros come before the first chunk, so that encoder frames end at the features "
    "7, 15, 23, …, offline at 0, 8, 16, …"
)
EDGES = (
    "the features, for each chunk's spectrogram is filled with zeros at the chunk's own edges and "
    "a chunk has one sample less than its frames; and the phase, as with pad_and_drop_preencoded"
)


def pairs(settings: Settings) -> Iterator[Pair]:
    """Yield the examples' file streaming with and without padding, and a microphone's."""
    import nemo

    logging.getLogger("nemo_logger").setLevel(logging.ERROR)
    model = network(settings.layers)

    def offline(samples: np.ndarray) -> Tensor:
        signal, length = torch.from_numpy(samples)[None], torch.tensor([len(samples)])
        log_probs, lengths, _ = model(input_signal=signal, input_signal_length=length)
        return blank_first(log_probs[0, : int(lengths)])

    name = f"nemo_toolkit {nemo.__version__}, FastConformer"
    for source, pad, cause in (
        ("features", False, TAIL),
        ("features, pad_and_drop_preencoded", True, PHASE),
    ):
        yield Pair(
            name, RANDOM, source, CONTEXT, offline,
            lambda samples, pad=pad: from_features(model, samples, pad), CALLS, cause,
        )  # fmt: skip
    yield Pair(
        name, RANDOM, "samples", CONTEXT, offline, lambda samples: from_samples(model, samples),
        LIVE, EDGES,
    )  # fmt: skip


def blank_first(log_probs: Tensor) -> Tensor:
    """(E, V) with NeMo's blank, the last label, at 0."""
    return log_probs.roll(1, dims=1)


def network(layers: int) -> Any:
    """Build the model. Its decoder gets larger weights, as large as those of `RandomHead`."""
    from nemo.collections.asr.models import EncDecCTCModel
    from omegaconf import OmegaConf

    labels = [chr(ord("A") + i) for i in range(LABELS - 1)]
    torch.manual_seed(SEED)
    model = EncDecCTCModel(OmegaConf.create({
        "sample_rate": 16000, "labels": labels,
        "preprocessor": {
            "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": 16000, "normalize": "NA", "window_size": 0.025, "window_stride": 0.01,
            "window": "hann", "features": 80, "n_fft": 512, "log": True, "frame_splicing": 1,
            "dither": 0.0, "pad_to": 0, "pad_value": 0.0,
        },
        "encoder": {
            "_target_": "nemo.collections.asr.modules.ConformerEncoder", "feat_in": 80,
            "feat_out": -1, "n_layers": layers, "d_model": 512, "subsampling": "dw_striding",
            "subsampling_factor": 8, "subsampling_conv_channels": 256, "causal_downsampling": True,
            "ff_expansion_factor": 4, "self_attention_model": "rel_pos", "n_heads": 8,
            "att_context_size": [LEFT, AHEAD], "att_context_style": "chunked_limited",
            "xscaling": True, "pos_emb_max_len": 5000,
            "conv_kernel_size": 9, "conv_norm_type": "layer_norm", "conv_context_size": "causal",
        },
        "decoder": {
            "_target_": "nemo.collections.asr.modules.ConvASRDecoder", "feat_in": 512,
            "num_classes": len(labels), "vocabulary": labels,
        },
    })).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(1.5)
    return model


def stream(model: Any, steps: Iterator[tuple[Tensor, Tensor, int, bool]]) -> Tensor:
    """(E, V) of chunks of features with their lengths, frames to drop, and whether one is last."""
    cache, outputs = model.encoder.get_initial_cache_state(batch_size=1), []
    for feats, length, drop, last in steps:
        *result, log_probs, lengths = model.conformer_stream_step(
            processed_signal=feats, processed_signal_length=length, cache_last_channel=cache[0],
            cache_last_time=cache[1], cache_last_channel_len=cache[2], keep_all_outputs=last,
            drop_extra_pre_encoded=drop, return_transcription=False, return_log_probs=True,
        )  # fmt: skip
        cache = result[2:5]
        outputs.append(log_probs[0, : int(lengths)])
    return blank_first(torch.cat(outputs))


def from_features(model: Any, samples: np.ndarray, pad: bool) -> Tensor:
    """Stream the features of a whole recording, as the examples stream a file."""
    from nemo.collections.asr.parts.utils.streaming_utils import CacheAwareStreamingAudioBuffer

    buffer = CacheAwareStreamingAudioBuffer(model, pad_and_drop_preencoded=pad)
    buffer.append_audio(samples)
    drop = model.encoder.streaming_cfg.drop_extra_pre_encoded

    def steps() -> Iterator[tuple[Tensor, Tensor, int, bool]]:
        for number, (feats, length) in enumerate(buffer):
            yield feats, length, drop if number or pad else 0, buffer.is_buffer_empty()

    return stream(model, steps())


def from_samples(model: Any, samples: np.ndarray) -> Tensor:
    """Stream chunks of samples, each with features of its own, as the microphone's notebook."""
    settings = copy.deepcopy(model._cfg.preprocessor)
    settings.normalize = "None"
    preprocessor = model.from_config_dict(settings)
    size = model.encoder.streaming_cfg.pre_encode_cache_size[1]
    samples_a_chunk = (AHEAD + 1) * FRAME - 1  # as in the notebook

    def steps() -> Iterator[tuple[Tensor, Tensor, int | None, bool]]:
        before = torch.zeros(1, 80, size)
        for chunk in torch.from_numpy(samples)[None].split(samples_a_chunk, dim=1):
            feats, length = preprocessor(input_signal=chunk, length=torch.tensor([chunk.size(1)]))
            feats = torch.cat([before, feats], dim=2)
            before = feats[:, :, -size:]
            yield feats, length + size, None, False

    return stream(model, steps())

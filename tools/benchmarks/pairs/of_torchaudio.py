"""torchaudio: the Emformer of its RNN-T pipeline, as the pipeline's documentation streams it."""

import json
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import torch
import torchaudio
from torch import Tensor
from torchaudio.models import RNNT, emformer_rnnt_model
from torchaudio.pipelines import EMFORMER_RNNT_BASE_LIBRISPEECH as BUNDLE

from pairs import RANDOM, SEED, Pair, RandomHead, Settings

# The arguments of emformer_rnnt_base, without the number of layers; the transducer is not used.
BASE = {
    "input_dim": 80, "encoding_dim": 1024, "num_symbols": 32, "segment_length": 16,
    "right_context_length": 4, "time_reduction_input_dim": 128, "time_reduction_stride": 4,
    "transformer_num_heads": 8, "transformer_ffn_dim": 2048, "transformer_dropout": 0.1,
    "transformer_activation": "gelu", "transformer_left_context_length": 30,
    "transformer_max_memory_size": 0, "transformer_weight_init_scale_strategy": "depthwise",
    "transformer_tanh_on_mem": True, "symbol_embedding_dim": 512, "num_lstm_layers": 1,
    "lstm_layer_norm": True, "lstm_layer_norm_epsilon": 1e-3, "lstm_dropout": 0.3,
}  # fmt: skip
SEGMENT, RIGHT = BUNDLE.segment_length, BUNDLE.right_context_length  # feature frames
CONTEXT = f"chunk {10 * SEGMENT}, left 1200, right {10 * RIGHT}"
CALLS = "`RNNT.transcribe(features, length)`; `RNNT.transcribe_streaming(features, length, state)`"


def pairs(settings: Settings) -> Iterator[Pair]:
    """Yield the released architecture with random weights, from samples and from features."""
    torch.manual_seed(SEED)
    model = emformer_rnnt_model(**BASE, transformer_num_layers=settings.layers).eval()
    head = RandomHead(BASE["encoding_dim"])
    extract, extract_segment = extractors(settings)

    def offline(samples: np.ndarray) -> Tensor:
        features, length = extract(torch.from_numpy(samples))
        return head(model.transcribe(features[None], length)[0][0])

    def from_features(samples: np.ndarray) -> Tensor:
        features, _ = extract(torch.from_numpy(samples))
        return head(stream(model, [
            features[start : start + SEGMENT + RIGHT]
            for start in range(0, len(features) - RIGHT, SEGMENT)
        ]))  # fmt: skip

    def padded(samples: np.ndarray) -> np.ndarray:
        size = SEGMENT * BUNDLE.hop_length  # one frame less, for a frame is centred on sample 0
        return np.pad(samples, (0, (-len(samples)) % size + size - BUNDLE.hop_length))

    def from_samples(samples: np.ndarray) -> Tensor:
        waveform, hop = torch.from_numpy(samples), BUNDLE.hop_length
        size = (SEGMENT + RIGHT) * hop
        segments = [waveform[at : at + size] for at in range(0, len(samples), SEGMENT * hop)]
        padded = [torch.nn.functional.pad(each, (0, size - len(each))) for each in segments]
        return head(stream(model, [extract_segment(each)[0] for each in padded]))

    name = f"torchaudio {torchaudio.__version__.split('+')[0]}, Emformer"
    yield Pair(
        name, RANDOM, "features, whole segments", CONTEXT, lambda x: offline(padded(x)),
        lambda x: from_features(padded(x)), CALLS, PADDED,
    )  # fmt: skip
    yield Pair(name, RANDOM, "features", CONTEXT, offline, from_features, CALLS, FEATURES)
    yield Pair(name, RANDOM, "samples", CONTEXT, offline, from_samples, CALLS, SAMPLES)


PADDED = (
    "rounding: recordings end with silence to a whole number of segments, which `infer` assumes"
)
FEATURES = (
    "the end: `infer` takes whole segments and masks the padding of the last one only in batches, "
    "so its frames see frames that `forward` does not have"
)
SAMPLES = (
    "the features: each segment's spectrogram mirrors the segment's own edges, where that of the "
    "whole recording reads the samples before and after it"
)


def stream(model: RNNT, segments: list[Tensor]) -> Tensor:
    """(E, D) of features cut into segments with their right context, the last one padded."""
    state, outputs = None, []
    for segment in segments:
        size = max(SEGMENT + RIGHT, len(segment))
        padded = torch.nn.functional.pad(segment, (0, 0, 0, size - len(segment)))
        length = torch.tensor([len(segment)])
        output, length, state = model.transcribe_streaming(padded[None], length, state)
        outputs.append(output[0, : int(length)])
    return torch.cat(outputs)


def extractors(settings: Settings) -> tuple[object, object]:
    """The pipeline's two feature extractors, with statistics of the recordings at hand.

    The pipeline downloads statistics of LibriSpeech. Only this file is replaced.
    """
    path = settings.folder / "stats.json"
    with patch("torchaudio.utils._download_asset", return_value=str(path)):
        path.write_text(json.dumps({"mean": [0.0] * 80, "invstddev": [1.0] * 80}))
        plain = BUNDLE.get_streaming_feature_extractor()
        feats = torch.cat([plain(torch.from_numpy(each))[0] for each in settings.samples])
        stats = {"mean": feats.mean(0).tolist(), "invstddev": (1 / feats.std(0)).tolist()}
        path.write_text(json.dumps(stats))
        return BUNDLE.get_feature_extractor(), BUNDLE.get_streaming_feature_extractor()

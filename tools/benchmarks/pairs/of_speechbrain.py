"""speechbrain: the streaming Conformer of its LibriSpeech recipe, with random weights.

The modules and their sizes are those of recipes/LibriSpeech/ASR/transducer/hparams/
conformer_transducer.yaml, without the number of layers.
"""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairs import RANDOM, SEED, Pair, RandomHead, Settings

CHUNK, LEFT = 16, 4  # frames of a chunk, chunks before it
FRAME = 640  # samples of an encoder frame
CONTEXT = "chunk 640, left 2560, right 0"
DIM = 512
ENCODER = "`EncoderWrapper(x, dynchunktrain_config=config)`; `forward_streaming(chunk, context)`"
WHOLE = "`EncoderWrapper(extractor(samples), dynchunktrain_config=config)`"
CALLS = f"{WHOLE}; `StreamingASR.encode_chunk(context, chunk)`"
EXACT = "rounding"
DRIFT = (
    "the features: `get_chunk_size_frames` asks for 639 samples for each encoder frame of 640, so "
    "each chunk reads 16 samples earlier than offline; and `Fbank` cuts at 80 dB below the loudest "
    "value of a chunk, offline of the recording"
)


def pairs(settings: Settings) -> Iterator[Pair]:
    """Yield the encoder behind its convolutions, and all from samples."""
    os.environ["SB_DISABLE_QUIRKS"] = "disable_jit_profiling"
    import speechbrain
    from speechbrain.utils.dynamic_chunk_training import DynChunkTrainConfig

    context = DynChunkTrainConfig(CHUNK, LEFT)
    asr = recognizer(settings)
    wrapper = asr.hparams.fea_streaming_extractor
    extract, encoder, head = asr.extract, asr.mods.enc, RandomHead(DIM)

    def offline(samples: np.ndarray) -> Tensor:
        x = extract(torch.from_numpy(samples)[None])
        return head(encoder(x, dynchunktrain_config=context)[0])

    def from_features(samples: np.ndarray) -> Tensor:
        x, state = extract(torch.from_numpy(samples)[None]), encoder.make_streaming_context(context)
        return head(torch.cat([
            encoder.forward_streaming(part, state)[0] for part in x.split(CHUNK, dim=1)
        ]))  # fmt: skip

    def offline_from_zeros(samples: np.ndarray) -> Tensor:
        """Begin with the zeros that the streaming extractor puts before a recording."""
        return offline(np.pad(samples, (wrapper.get_required_padding(), 0)))

    def from_samples(samples: np.ndarray) -> Tensor:
        size, state = asr.get_chunk_size_frames(context), asr.make_streaming_context(context)
        parts = [*torch.from_numpy(samples)[None].split(size, dim=1)]
        parts += [torch.zeros(1, size)] * wrapper.get_recommended_final_chunk_count(size)
        return head(torch.cat([asr.encode_chunk(state, part)[0] for part in parts]))

    name = f"speechbrain {speechbrain.__version__}, Conformer"
    yield Pair(name, RANDOM, "features", CONTEXT, offline, from_features, ENCODER, EXACT)
    yield Pair(name, RANDOM, "samples", CONTEXT, offline_from_zeros, from_samples, CALLS, DRIFT)


def recognizer(settings: Settings) -> Any:
    """Its `StreamingASR` of modules with random weights, with `extract` of whole recordings."""
    from speechbrain.inference.ASR import StreamingASR
    from speechbrain.lobes.features import Fbank, StreamingFeatureWrapper
    from speechbrain.lobes.models.convolution import ConvolutionFrontEnd
    from speechbrain.lobes.models.transformer.TransformerASR import EncoderWrapper, TransformerASR
    from speechbrain.nnet.containers import LengthsCapableSequential
    from speechbrain.processing.features import InputNormalization
    from speechbrain.utils.filter_analysis import stack_filter_properties

    torch.manual_seed(SEED)
    fbank = Fbank(sample_rate=16000, n_fft=512, n_mels=80, win_length=32)
    normalize = InputNormalization(norm_type="global", update_until_epoch=4)
    convolutions = ConvolutionFrontEnd(
        input_shape=(8, 10, 80), num_blocks=2, num_layers_per_block=1, out_channels=(64, 32),
        kernel_sizes=(3, 3), strides=(2, 2), residuals=(False, False),
    )  # fmt: skip
    encoder = TransformerASR(
        input_size=640, tgt_vocab=32, d_model=DIM, nhead=8, num_encoder_layers=settings.layers,
        num_decoder_layers=0, d_ffn=2048, dropout=0.1, activation=torch.nn.GELU,
        encoder_module="conformer", attention_type="RelPosMHAXL", normalize_before=True,
        causal=False,
    )  # fmt: skip
    for samples in settings.samples:  # as a training does: statistics of all recordings
        normalize(fbank(torch.from_numpy(samples)[None]), torch.ones(1), epoch=0)
    extract = LengthsCapableSequential(fbank, normalize, convolutions).eval()
    wrapper = StreamingFeatureWrapper(extract, stack_filter_properties([fbank, convolutions]))
    unused = SimpleNamespace()
    asr = StreamingASR(
        modules={"enc": EncoderWrapper(encoder).eval(), "proj_enc": torch.nn.Identity()},
        hparams={
            "fea_streaming_extractor": wrapper, "make_decoder_streaming_context": lambda: None,
            "decoding_function": unused, "make_tokenizer_streaming_context": unused,
            "tokenizer_decode_streaming": unused, "sample_rate": 16000,
        },
    )  # fmt: skip
    asr.extract = extract
    return asr

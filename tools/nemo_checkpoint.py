"""Write a NeMo checkpoint with random weights, to try and to measure `asrkit import nemo` with.

    python tools/nemo_checkpoint.py --output large.nemo --layers 17 --dim 512 --channels 256
    python tools/nemo_checkpoint.py --output 0.6b.nemo --shape 0.6b     # 618 084 865 parameters

--shape 0.6b has the sizes of nemotron-speech-streaming-en-0.6b: a transducer without biases.
"""

import argparse
import io
import tarfile
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

CONTEXTS = [[70, 13], [70, 6], [70, 1], [70, 0]]
SHAPES = {"0.6b": {"layers": 24, "dim": 1024, "channels": 256, "labels": 1024}}
PREDICTOR_DIM, PREDICTOR_LAYERS, JOINT_DIM = 640, 2, 640  # of NVIDIA's transducers
HALVES = ("feed_forward1", "feed_forward2")


def settings(layers: int, dim: int, channels: int, labels: int) -> dict[str, Any]:
    """Return the configuration of a model with `labels` characters as labels."""
    return {
        "target": "nemo.collections.asr.models.ctc_models.EncDecCTCModel",
        "nemo_version": "2.5.0",
        "preprocessor": {
            "normalize": "NA", "window_size": 0.025, "window_stride": 0.01, "window": "hann",
            "features": 80, "n_fft": 512, "sample_rate": 16000,
        },
        "encoder": {
            "_target_": "nemo.collections.asr.modules.ConformerEncoder", "feat_in": 80,
            "n_layers": layers, "d_model": dim, "n_heads": 8, "ff_expansion_factor": 4,
            "subsampling": "dw_striding", "subsampling_factor": 8, "causal_downsampling": True,
            "subsampling_conv_channels": channels, "att_context_size": CONTEXTS,
            "att_context_style": "chunked_limited", "conv_kernel_size": 9,
            "conv_context_size": "causal", "conv_norm_type": "layer_norm", "xscaling": True,
        },
        "decoder": {"vocabulary": [chr(0x4E00 + i) for i in range(labels)]},
    }  # fmt: skip


def as_transducer(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a transducer on a network without biases, with 128 mel bands."""
    encoder, features = config["encoder"], config["preprocessor"]
    modules = "nemo.collections.asr.modules"
    labels = config["decoder"]["vocabulary"]
    prednet = {"pred_hidden": PREDICTOR_DIM, "pred_rnn_layers": PREDICTOR_LAYERS, "dropout": 0.2}
    return config | {
        "target": "nemo.collections.asr.models.rnnt_models.EncDecRNNTModel",
        "encoder": encoder | {"feat_in": 128, "use_bias": False, "xscaling": False},
        "preprocessor": features | {"features": 128},
        "decoder": {
            "_target_": f"{modules}.RNNTDecoder", "normalization_mode": None,
            "blank_as_pad": True, "prednet": prednet, "vocab_size": len(labels),
        },
        "joint": {
            "_target_": f"{modules}.RNNTJoint", "vocabulary": labels, "num_classes": len(labels),
            "jointnet": {"joint_hidden": JOINT_DIM, "activation": "relu", "dropout": 0.2},
        },
    }  # fmt: skip


def transducer_shapes(dim: int, labels: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a predictor and a joiner, by NeMo's names."""
    gates = 4 * PREDICTOR_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "decoder.prediction.embed.weight": (labels + 1, PREDICTOR_DIM)
    }
    for layer in range(PREDICTOR_LAYERS):
        for side in ("ih", "hh"):
            lstm = "decoder.prediction.dec_rnn.lstm"
            shapes[f"{lstm}.weight_{side}_l{layer}"] = (gates, PREDICTOR_DIM)
            shapes[f"{lstm}.bias_{side}_l{layer}"] = (gates,)
    for name, shape in {
        "pred": (JOINT_DIM, PREDICTOR_DIM), "enc": (JOINT_DIM, dim),
        "joint_net.2": (labels + 1, JOINT_DIM),
    }.items():  # fmt: skip
        shapes |= {f"joint.{name}.weight": shape, f"joint.{name}.bias": shape[:1]}
    return shapes


def weights(
    layers: int, dim: int, channels: int, labels: int, transducer: bool = False
) -> dict[str, Tensor]:
    """By NeMo's names: random numbers that leave the size of what goes through them as it is."""
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.pre_encode.conv.0": (channels, 1, 3, 3),
        "encoder.pre_encode.conv.2": (channels, 1, 3, 3),
        "encoder.pre_encode.conv.3": (channels, channels, 1, 1),
        "encoder.pre_encode.conv.5": (channels, 1, 3, 3),
        "encoder.pre_encode.conv.6": (channels, channels, 1, 1),
        "encoder.pre_encode.out": (dim, (17 if transducer else 11) * channels),
        "decoder.decoder_layers.0": (labels + 1, dim, 1),
    }
    alone: dict[str, tuple[int, ...]] = {}
    norms = ["self_att", "conv", "out", *HALVES]
    for i in range(layers):
        layer = f"encoder.layers.{i}"
        shapes |= {f"{layer}.norm_{norm}": (dim,) for norm in norms}
        shapes |= {f"{layer}.{half}.linear1": (4 * dim, dim) for half in HALVES}
        shapes |= {f"{layer}.{half}.linear2": (dim, 4 * dim) for half in HALVES}
        shapes |= {f"{layer}.self_attn.linear_{x}": (dim, dim) for x in ("q", "k", "v", "out")}
        shapes |= {
            f"{layer}.conv.pointwise_conv1": (2 * dim, dim, 1),
            f"{layer}.conv.depthwise_conv": (dim, 1, 9),
            f"{layer}.conv.pointwise_conv2": (dim, dim, 1),
            f"{layer}.conv.batch_norm": (dim,),
        }
        alone[f"{layer}.self_attn.linear_pos.weight"] = (dim, dim)
        alone |= {f"{layer}.self_attn.pos_bias_{x}": (8, dim // 8) for x in ("u", "v")}
    if transducer:
        del shapes["decoder.decoder_layers.0"]
        alone |= transducer_shapes(dim, labels)
    for name, shape in shapes.items():
        alone[f"{name}.weight"] = shape
        if not transducer or "norm" in name or "pre_encode" in name:
            alone[f"{name}.bias"] = shape[:1]
    generator, found = torch.Generator().manual_seed(0), {}
    for name, shape in alone.items():
        drawn = torch.randn(shape, generator=generator)
        norm = "norm" in name and name.endswith("weight")
        spread = 0.1 if len(shape) == 1 else drawn[0].numel() ** -0.5
        found[name] = spread * drawn + (1.0 if norm else 0.0)
    return found


def write(path: Path, config: dict[str, Any], tensors: object) -> None:
    """A .nemo file of a configuration and of what torch.save stores."""
    stored = io.BytesIO()
    torch.save(tensors, stored)
    members = {"model_config.yaml": yaml.safe_dump(config, allow_unicode=True).encode()}
    members["model_weights.ckpt"] = stored.getvalue()
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--output", type=Path, required=True)
    arguments.add_argument("--shape", choices=SHAPES, help="in place of the sizes")
    for name, default in (("layers", 17), ("dim", 512), ("channels", 256), ("labels", 1024)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    options = arguments.parse_args()
    if options.shape:
        sizes = SHAPES[options.shape]
        write(options.output, as_transducer(settings(**sizes)), weights(**sizes, transducer=True))
        return
    sizes = {name: getattr(options, name) for name in ("layers", "dim", "channels", "labels")}
    write(options.output, settings(**sizes), weights(**sizes))


if __name__ == "__main__":
    main()

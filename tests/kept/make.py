"""Write the kept files with the former version fff8d1f. Run it in a checkout of that commit:

    git worktree add --detach ../former fff8d1f
    cd ../former && PYTHONPATH=. OMP_NUM_THREADS=1 python ../asrkit/tests/kept/make.py

Names that it imports are those of that commit; those that the test needs, too, are in `measured`.
`tests/laws/test_kept.py` says what changed on purpose since and is not kept.
"""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import soundfile
import torch
import yaml
from measured import (
    CHUNK,
    FOLDER,
    LEFT,
    asrkit_main,
    corpus,
    imported,
    log_probs,
    losses,
    machine,
    outputs,
    recognizer,
    resumed,
    shipped,
    speech,
    texts,
)
from torch import nn

import asrkit
from asrkit.audio import Fbank, resample
from asrkit.build import build_model
from asrkit.config import parse_config
from asrkit.interop.wenet import LAYER
from asrkit.model.positions import KINDS
from asrkit.model_file import ModelFile, save_model
from asrkit.text import CharTokenizer
from asrkit.training.trainer import Trainer
from recipes.digits.prepare import ESPEAK_RATE, synthesise

SIZES = {
    "num_mels": 28, "dim": 8, "num_heads": 2, "num_layers": 2, "ffn_dim": 16, "kernel_size": 4,
    "dropout": 0.1,
}  # fmt: skip
AUGMENTATION = {
    "speed_factors": [0.9, 1.0],
    "spec_probability": 0.0,  # masks are drawn otherwise since
}
MODELS = {f"position-{kind}": {"position": kind} for kind in KINDS} | {
    "exported": {"num_layers": 1, "dim": 16, "position": "rotary"},
    "position-learned": {"position": {"kind": "learned", "period": 16}},
    "position-flow": {"position": {"kind": "flow", "step": 512}},
    "conv4-separable-padded": {
        "subsampling": {"kind": "conv4", "separable": True, "pad_stages": True},
        "frontend": "slaney", "conv_padding": "pointwise",
    },
    "conv8": {"subsampling": {"kind": "conv8", "channels": 8}, "after_norm": True},
    "conv8-padded": {
        "subsampling": {"kind": "conv8", "pad_stages": True}, "conv_norm": "affine",
        "frontend": "slaney",
    },
    "conv4-valid": {
        "subsampling": "conv4_valid", "frontend": {"kind": "kaldi", "snip_edges": False},
    },
    "conv6-valid": {"subsampling": "conv6_valid", "conv_norm": "affine", "after_norm": True},
    "conv8-valid": {"subsampling": "conv8_valid", "conv_padding": "pointwise"},
}  # fmt: skip
SPOKEN = {
    "digits": ("seven three oh nine", "en-us+f3"),
    "command": ("turn the lights off", "en+m2"),
    "call": ("call four two", "en-gb-x-rp+Andy"),
}
LETTERS = CharTokenizer(list("abcdefghij "))


def write_speech() -> None:
    for seed, (name, (text, voice)) in enumerate(SPOKEN.items()):
        samples = synthesise(text, voice, np.random.default_rng(seed)).astype(np.float32) / 32768
        path = FOLDER / "speech" / f"{name}.flac"
        soundfile.write(path, resample(samples, ESPEAK_RATE), 16000, subtype="PCM_16")


def randomise(model: nn.Module) -> None:
    """Weights with which every part has an effect."""
    for name, parameter in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            nn.init.normal_(parameter, mean=1.0, std=0.3)
        elif "position" in name or "qkv" in name or name == "head.weight":
            nn.init.normal_(parameter, std=0.5)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


@torch.no_grad()
def write_model(path: Path, options: dict[str, object]) -> None:
    config = parse_config({
        "data": {"train": "train.jsonl", "dev": "dev.jsonl"}, "training": {"output_dir": "out"},
        "augmentation": AUGMENTATION, "model": SIZES | options,
        "context": {"chunk_size": CHUNK, "left_context": LEFT},
    })  # fmt: skip
    torch.manual_seed(0)
    model = build_model(config.model, LETTERS.vocab_size).eval()
    if path.stem == "exported":  # weights of any size are no match for seven bits
        model.head.weight.normal_(std=0.5)
    else:
        randomise(model)
    samples = torch.from_numpy(speech("digits"))[None]
    feats = Fbank(SIZES["num_mels"])(samples, samples[:, :0])[0]
    model.encoder.set_statistics(feats[0].mean(0), 1 / feats[0].std(0).clamp(min=0.5))
    state = model.encoder.init_state(1, 0)
    encoded = model.encoder(feats, torch.tensor([feats.size(1)]), state, 1 << 30)
    model.head.bias.sub_(model.head(encoded.frames).mean(dim=(0, 1)))  # no label always wins
    save_model(path, ModelFile(model, LETTERS, config, {}))


def write_exports(model: Path, samples: Path) -> None:
    """A file of each format beside its model."""
    context = ["--chunk-ms", 40 * CHUNK, "--left-ms", 40 * LEFT, "--audio", samples]
    for kind in ("torchscript", "onnx", "onnx-int8"):
        more = ["--manifest", "dev.jsonl"] if kind == "onnx-int8" else []
        asrkit_main("export", "--model", model, "--format", kind, *context, *more)
    full = ["--format", "onnx", "--chunk-ms", "full", "--audio", samples]
    asrkit_main("export", "--model", model, *full)


def write_corpus() -> None:
    """Eight utterances of a little noise, and shards of the first three with their index."""
    draw, lines = np.random.default_rng(0), []
    Path("audio").mkdir()
    for i in range(8):
        samples = 0.004 * draw.standard_normal(6400 + 800 * i).astype(np.float32)
        soundfile.write(f"audio/{i}.flac", samples, 16000, subtype="PCM_16")
        lines.append({"id": str(i), "audio": f"audio/{i}.flac", "text": ["ab", "b a", "c"][i % 3]})
    for name, part in (("train", lines), ("dev", lines[:2]), ("three", lines[:3])):
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in part))
    asrkit_main("data", "shard", "three.jsonl", "--output", "shards", "--shard-size", 2)
    Path("three.jsonl").unlink()


def write_training() -> None:
    """A training of 2 of its steps."""
    values = {
        "data": {"train": "train.jsonl", "dev": "dev.jsonl", "max_batch_seconds": 2.0,
                 "num_buckets": 1, "num_workers": 0},
        "augmentation": AUGMENTATION,
        "model": SIZES, "context": {"chunk_sizes": [4, 8], "left_contexts": [8]},
        "training": {"output_dir": "out", "epochs": 2, "num_threads": 1, "average": 2,
                     "intermediate_layers": [1], "views": "full_and_chunks"},
    }  # fmt: skip
    Path("config.yaml").write_text(yaml.safe_dump(values))
    train_step, done = Trainer.train_step, []

    def stopped(self: Trainer, *arguments: object) -> None:
        done.append(0)
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        train_step(self, *arguments)  # type: ignore[arg-type]

    Trainer.train_step = stopped  # type: ignore[assignment]
    try:
        assert asrkit.__main__.main(["train", "--config", "config.yaml"]) == 130
    finally:
        Trainer.train_step = train_step


def wenet_weights(
    dim: int, ffn: int, mels: int, kernel: int, vocab: int
) -> dict[str, torch.Tensor]:
    """A model of WeNet's of one layer with BatchNorm, by its names."""
    bands = ((mels - 1) // 2 - 1) // 2
    shapes: dict[str, tuple[int, ...]] = {
        "embed.conv.0": (dim, 1, 3, 3), "embed.conv.2": (dim, dim, 3, 3),
        "embed.out.0": (dim, dim * bands),
    }  # fmt: skip
    at = "encoders.0"
    for name in LAYER.values():
        if "norm" in name:
            shapes[f"{at}.{name}"] = (dim,)
    for name in ("feed_forward_macaron", "feed_forward"):
        shapes |= {f"{at}.{name}.w_1": (ffn, dim), f"{at}.{name}.w_2": (dim, ffn)}
    shapes |= {f"{at}.self_attn.linear_{each}": (dim, dim) for each in ("q", "k", "v", "out")}
    shapes |= {
        f"{at}.conv_module.pointwise_conv1": (2 * dim, dim, 1),
        f"{at}.conv_module.depthwise_conv": (dim, 1, kernel),
        f"{at}.conv_module.pointwise_conv2": (dim, dim, 1), "after_norm": (dim,),
    }  # fmt: skip
    weights = {}
    for name, shape in shapes.items():
        std = 0.3 if len(shape) == 1 else 1.5 / np.sqrt(np.prod(shape[1:]))
        weights[f"encoder.{name}.weight"] = torch.randn(shape) * std + (len(shape) == 1)
        weights[f"encoder.{name}.bias"] = 0.3 * torch.randn(shape[0])
    weights[f"encoder.{at}.conv_module.norm.running_mean"] = torch.randn(dim)
    weights[f"encoder.{at}.conv_module.norm.running_var"] = torch.rand(dim) + 0.5
    weights[f"encoder.{at}.self_attn.linear_pos.weight"] = torch.randn(dim, dim) / dim**0.5
    for each in "uv":
        weights[f"encoder.{at}.self_attn.pos_bias_{each}"] = torch.randn(2, dim // 2)
    weights["encoder.global_cmvn.mean"] = torch.full((mels,), 12.0)
    weights["encoder.global_cmvn.istd"] = torch.full((mels,), 0.25)
    weights["ctc.ctc_lo.weight"], weights["ctc.ctc_lo.bias"] = (
        torch.randn(vocab, dim),
        torch.zeros(vocab),
    )
    return weights


def write_wenet() -> None:
    Path("wenet").mkdir()
    torch.manual_seed(0)
    torch.save(wenet_weights(8, 16, 28, 5, 12), "wenet/final.pt")
    units = ["<blank>", *"abcdefghij", "▁"]
    lines = "".join(f"{unit} {i}\n" for i, unit in enumerate(units))
    Path("wenet/units.txt").write_text(lines, encoding="utf-8")
    settings = {
        "encoder": "conformer", "tokenizer": "char", "cmvn": "global_cmvn",
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 28}},
        "encoder_conf": {
            "output_size": 8, "attention_heads": 2, "linear_units": 16, "num_blocks": 1,
            "cnn_module_kernel": 5, "cnn_module_norm": "batch_norm", "causal": True,
            "pos_enc_layer_type": "rel_pos", "input_layer": "conv2d", "use_dynamic_chunk": True,
        },
    }  # fmt: skip
    Path("wenet/train.yaml").write_text(yaml.safe_dump(settings))


def write_all() -> None:
    os.chdir(FOLDER)
    for name in ("models", "speech", "audio", "shards", "out", "wenet"):
        shutil.rmtree(name, ignore_errors=True)
    for name in ("models", "speech"):
        Path(name).mkdir()
    torch.set_num_threads(1)
    write_speech()
    draw = np.random.default_rng(0)
    feats = (12 + 4 * draw.standard_normal((2, 101, 28))).astype(np.float32)
    numbers = {"feats": feats, "lengths": np.array([101, 75])}
    batch = tuple(map(torch.from_numpy, numbers.values()))
    for name, options in MODELS.items():
        path = Path("models", f"{name}.safetensors")
        write_model(path, options)
        numbers |= {f"{name}/{key}": each for key, each in outputs(path, *batch).items()}
        if not options.get("after_norm"):
            numbers |= {f"{name}/loss/{key}": each for key, each in losses(path, *batch).items()}
        for key, chunk_size in (("samples_full", "full"), ("samples_chunks", CHUNK)):
            numbers[f"{name}/{key}"] = log_probs(path, speech("call"), chunk_size=chunk_size)
    results = {"shipped": shipped({name: speech(name) for name in SPOKEN})}
    model = Path("models", "exported.safetensors")
    write_corpus()
    write_exports(model, Path("speech", "digits.flac"))
    results["exported"] = texts(model, speech("digits"), backend="eager")
    results["exported_full"] = texts(model, speech("digits"), backend="eager", chunk_size="full")
    results["shards"] = corpus(Path("shards"))
    write_wenet()
    found = imported(Path("wenet"), Path("wenet.safetensors"), speech("digits"))
    numbers |= {f"wenet/{key}": each for key, each in found.items()}
    Path("wenet.safetensors").unlink()
    model = Path("models", "position-relative.safetensors")
    session = recognizer(model).start()
    session.accept(speech("digits")[:20000])
    Path("stream.bin").write_bytes(session.save())
    session.accept(speech("digits")[20000:])
    results["stream"] = session.finish().text
    write_training()
    shutil.rmtree("out/tensorboard")  # it names the machine
    shutil.copytree("out", "kept-out")
    trained = resumed(Path("config.yaml"))
    numbers |= {f"trained/{key}": each for key, each in outputs(trained, *batch).items()}
    shutil.rmtree("out")
    Path("kept-out").rename("out")
    np.savez_compressed("numbers.npz", **numbers)
    Path("results.json").write_text(json.dumps(results | {"machine": machine()}, indent=1))


if __name__ == "__main__":
    write_all()

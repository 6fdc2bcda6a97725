"""Train a small cache-aware FastConformer with NeMo, and write NeMo's texts in each context.

python tools/nemo_train.py data/an4/train.jsonl data/an4/dev.jsonl exp/nemo 15    # minutes
"""

import json
import random
import sys
from pathlib import Path

import lightning.pytorch as pl
import torch
from nemo.collections.asr.metrics.wer import word_error_rate
from nemo.collections.asr.models import EncDecCTCModelBPE
from nemo.collections.asr.parts.utils.streaming_utils import CacheAwareStreamingAudioBuffer
from nemo.collections.common.tokenizers.sentencepiece_tokenizer import create_spt_model
from omegaconf import OmegaConf

CONTEXTS, BATCH = [[64, 7], [64, 3], [64, 1]], 8  # contexts: frames of 80 ms before and ahead
MODULES = "nemo.collections.asr.modules"
DATA = f"sample_rate: 16000, batch_size: {BATCH}, shuffle: false, num_workers: 0"
SETTINGS = f"""
sample_rate: 16000
tokenizer: {{dir: FOLDER, type: bpe}}
train_ds: {{manifest_filepath: FOLDER/train.jsonl, {DATA}}}
validation_ds: {{manifest_filepath: FOLDER/dev.jsonl, {DATA}}}
preprocessor: {{_target_: {MODULES}.AudioToMelSpectrogramPreprocessor, normalize: NA,
  window_size: 0.025, n_fft: 512, features: 80}}
encoder: {{_target_: {MODULES}.ConformerEncoder, feat_in: 80, n_layers: 4, d_model: 96, n_heads: 4,
  subsampling: dw_striding, subsampling_factor: 8, subsampling_conv_channels: 32,
  causal_downsampling: true, att_context_style: chunked_limited, att_context_size: {CONTEXTS},
  conv_kernel_size: 9, conv_context_size: causal, conv_norm_type: layer_norm}}
decoder: {{_target_: {MODULES}.ConvASRDecoder, feat_in: 96, num_classes: -1, vocabulary: []}}
optim: {{name: adamw, lr: 0.2, sched: {{name: NoamAnnealing, d_model: 96, warmup_steps: 100}}}}
"""


def convert(manifest: Path, output: Path) -> list[dict[str, str]]:
    """Write a manifest with NeMo's keys, in batches of like durations, and return its rows."""
    read = sorted(map(json.loads, manifest.open()), key=lambda row: float(row["duration"]))
    rows = [{"audio_filepath": str((manifest.parent / row["audio"]).resolve()),
             "duration": row["duration"], "text": row["text"].lower()} for row in read]  # fmt: skip
    batches = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
    rows = [row for batch in random.Random(0).sample(batches, len(batches)) for row in batch]
    output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


@torch.inference_mode()
def stream(model: EncDecCTCModelBPE, path: str) -> str:
    """Return the text of a recording that is streamed as NeMo's example streams it."""
    buffer, cache = CacheAwareStreamingAudioBuffer(model), model.encoder.get_initial_cache_state(1)
    buffer.append_audio_file(path)
    before, texts = None, []
    for number, (feats, length) in enumerate(buffer):
        drop = model.encoder.streaming_cfg.drop_extra_pre_encoded if number else 0
        before, texts, *cache, _ = model.conformer_stream_step(
            feats, length, *cache, buffer.is_buffer_empty(), None, before, drop
        )
    return str(texts[0].text)


(folder := Path(sys.argv[3]).resolve()).mkdir(parents=True, exist_ok=True)
train = convert(Path(sys.argv[1]), folder / "train.jsonl")
dev = convert(Path(sys.argv[2]), folder / "dev.jsonl")
(texts := folder / "texts.txt").write_text("".join(row["text"] + "\n" for row in train))
create_spt_model(str(texts), 96, -1, True, tokenizer_type="bpe", output_dir=str(folder))
pl.seed_everything(0)
trainer = pl.Trainer(max_time={"minutes": int(sys.argv[4])}, accelerator="cpu", logger=False,
                     enable_checkpointing=False, limit_val_batches=0)  # fmt: skip
model = EncDecCTCModelBPE(OmegaConf.create(SETTINGS.replace("FOLDER", str(folder))), trainer)
trainer.fit(model)
model.eval().save_to(str(folder / "model.nemo"))
paths, right = zip(*((row["audio_filepath"], row["text"]) for row in dev), strict=True)
for context in CONTEXTS:
    model.encoder.set_default_att_context_size(context)
    offline = [result.text for result in model.transcribe(paths, batch_size=1, verbose=False)]
    for kind, found in (("offline", offline), ("streamed", [stream(model, p) for p in paths])):
        print(f"{context} {kind}: WER {100 * word_error_rate(found, right):.2f} %")
        (folder / f"{kind}-{context[1]}.txt").write_text("\n".join(found) + "\n")

"""sherpa-onnx: its offline and its online recogniser, with exports of one trained model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from asrkit.audio import SAMPLE_RATE
from asrkit.backends.export_metadata import Exported
from asrkit.backends.onnx import STATE
from asrkit.export import onnx, sherpa, sherpa_folder
from asrkit.export.sherpa_layouts import WENET_CTC
from asrkit.export.verification import eager_step
from asrkit.model import Context
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import recognizer_of
from pairs import Pair, Settings
from pairs.of_asrkit import MODEL

EXPORTED = Exported("ctc", Context(16, 64))
CONTEXT = "chunk 640, left 2560, right 0"
ONLINE = "`OnlineRecognizer.from_wenet_ctc(…)`, with silence after the recording"
OFFLINE = "`OfflineRecognizer.from_wenet_ctc(…)`"
EXACT = "no difference"

# From the inputs of an offline wenet-ctc model to those of asrkit's export.
BEFORE = """
<ir_version: 9, opset_import: ["": 20]>
before (float[1, T, {F}] x, int64[1] x_lens) => (float[1, P, {F}] feats, int64[1] lengths{outputs})
{{
  lengths = Identity (x_lens)
  chunk = Constant <value_ints = [{chunk}]> ()
  shortage = Neg (x_lens)
  missing = Mod (shortage, chunk)
  before = Constant <value_ints = [0, 0, 0, 0]> ()
  after = Constant <value_ints = [0]> ()
  pads = Concat <axis = 0> (before, missing, after)
  feats = Pad (x, pads)
{states}
}}
"""


def pairs(settings: Settings) -> Iterator[Pair]:
    """Yield the online recogniser beside the offline one, then beside asrkit."""
    import sherpa_onnx

    file = load_model(MODEL)
    core = settings.folder / "core.onnx"
    onnx.write(eager_step(file, EXPORTED), core, EXPORTED, file)
    tokens = settings.folder / "tokens.txt"
    tokens.write_text(sherpa_folder.tokens(file), encoding="utf-8")
    online = online_of(core, tokens, file)
    offline = offline_of(core, tokens, file)
    tail = np.zeros(sherpa_folder.tail_samples(EXPORTED), np.float32)
    ours = recognizer_of(file, EXPORTED.context)

    def whole(samples: np.ndarray) -> str:
        stream = offline.create_stream()
        stream.accept_waveform(SAMPLE_RATE, samples)
        offline.decode_stream(stream)
        return str(stream.result.text).strip()

    def streamed(samples: np.ndarray) -> str:
        return sherpa_folder.text_of(online, np.concatenate([samples, tail])).strip()

    name = f"sherpa-onnx {sherpa_onnx.__version__}"
    calls = f"{OFFLINE}; {ONLINE}"
    yield Pair(f"{name}, asrkit's export", MODEL, "samples", CONTEXT, whole, streamed, calls, EXACT)
    yield Pair(
        f"{name} online, asrkit offline", MODEL, "samples", CONTEXT,
        lambda samples: ours.transcribe_batch([samples])[0].text, streamed,
        f"`transcribe_batch([samples])`; {ONLINE}", EXACT,
    )  # fmt: skip


def online_of(core: Path, tokens: Path, file: ModelFile) -> Any:
    """The online recogniser of the folder that `asrkit export --format sherpa-onnx` writes."""
    import onnx as onnx_package

    path = core.with_name("online.onnx")
    (model,) = sherpa.wired([core], file, EXPORTED)
    onnx_package.save(model, path)
    return WENET_CTC.wheel([path], tokens, file, EXPORTED)


def offline_of(core: Path, tokens: Path, file: ModelFile) -> Any:
    """The offline recogniser of the same export, for which all chunks are one step."""
    import sherpa_onnx

    path = core.with_name("offline.onnx")
    wire_offline(core, path, file)
    recognizer = sherpa_onnx.OfflineRecognizer.from_wenet_ctc(
        model=str(path), tokens=str(tokens), num_threads=1
    )
    told = recognizer.config.feat_config
    told.low_freq, told.high_freq, told.snip_edges = sherpa_folder.features(file)
    recognizer.recognizer = type(recognizer.recognizer)(recognizer.config)
    return recognizer


def wire_offline(core: Path, path: Path, file: ModelFile) -> None:
    """Write an offline wenet-ctc model, which fills the last chunk and starts without a past."""
    import onnx as onnx_package
    from onnx import compose, helper, parser

    encoder, model = file.model.encoder, onnx_package.load(core)
    state = encoder.init_state(1, EXPORTED.context.left)
    outputs, lines = "", ""
    for name, value in zip(STATE, state, strict=True):
        assert not value.any(), "the graph begins with zeros"
        kind = "int64" if value.dtype == torch.int64 else "float"
        shape = [*value.shape]
        outputs += f", {kind}[{', '.join(map(str, shape))}] {name}"
        zero = f"<value = {kind}[1] {{0}}>"
        lines += f"  {name}_shape = Constant <value_ints = {shape}> ()\n"
        lines += f"  {name} = ConstantOfShape {zero} ({name}_shape)\n"
    chunk = encoder.rate.chunk_frames(EXPORTED.context)
    before = parser.parse_model(
        BEFORE.format(F=encoder.num_mels, chunk=chunk, outputs=outputs, states=lines)
    )
    compose.add_prefix(before, "before_", rename_inputs=False, rename_outputs=False, inplace=True)
    before.ir_version = model.ir_version
    del before.opset_import[:]
    before.opset_import.extend(model.opset_import)
    names = ["feats", "lengths", *STATE]
    wired = compose.merge_models(
        before, model, [(name, name) for name in names], outputs=["log_probs", "frames"]
    )
    del wired.metadata_props[:]
    helper.set_model_props(wired, {
        "vocab_size": str(file.tokenizer.vocab_size),
        "subsampling_factor": str(encoder.rate.factor),
    })  # fmt: skip
    onnx_package.save(wired, path)

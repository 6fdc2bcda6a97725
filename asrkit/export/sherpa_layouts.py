"""The layouts of sherpa-onnx's models that asrkit writes, and the choice of one for a model.

| layout | head | features |
|---|---|---|
| `wenet-ctc` | CTC | Kaldi's |
| `nemo-ctc` | CTC | NeMo's, or sherpa-onnx's version of them |
| `nemo-transducer` | transducer | as `nemo-ctc` |
| `lstm-transducer` | transducer with a stateless predictor | Kaldi's |
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrkit.audio import SAMPLE_RATE, Frontend
from asrkit.audio import build_frontend as frontend_of_kind
from asrkit.backends.export_metadata import Exported, read_by
from asrkit.build import build_frontend
from asrkit.export import sherpa, sherpa_folder, sherpa_graphs, sherpa_lstm, sherpa_nemo
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto
    from sherpa_onnx import OnlineRecognizer

README = """# {name} for sherpa-onnx

Chunks of {chunk_ms} ms with {left_ms} ms before them and {right_ms} ms after them, exported by
asrkit, in sherpa-onnx's layout for {origin}:

```python
import numpy as np
import sherpa_onnx

recognizer = sherpa_onnx.OnlineRecognizer.{call}
stream = recognizer.create_stream()
stream.accept_waveform(16000, samples)  # float32 in [-1, 1]
stream.accept_waveform(16000, np.zeros({tail}, np.float32))  # otherwise the last words are missing
stream.input_finished()
while recognizer.is_ready(stream):
    recognizer.decode_stream(stream)
print(recognizer.get_result(stream))
```

{remark}

sherpa-onnx recognises only whole windows: append {tail_ms} ms of silence to each recording. Its
resampler is linear: use samples at 16 kHz.
"""
CALLS = {
    "wenet-ctc": """from_wenet_ctc(
    tokens="tokens.txt", model="model.onnx", chunk_size={chunk}, num_left_chunks={left},
    feature_dim={bands},
)""",
    "nemo-transducer": """from_transducer(
    tokens="tokens.txt", encoder="encoder.onnx", decoder="decoder.onnx", joiner="joiner.onnx",
    feature_dim={bands},
)""",
    "nemo-ctc": """from_nemo_ctc(
    tokens="tokens.txt", model="model.onnx", feature_dim={bands}
)""",
    "lstm-transducer": """from_transducer(
    tokens="tokens.txt", encoder="encoder.onnx", decoder="decoder.onnx", joiner="joiner.onnx",
    feature_dim={bands}, low_freq={low}, high_freq={high}, snip_edges={snip_edges},
    normalize_samples=False,
)""",
}
OWN = "The model was trained with the features that sherpa-onnx computes for this layout."
OTHERS = """The model was trained with NeMo's features, and those of sherpa-onnx differ: their
windows are 5 ms later, and the start of a stream, the window and the logarithm are others (asrkit's
`frontend: sherpa_nemo`). The texts equal asrkit's with these features, and some differ from
asrkit's with NeMo's features."""
OF_KALDI = """`decoding_method="modified_beam_search"` gives sherpa-onnx's beam search, for which it
has hotwords and language models. asrkit compares texts of greedy search.

The features are those of samples in the range of 16-bit integers (`normalize_samples=False`). In
sherpa-onnx 2.0.1 only the Python package and the C++ core have this field."""
DEFAULTS = "The model uses the frequencies and frames of sherpa-onnx's default features."
SET_FEATURES = """
features = recognizer.config.feat_config
features.low_freq, features.high_freq, features.snip_edges = {low}, {high}, {snip_edges}
recognizer.recognizer = type(recognizer.recognizer)(recognizer.config)  # with these features"""
OF_FEATURES = """Without the three lines on features, sherpa-onnx uses its default features and some
texts differ: 12 of 102 did. A model trained with `frontend: {kind: kaldi, high_frequency: 7600,
snip_edges: false}` uses these default features and does not need the lines."""
OF_WENET = """In sherpa-onnx 2.0.1, the Python package and the C++ core have streaming wenet-ctc
models. Its C, Java, Kotlin, Swift and JavaScript interfaces do not have a field for them."""
OF_CTC = """Use sherpa-onnx 2.0.1 or later: earlier versions compute Kaldi's features for this
layout. Its times assume frames of 40 ms; this model has {frame_ms} ms."""


class Layout(NamedTuple):
    """A layout: its files, the check of a model, and the functions that write and run a folder."""

    name: str
    files: tuple[str, ...]  # the export with the encoder first
    check: Callable[[ModelFile, Exported], None]
    wired: Callable[[Sequence[Path], ModelFile, Exported], "list[ModelProto]"]
    tokens: Callable[[ModelFile], str]
    readme: Callable[[str, ModelFile, Exported], str]
    wheel: Callable[[Sequence[Path], Path, ModelFile, Exported], "OnlineRecognizer"]
    frontend: Callable[[ModelFile], Frontend]  # that sherpa-onnx has for the model
    tail_samples: Callable[[ModelFile, Exported], int]


def layout_of(file: ModelFile) -> Layout:
    """Return the layout for a model."""
    if read_by(file.model.head) == "transducer":
        return LSTM_TRANSDUCER if sherpa_lstm.fits(file) else NEMO_TRANSDUCER
    return WENET_CTC if file.config.model.frontend.kind == "kaldi" else NEMO_CTC


def nemo_frontend(file: ModelFile) -> Frontend:
    """Return the frontend of sherpa-onnx for models of NeMo."""
    model = file.config.model
    return frontend_of_kind("sherpa_nemo", model.num_mels, model.rate.lead_frames)


def wenet_readme(name: str, file: ModelFile, exported: Exported) -> str:
    """Return README.md, which shows the use of a model in WeNet's layout."""
    low, high, snip_edges = sherpa_folder.features(file)
    chunk, left, _ = exported.context
    bands = file.config.model.num_mels
    call = CALLS["wenet-ctc"].format(chunk=chunk, left=left // chunk, bands=bands)
    default = (low, high, snip_edges) == sherpa_folder.DEFAULTS
    if not default:
        call += SET_FEATURES.format(low=low, high=high, snip_edges=snip_edges)
    remarks = [DEFAULTS if default else OF_FEATURES, OF_WENET]
    return readme(name, file, exported, call, remarks, "models of WeNet")


def nemo_readme(name: str, file: ModelFile, exported: Exported) -> str:
    """Return README.md, which shows the use of a model in a layout of NeMo."""
    layout = layout_of(file)
    remarks = [OWN if file.config.model.frontend.kind == "sherpa_nemo" else OTHERS]
    if layout is NEMO_CTC:
        remarks.append(OF_CTC.format(frame_ms=exported.frame_ms))
    call = CALLS[layout.name].format(bands=file.config.model.num_mels)
    return readme(name, file, exported, call, remarks, "models of NeMo")


def lstm_readme(name: str, file: ModelFile, exported: Exported) -> str:
    """Return README.md, which shows the use of a model in icefall's layout of LSTM transducers."""
    low, high, snip_edges = sherpa_folder.features(file)
    bands = file.config.model.num_mels
    call = CALLS["lstm-transducer"].format(low=low, high=high, snip_edges=snip_edges, bands=bands)
    return readme(name, file, exported, call, [OF_KALDI], "icefall's LSTM transducers")


def readme(
    name: str, file: ModelFile, exported: Exported, call: str, remarks: list[str], origin: str
) -> str:
    """Return README.md.

    Args:
        origin: models for which sherpa-onnx has the layout.
    """
    tail = layout_of(file).tail_samples(file, exported)
    chunk_ms, left_ms, right_ms = (frames * exported.frame_ms for frames in exported.context)
    return README.format(
        name=name, chunk_ms=chunk_ms, left_ms=left_ms, right_ms=right_ms, tail=tail, origin=origin,
        tail_ms=1000 * tail // SAMPLE_RATE, call=call, remark="\n\n".join(remarks),
    )  # fmt: skip


def transducer(
    paths: Sequence[Path], tokens: Path, file: ModelFile, exported: Exported, **features: Any
) -> "OnlineRecognizer":
    """Build sherpa-onnx's recogniser of a transducer, with options of its features."""
    import sherpa_onnx

    encoder, decoder, joiner = map(str, paths)
    return sherpa_onnx.OnlineRecognizer.from_transducer(
        tokens=str(tokens), encoder=encoder, decoder=decoder, joiner=joiner, num_threads=1,
        feature_dim=file.config.model.num_mels, **features,
    )  # fmt: skip


def lstm_transducer(
    paths: Sequence[Path], tokens: Path, file: ModelFile, exported: Exported
) -> "OnlineRecognizer":
    """Build sherpa-onnx's recogniser of a transducer with the model's Kaldi features."""
    low, high, snip_edges = sherpa_folder.features(file)
    return transducer(
        paths, tokens, file, exported, low_freq=low, high_freq=high, snip_edges=snip_edges,
        normalize_samples=False,
    )  # fmt: skip


def nemo_ctc(
    paths: Sequence[Path], tokens: Path, file: ModelFile, exported: Exported
) -> "OnlineRecognizer":
    """Build sherpa-onnx's recogniser of a CTC model in NeMo's layout."""
    import sherpa_onnx

    return sherpa_onnx.OnlineRecognizer.from_nemo_ctc(
        tokens=str(tokens), model=str(paths[0]), feature_dim=file.config.model.num_mels,
        num_threads=1,
    )  # fmt: skip


WENET_CTC = Layout(
    "wenet-ctc",
    ("model.onnx",),
    sherpa.check,
    lambda paths, file, exported: [sherpa.wired(paths[0], file, exported)],
    sherpa_folder.tokens,
    wenet_readme,
    lambda paths, *others: sherpa_folder.wheel(paths[0], *others),
    lambda file: build_frontend(file.config.model),
    lambda _, exported: sherpa_folder.tail_samples(exported),
)
NEMO_CTC = WENET_CTC._replace(
    name="nemo-ctc",
    check=sherpa_nemo.check,
    wired=sherpa_nemo.wired,
    tokens=lambda file: sherpa_folder.tokens(file, blank_last=True),
    readme=nemo_readme,
    wheel=nemo_ctc,
    frontend=nemo_frontend,
    tail_samples=sherpa_graphs.tail_samples,
)
NEMO_TRANSDUCER = NEMO_CTC._replace(
    name="nemo-transducer", files=("encoder.onnx", "decoder.onnx", "joiner.onnx"), wheel=transducer
)
LSTM_TRANSDUCER = Layout(
    "lstm-transducer",
    NEMO_TRANSDUCER.files,
    sherpa_lstm.check,
    sherpa_lstm.wired,
    sherpa_folder.tokens,
    lstm_readme,
    lstm_transducer,
    WENET_CTC.frontend,
    sherpa_graphs.tail_samples,
)

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

from asrkit.audio import Frontend
from asrkit.audio import build_frontend as frontend_of_kind
from asrkit.backends.export_metadata import Exported
from asrkit.build import build_frontend
from asrkit.export import sherpa, sherpa_folder, sherpa_lstm, sherpa_nemo
from asrkit.export.sherpa_graphs import tail_samples
from asrkit.model_file import ModelFile

if TYPE_CHECKING:
    from onnx import ModelProto
    from sherpa_onnx import OnlineRecognizer

README = """# {name} for sherpa-onnx

Exported by asrkit in the layout {layout}: chunks of {chunk_ms} ms with {left_ms} ms before them and
{right_ms} ms after them. docs/export.md of asrkit has a program around these lines.

```python
zeros = {tail}  # after the samples; otherwise the last words are missing
recognizer = sherpa_onnx.OnlineRecognizer.{call}
```
"""
DEFAULTS = (20.0, 7600.0, False)  # of `sherpa_folder.features`
SET_FEATURES = """
features = recognizer.config.feat_config
features.low_freq, features.high_freq, features.snip_edges = {}, {}, {}
recognizer.recognizer = type(recognizer.recognizer)(recognizer.config)  # with these features"""


class Layout(NamedTuple):
    """A layout: its files, the check of a model, and the functions that write and run a folder."""

    name: str
    method: str  # of OnlineRecognizer
    inputs: tuple[str, ...]  # arguments for the files; the export with the encoder is first
    check: Callable[[ModelFile, Exported], None]
    wired: Callable[[Sequence[Path], ModelFile, Exported], "list[ModelProto]"]
    options: Callable[[ModelFile, Exported], dict[str, Any]]  # further arguments of the method
    is_nemo: bool = False  # NeMo's features, with the blank as the last label
    sets_features: bool = False  # the method has no arguments for Kaldi's features

    @property
    def files(self) -> list[str]:
        return [f"{name}.onnx" for name in self.inputs]

    def tokens(self, file: ModelFile) -> str:
        """Return tokens.txt."""
        return sherpa_folder.tokens(file, self.is_nemo)

    def frontend(self, file: ModelFile) -> Frontend:
        """Return the frontend that sherpa-onnx has for the model."""
        model = file.config.model
        if not self.is_nemo:
            return build_frontend(model)
        return frontend_of_kind("sherpa_nemo", model.num_mels, model.rate.lead_frames)

    def arguments(
        self, paths: Sequence[Path | str], tokens: Path | str, file: ModelFile, exported: Exported
    ) -> dict[str, Any]:
        """Return the arguments of sherpa-onnx's method for the files of a folder."""
        arguments: dict[str, Any] = {"tokens": str(tokens)}
        arguments |= {name: str(path) for name, path in zip(self.inputs, paths, strict=True)}
        arguments["feature_dim"] = file.config.model.num_mels
        return arguments | self.options(file, exported)

    def wheel(
        self, paths: Sequence[Path], tokens: Path, file: ModelFile, exported: Exported
    ) -> "OnlineRecognizer":
        """Build sherpa-onnx's recogniser, with the model's features."""
        import sherpa_onnx

        arguments = self.arguments(paths, tokens, file, exported)
        recognizer = getattr(sherpa_onnx.OnlineRecognizer, self.method)(**arguments, num_threads=1)
        if self.sets_features:
            config = recognizer.config.feat_config
            config.low_freq, config.high_freq, config.snip_edges = sherpa_folder.features(file)
            recognizer.recognizer = type(recognizer.recognizer)(recognizer.config)
        return recognizer

    def readme(self, name: str, file: ModelFile, exported: Exported) -> str:
        """Return README.md, which shows the use of a folder."""
        arguments = self.arguments(self.files, "tokens.txt", file, exported)
        lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
        call = f"{self.method}(\n{lines})"
        if self.sets_features and (features := sherpa_folder.features(file)) != DEFAULTS:
            call += SET_FEATURES.format(*features)
        chunk_ms, left_ms, right_ms = (frames * exported.frame_ms for frames in exported.context)
        return README.format(
            name=name, layout=self.name, call=call, tail=tail_samples(file, exported),
            chunk_ms=chunk_ms, left_ms=left_ms, right_ms=right_ms,
        )  # fmt: skip


def layout_of(file: ModelFile) -> Layout:
    """Return the layout for a model."""
    if file.config.model.head.kind == "transducer":
        return LSTM_TRANSDUCER if sherpa_lstm.fits(file) else NEMO_TRANSDUCER
    return WENET_CTC if file.config.model.frontend.kind == "kaldi" else NEMO_CTC


def chunks(_: ModelFile, exported: Exported) -> dict[str, Any]:
    """Return the arguments for the context of a model in WeNet's layout."""
    chunk, left, _right = exported.context
    return {"chunk_size": chunk, "num_left_chunks": left // chunk}


def kaldi_options(file: ModelFile, _: Exported) -> dict[str, Any]:
    """Return the arguments for Kaldi's features of samples in the range of 16-bit integers."""
    low, high, snip_edges = sherpa_folder.features(file)
    names = {"low_freq": low, "high_freq": high, "snip_edges": snip_edges}
    return names | {"normalize_samples": False}


PARTS = ("encoder", "decoder", "joiner")
WENET_CTC = Layout(
    "wenet-ctc", "from_wenet_ctc", ("model",), sherpa.check, sherpa.wired, chunks,
    sets_features=True,
)  # fmt: skip
NEMO_CTC = Layout(
    "nemo-ctc", "from_nemo_ctc", ("model",), sherpa_nemo.check, sherpa_nemo.wired, lambda *_: {},
    is_nemo=True,
)  # fmt: skip
NEMO_TRANSDUCER = NEMO_CTC._replace(name="nemo-transducer", method="from_transducer", inputs=PARTS)
LSTM_TRANSDUCER = Layout(
    "lstm-transducer", "from_transducer", PARTS, sherpa_lstm.check, sherpa_lstm.wired,
    kaldi_options,
)  # fmt: skip

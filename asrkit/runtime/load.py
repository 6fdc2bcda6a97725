"""From a model file to a recogniser."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from asrkit.backends import build_backend, milliseconds
from asrkit.build import build_fusion, build_normalizer, build_search
from asrkit.config import (
    LanguageModelConfig,
    SearchConfig,
    parse_language_model,
    parse_search,
)
from asrkit.errors import UserError, shown, whole_number
from asrkit.model import FULL_CONTEXT
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.recognizer import Recognizer
from asrkit.runtime.rewrite import find_postprocess

LONGEST_CONTEXT_MS = 3_600_000  # an hour: more would ask for all memory


def load(
    path: str | Path,
    chunk_size: int | str | None = None,
    left_context: int | None = None,
    search: str | Mapping[str, Any] | None = None,
    device: str = "cpu",
    lm: str | Path | Mapping[str, Any] | None = None,
    endpointer: Endpointer | None = None,
    postprocess: str | Callable[[str], str] | None = None,
    backend: str | Path | None = None,
) -> Recognizer:
    """A recogniser from a model file.

    Args:
        path: a .safetensors model file, or the name of a ready model.
        chunk_size: encoder frames, or "full" for full context; the model's own if None.
        left_context: encoder frames before the chunk; the model's own if None.
        search: a kind of search, or a dict of its "kind" and options, as in a configuration; the
            model's own if None, which is "greedy" unless its configuration chose another.
        device: of torch.
        lm: an ARPA file or a binary of KenLM, for a search that takes one; or a dict of its "path"
            and options: "units" (words or tokens), "weight", "word_bonus".
        endpointer: ends segments at pauses; None for one segment.
        postprocess: rewrites the text of each segment: a function, the "module:function" of one, or
            the name of one that an installed package offers, as asrkit does "spelled": "four four
            seven" becomes "447". Never taken from a model file: it is code.
        backend: what runs the network: eager, compiled, torchscript, onnx, onnx-int8, or an .onnx
            file; if None, onnx where `asrkit export` wrote one beside the model file, else eager.
            All are compared with eager here, int8 as far as its rounding allows. ONNX Runtime gets
            as many threads as torch has now; afterwards torch is best left one
            (`torch.set_num_threads(1)`).

    Raises:
        ModelFileError: for a file that cannot be loaded.
        UserError: for a value that does not fit.
    """
    chosen = None if search is None else parse_search(search)
    model = None if lm is None else parse_language_model(lm)
    rewrite = None if postprocess is None else find_postprocess(postprocess)
    return recognizer_of(
        load_model(path), chunk_size, left_context, chosen, device, model, endpointer, rewrite,
        backend,
    )  # fmt: skip


def recognizer_of(
    file: ModelFile,
    chunk_size: int | str | None = None,
    left_context: int | None = None,
    search: SearchConfig | None = None,
    device: str = "cpu",
    lm: LanguageModelConfig | None = None,
    endpointer: Endpointer | None = None,
    postprocess: Callable[[str], str] | None = None,
    backend: str | Path | None = "eager",
) -> Recognizer:
    """As `load`, from a model file already read; eager unless another backend is named."""
    if not isinstance(endpointer, Endpointer | None):
        raise UserError(f"endpointer must be an asrkit.Endpointer, got {shown(endpointer)}")
    context = file.config.context
    if chunk_size is None:
        chunk_size = context.chunk_size
    longest = LONGEST_CONTEXT_MS // milliseconds(file.model.encoder.factor)  # frames
    full = chunk_size in ("full", FULL_CONTEXT)
    chunk = FULL_CONTEXT if full else whole_number(chunk_size, 1, longest)
    if chunk is None:
        raise UserError(
            f"chunk_size must be 1 to {longest} frames or 'full', got {shown(chunk_size)}"
        )
    if left_context is None:
        left_context = context.left_context
    left = whole_number(left_context, 0, longest)
    if left is None:
        raise UserError(f"left_context must be 0 to {longest} frames, got {shown(left_context)}")
    file = on_device(file, known_device(device))
    search = search or file.config.search
    fusion = None if lm is None else build_fusion(lm, search, file.tokenizer)
    searcher = build_search(search, fusion)
    normalizer = build_normalizer(file.config.text)
    network = build_backend(backend, file, chunk, left)
    try:
        return Recognizer(network, file.tokenizer, searcher, normalizer, endpointer, postprocess)
    except ValueError as error:
        raise UserError(str(error)) from None


def on_device(file: ModelFile, device: torch.device) -> ModelFile:
    """The model file with its model on a device: a copy, unless it is there already."""
    here = file.model.head.weight.device
    if (here.type, here.index or 0) == (device.type, device.index or 0):
        return file
    return file._replace(model=copy.deepcopy(file.model).to(device))


def known_device(device: str | torch.device) -> torch.device:
    """A device that is there.

    Raises:
        UserError: for one that is not.
    """
    there = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        there += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or f"{chosen.type}:{chosen.index or 0}" not in ("cpu:0", *there):
        raise UserError(f"device {shown(device)} is not here; there is {', '.join(there)}")
    return chosen

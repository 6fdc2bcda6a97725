"""Loading a recogniser from a model file."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from asrkit.backends import build_backend, build_second
from asrkit.build import build_frontend, build_fusion, build_normalizer, build_search
from asrkit.config import (
    LanguageModelConfig,
    SearchConfig,
    parse_language_model,
    parse_search,
)
from asrkit.context import FULL, FULL_CONTEXT, Context
from asrkit.errors import UserError, shown
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.postprocess import find_postprocess
from asrkit.runtime.recognizer import Recognizer
from asrkit.runtime.threads import leave_cores, set_threads
from asrkit.search import KINDS, Search


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
    second_pass: int | str | None = None,
    second_search: str | Mapping[str, Any] | None = None,
    right_context: int | None = None,
    threads: int | None = None,
) -> Recognizer:
    """Load a recogniser from a model file.

    Args:
        path: .safetensors model file, name of a ready model, or hf://owner/name for a model on the
            Hugging Face hub. Nothing else is ever downloaded.
        chunk_size: encoder frames, or "full" for full context; the model's own if None.
        left_context: encoder frames before the chunk; the model's own if None.
        search: kind of search, or a dict of its "kind" and options, as in a configuration. If None,
            the model's own, which is "greedy" unless its configuration chose another kind.
        device: torch device.
        lm: ARPA file or KenLM binary for a search that uses one; or a dict of its "path" and
            options: "units" (words or tokens), "weight", "word_bonus". With two passes, the model
            applies to each search that uses one.
        endpointer: endpointer that ends segments at pauses; None for one segment.
        postprocess: function that rewrites the text of each segment; or "module:function"; or
            "spelled": "four four seven" becomes "447". Never read from a model file, because it is
            code.
        backend: eager, onnx, onnx-int8, or an .onnx file. If None, onnx if
            `asrkit export` wrote such a file beside the model file, else eager. Every backend is
            compared with eager here, int8 within its rounding. ONNX Runtime uses the threads, and
            torch keeps one.
        second_pass: encoder frames of a larger chunk, or "full": the same network recognises each
            ended segment again in this context, and that text is final. None for one pass.
        second_search: search of the second pass, see `search`; the first one's if None.
        right_context: encoder frames after its chunk that a frame sees; the model's own if None.
            They delay live text. Full context has none.
        threads: CPU threads of torch, set for the whole process. None: one in processes of
            multiprocessing and for a network of fewer than ten million parameters, which does not
            gain from more; else torch's present number.

    Raises:
        ModelFileError: for a file that cannot be loaded.
        UserError: for an argument that is not valid.
    """
    first, second = (
        None if kind is None else parse_search(kind) for kind in (search, second_search)
    )
    model = None if lm is None else parse_language_model(lm)
    rewrite = None if postprocess is None else find_postprocess(postprocess)
    file = load_model(path)
    number = set_threads(threads, file.num_parameters)
    rate, live = file.model.encoder.rate, file.config.context.live
    context = rate.context(live, chunk_size, left_context, right_context)
    recognizer = recognizer_of(
        file, context, first, device, model, endpointer, rewrite, backend, second_pass, second
    )
    leave_cores(recognizer.backend.kind, number)
    return recognizer


def recognizer_of(
    file: ModelFile,
    context: Context | None = None,
    search: SearchConfig | None = None,
    device: str = "cpu",
    lm: LanguageModelConfig | None = None,
    endpointer: Endpointer | None = None,
    postprocess: Callable[[str], str] | None = None,
    backend: str | Path | None = "eager",
    second_pass: int | str | None = None,
    second_search: SearchConfig | None = None,
) -> Recognizer:
    """Make a recogniser from a loaded model file; see `load`. The default backend is eager."""
    if not isinstance(endpointer, Endpointer | None):
        raise UserError(f"endpointer must be an asrkit.Endpointer, got {shown(endpointer)}")
    file.require_trained()
    if second_search is not None and second_pass is None:
        raise UserError("second_search needs second_pass")
    context = file.config.context.live if context is None else context
    second = None
    if second_pass is not None:
        chunk_size = file.model.encoder.rate.chunk_size("second_pass", second_pass)
        second = FULL if chunk_size == FULL_CONTEXT else Context(chunk_size, context.left)
    file = on_device(file, known_device(device))
    search = search or file.config.search
    searches = searches_of(lm, search, second_search, file)
    normalizer = build_normalizer(file.config.text)
    network = build_backend(backend, file, context)
    larger = None if second is None else build_second(backend, file, second)
    try:
        return Recognizer(
            network, file.tokenizer, searches[0], normalizer, endpointer, postprocess, larger,
            searches[1], build_frontend(file.config.model), file.terms,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(str(error)) from None


def searches_of(
    lm: LanguageModelConfig | None,
    first: SearchConfig,
    second: SearchConfig | None,
    file: ModelFile,
) -> tuple[Search, Search | None]:
    """Return the searches of both passes, with a language model in those that use one.

    Raises:
        UserError: if the last pass does not use a language model, or the model cannot be read.
    """
    head = file.model.head
    fusion = None if lm is None else build_fusion(lm, second or first, file.tokenizer)
    first_fusion = fusion if KINDS[first.kind].takes_fusion else None
    last = None if second is None else build_search(second, head, fusion)
    return build_search(first, head, first_fusion), last


def on_device(file: ModelFile, device: torch.device) -> ModelFile:
    """Return the model file with its model on a device; it is copied unless it is there already."""
    present = file.model.encoder.mean.device
    if (present.type, present.index or 0) == (device.type, device.index or 0):
        return file
    return file._replace(model=copy.deepcopy(file.model).to(device))


def known_device(device: str | torch.device) -> torch.device:
    """Return an available device. For a GPU, torch's convolutions are made exact.

    Raises:
        UserError: for a device that is not available.
    """
    names = ["cpu"]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        names += [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or f"{chosen.type}:{chosen.index or 0}" not in ("cpu:0", *names):
        raise UserError(
            f"device must be one of {', '.join(names)} on this machine, got {shown(device)}"
        )
    if chosen.type == "cuda":
        # By default torch permits TF32 there, with 10 bits of mantissa, and cuDNN chooses it by the
        # shape: chunks differ from the whole by 8e-3 (H200), in float32 by 3e-5.
        torch.backends.cudnn.allow_tf32 = False
    return chosen

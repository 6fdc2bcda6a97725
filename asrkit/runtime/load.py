"""Loading a recogniser from a model file or an export."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asrkit.backends import build_backend, build_second
from asrkit.backends.onnx import read
from asrkit.backends.threads import threads_for
from asrkit.build import build_frontend, build_fusion, build_normalizer, build_search
from asrkit.config.kinds import SearchConfig
from asrkit.config.running import LanguageModelConfig, parse_language_model, parse_search
from asrkit.context import FULL, FULL_CONTEXT, Context
from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.model_contents import ModelFile, RunnableModel
from asrkit.model_header import read_runnable
from asrkit.model_path import model_path
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.postprocess import find_postprocess
from asrkit.runtime.recognizer import Recognizer
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
        path: .safetensors model file; .onnx file that `asrkit export` wrote; name of a ready model;
            or hf://owner/name for a model on the Hugging Face hub. Nothing else is ever downloaded.
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
        backend: eager, which needs torch; onnx, onnx-int8, or an .onnx file. If None, onnx if
            `asrkit export` wrote such a file beside the model file, else eager. An export computes
            numbers of eager here that it states, int8 within its rounding.
        second_pass: encoder frames of a larger chunk, or "full": the same network recognises each
            ended segment again in this context, and that text is final. None for one pass.
        second_search: search of the second pass, see `search`; the first one's if None.
        right_context: encoder frames after its chunk that a frame sees; the model's own if None.
            They delay live text. Full context has none.
        threads: CPU threads; those of torch are set for the whole process. None: one in processes
            of multiprocessing and for a network of fewer than ten million parameters, which does
            not gain from more; else OMP_NUM_THREADS or all cores, and torch's present number.

    Raises:
        ModelFileError: for a file that cannot be loaded.
        UserError: for an argument that is not valid.
    """
    first, second = (
        None if kind is None else parse_search(kind) for kind in (search, second_search)
    )
    model = None if lm is None else parse_language_model(lm)
    rewrite = None if postprocess is None else find_postprocess(postprocess)
    runnable = load_runnable(path)
    context = runnable.context(chunk_size, left_context, right_context)
    return recognizer_of(
        runnable, context, first, device, model, endpointer, rewrite, backend, second_pass, second,
        threads,
    )  # fmt: skip


def load_runnable(model: str | Path) -> RunnableModel:
    """Read what running a model needs, except its network.

    Args:
        model: see `load`.
    """

    def network(path: Path) -> ModelFile:
        from asrkit.model_file import load_model

        return load_model(path)

    path = Path(model) if isinstance(model, str | Path) else Path()
    if path.suffix == ".onnx" and path.is_file():
        return read(path)[0].description.runnable(path, network)
    return read_runnable(model_path(model), network)


def recognizer_of(
    file: RunnableModel | ModelFile,
    context: Context | None = None,
    search: SearchConfig | None = None,
    device: str = "cpu",
    lm: LanguageModelConfig | None = None,
    endpointer: Endpointer | None = None,
    postprocess: Callable[[str], str] | None = None,
    backend: str | Path | None = "eager",
    second_pass: int | str | None = None,
    second_search: SearchConfig | None = None,
    threads: int | None = None,
) -> Recognizer:
    """Make a recogniser from a loaded model; see `load`. The default backend is eager."""
    if not isinstance(endpointer, Endpointer | None):
        raise UserError(f"endpointer must be an asrkit.Endpointer, got {shown(endpointer)}")
    model = file.runnable if isinstance(file, ModelFile) else file
    model.require_trained()
    if second_search is not None and second_pass is None:
        raise UserError("second_search needs second_pass")
    context = model.live if context is None else context
    second = None
    if second_pass is not None:
        chunk_size = model.rate.chunk_size("second_pass", second_pass)
        second = FULL if chunk_size == FULL_CONTEXT else Context(chunk_size, context.left)
    if device != "cpu" or isinstance(file, ModelFile):  # which may be on another device
        model = on_device(model, device)
    if backend is None and context == model.live:
        backend = model.export
    number = threads_for(threads, model.num_parameters)
    searches = searches_of(lm, search or model.config.search, second_search, model)
    network = build_backend(backend, model, context, str(device), number)
    larger = second and build_second(backend, network, model, second, str(device), number)
    try:
        return Recognizer(
            network, model.tokenizer, searches[0], build_normalizer(model.config.text), endpointer,
            postprocess, larger, searches[1], build_frontend(model.config.model), model.terms,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(str(error)) from None


def searches_of(
    lm: LanguageModelConfig | None,
    first: SearchConfig,
    second: SearchConfig | None,
    model: RunnableModel,
) -> tuple[Search, Search | None]:
    """Return the searches of both passes, with a language model in those that use one.

    Raises:
        UserError: if the last pass does not use a language model, or the model cannot be read.
    """
    head = model.config.model.head.kind
    fusion = None if lm is None else build_fusion(lm, second or first, model.tokenizer)
    first_fusion = fusion if KINDS[first.kind].takes_fusion else None
    last = None if second is None else build_search(second, head, fusion)
    return build_search(first, head, first_fusion), last


def on_device(model: RunnableModel, device: str) -> RunnableModel:
    """Return the model with a network that is loaded on a device."""
    need("torch")
    from asrkit.backends import pytorch

    known = pytorch.known_device(device)
    load = functools.cache(lambda: pytorch.on_device(model.load(), known))
    return model._replace(load=load)

"""Making the recogniser that a command's options describe."""

import argparse
import sys
from collections.abc import Callable

import torch

from asrkit.cli.parser import complain
from asrkit.config import (
    ConfigError,
    LanguageModelConfig,
    SearchConfig,
    parse_language_model,
    parse_search,
)
from asrkit.config.read_yaml import parse_yaml
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, shown
from asrkit.lm.hotwords import WEIGHT, read_hotwords
from asrkit.model import FULL, Context
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Endpointer, Recognizer, recognizer_of
from asrkit.runtime.postprocess import find_postprocess
from asrkit.runtime.threads import leave_cores, set_threads
from asrkit.search import KINDS


def endpointer_of(options: argparse.Namespace) -> Endpointer | None:
    chosen = {
        "max_segment_ms": options.max_segment_ms,
        "vad": options.vad or None,
        "end_of_turn": None if options.end_of_turn == "off" else options.end_of_turn,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if options.endpoint_ms == "off" and options.end_of_turn == "off":
        if chosen:
            raise UserError("options of segments need --endpoint-ms: give it, or leave them out")
        return None
    if options.endpoint_ms is not None:
        chosen["pause_ms"] = None if options.endpoint_ms == "off" else options.endpoint_ms
    try:
        return Endpointer(**chosen)
    except ValueError as error:
        raise UserError(f"endpoint: {error}") from None


def search_of(options: argparse.Namespace, file: ModelFile) -> SearchConfig:
    search = file.config.search if options.search is None else asked_search(options.search)
    if options.beam is None:
        return search
    with_beam = [kind for kind in KINDS if "beam" in KINDS.options(kind)]
    if search.kind not in with_beam:
        raise UserError(f"--beam needs --search {' or '.join(with_beam)}, got {search.kind}")
    return parse_search(search.model_dump() | {"beam": options.beam})


def asked_search(text: str, option: str = "--search") -> SearchConfig:
    """Parse a search: a kind, or YAML with options."""
    try:
        value = parse_yaml(text)
    except ConfigError as error:
        raise UserError(f"{option} must be a kind or YAML, got {shown(text)}: {error}") from None
    return parse_search(value)


def lm_of(options: argparse.Namespace) -> LanguageModelConfig | None:
    given = {"units": options.lm_units, "weight": options.lm_weight,
             "word_bonus": options.word_bonus}  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    if options.lm is None:
        if given:
            raise UserError("--lm-units, --lm-weight and --word-bonus need an --lm")
        return None
    return parse_language_model({"path": options.lm, **given})


def hotwords_of(options: argparse.Namespace) -> dict[str, float] | None:
    weight = options.hotword_weight
    if options.hotwords is None:
        if weight is not None:
            raise UserError("--hotword-weight needs --hotwords")
        return None
    return read_hotwords(options.hotwords, WEIGHT if weight is None else weight)


def load_recognizer(options: argparse.Namespace) -> Recognizer:
    endpointer, postprocess = endpointer_of(options), postprocess_of(options)
    model, hotwords = lm_of(options), hotwords_of(options)
    file = load_file(options)
    second_pass = second_pass_of(options, file)
    recognizer = recognizer_of(
        file, context_of(options, file), search_of(options, file), options.device, model,
        endpointer, postprocess, options.backend, second_pass,
        second_search_of(options, second_pass),
    )  # fmt: skip
    leave_cores(recognizer.backend.kind, torch.get_num_threads())
    return recognizer.with_hotwords(hotwords)


def load_plain(options: argparse.Namespace) -> Recognizer:
    """Load the model of the options in their context, without their search and what follows it."""
    file = load_file(options)
    return recognizer_of(file, context_of(options, file), device=options.device)


def load_file(options: argparse.Namespace) -> ModelFile:
    """Load the model file of the options; set torch's threads for it, or as in the options."""
    file = load_model(options.model)
    set_threads(getattr(options, "torch_threads", None), file.num_parameters)
    return file


def postprocess_of(options: argparse.Namespace) -> Callable[[str], str] | None:
    if not options.postprocess:
        return None
    if ":" in options.postprocess:
        sys.path.append("")  # its module may be in the working folder
    return find_postprocess(options.postprocess)


def context_of(options: argparse.Namespace, file: ModelFile) -> Context:
    """Return the context that the options describe; missing numbers are the model's own."""
    rate = file.model.encoder.rate
    if options.chunk_ms == "full":
        if options.left_ms is not None or options.right_ms is not None:
            raise UserError(
                "--left-ms and --right-ms have no effect with --chunk-ms full, in which every "
                "frame sees all others: leave them out"
            )
        return FULL
    chunk_size, left, right = (
        None if value is None else rate.frames(name, value, lowest)
        for name, value, lowest in (
            ("--chunk-ms", options.chunk_ms, 1),
            ("--left-ms", options.left_ms, 0),
            ("--right-ms", options.right_ms, 0),
        )
    )
    return rate.context(file.config.context.live, chunk_size, left, right)


def second_pass_of(options: argparse.Namespace, file: ModelFile) -> int | str | None:
    """Return the context of the second pass; None without one, as by default in full context."""
    is_full = options.chunk_ms == "full"
    chosen: str = options.second_pass or ("off" if is_full else options.second_pass_default)
    if is_full and chosen == "full":
        raise UserError(
            "--second-pass full has no effect with --chunk-ms full, whose text is the same: "
            "leave one of them out"
        )
    if chosen in ("off", "full"):
        return None if chosen == "off" else chosen
    return file.model.encoder.rate.frames("--second-pass", chosen, 1)


def second_search_of(options: argparse.Namespace, second_pass: object) -> SearchConfig | None:
    if options.second_search is not None and second_pass is None:
        raise UserError(
            "--second-search has no effect without a second pass: give --second-pass MS, or "
            "leave it out"
        )
    search = options.second_search
    return None if search is None else asked_search(search, "--second-search")


def name_left_out(command: str, left_out: list[LeftOut]) -> int:
    """Report on standard error what was not scored; return the exit status."""
    for each in dict.fromkeys(left_out):
        complain(command, f"not scored {each}")
    return 1 if left_out else 0

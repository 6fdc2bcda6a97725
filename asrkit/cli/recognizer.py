"""Making the recogniser that a command's options describe."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from asrkit.cli.options import refuse
from asrkit.cli.parser import complain
from asrkit.config.kinds import SearchConfig
from asrkit.config.read_yaml import ConfigError, parse_yaml
from asrkit.config.running import LanguageModelConfig, parse_language_model, parse_search
from asrkit.context import FULL, Context
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, shown
from asrkit.lm.hotwords import WEIGHT, read_hotwords
from asrkit.model_contents import RunnableModel
from asrkit.runtime import Endpointer, Recognizer, recognizer_of
from asrkit.runtime.endpoint import PAUSE_MS
from asrkit.runtime.load import load_runnable
from asrkit.runtime.postprocess import find_postprocess
from asrkit.search import KINDS

WITH_FULL = "with --chunk-ms full, in which every frame sees all others"


def endpointer_of(options: argparse.Namespace) -> Endpointer | None:
    turn = None if options.end_of_turn == "off" else options.end_of_turn
    if options.endpoint_ms == "off" and turn is None:
        refuse(options, "without --endpoint-ms", "max_segment_ms", "vad")
        return None
    pause = None if options.endpoint_ms == "off" else options.endpoint_ms or PAUSE_MS
    return Endpointer(pause, options.max_segment_ms, options.vad, turn)


def search_of(options: argparse.Namespace, file: RunnableModel) -> SearchConfig:
    search = file.config.search if options.search is None else asked_search(options.search)
    if options.beam is None:
        return search
    if "beam" not in KINDS.options(search.kind):
        refuse(options, f"with --search {search.kind}", "beam")
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
    if options.lm is None:
        refuse(options, "without --lm", "lm_units", "lm_weight", "word_bonus")
        return None
    given = {name: value for name, value in given.items() if value is not None}
    return parse_language_model({"path": options.lm, **given})


def hotwords_of(options: argparse.Namespace) -> dict[str, float] | None:
    if options.hotwords is None:
        refuse(options, "without --hotwords", "hotword_weight")
        return None
    weight = options.hotword_weight
    return read_hotwords(options.hotwords, WEIGHT if weight is None else weight)


def load_recognizer(options: argparse.Namespace) -> Recognizer:
    endpointer, postprocess = endpointer_of(options), postprocess_of(options)
    model, hotwords = lm_of(options), hotwords_of(options)
    file = load_runnable(options.model)
    second_pass = second_pass_of(options, file)
    recognizer = recognizer_of(
        file, context_of(options, file), search_of(options, file), options.device, model,
        endpointer, postprocess, options.backend, second_pass,
        second_search_of(options, second_pass), getattr(options, "model_threads", None),
    )  # fmt: skip
    return recognizer.with_hotwords(hotwords)


def aligner_of(
    options: argparse.Namespace, file: RunnableModel, context: Context, **others: Any
) -> Recognizer:
    """Return a recogniser that aligns texts; eager for transducers, whose exports lack CTC."""
    return recognizer_of(
        file, context, device=options.device, threads=getattr(options, "model_threads", None),
        backend=None if file.config.model.head.kind == "ctc" else "eager", **others,
    )  # fmt: skip


def postprocess_of(options: argparse.Namespace) -> Callable[[str], str] | None:
    if not options.postprocess:
        return None
    if ":" in options.postprocess:
        sys.path.append("")  # its module may be in the working folder
    return find_postprocess(options.postprocess)


def context_of(options: argparse.Namespace, file: RunnableModel) -> Context:
    """Return the context that the options describe; missing numbers are the model's own."""
    rate = file.rate
    if options.chunk_ms == "full" or (options.chunk_ms is None and file.live.full):
        refuse(options, WITH_FULL, "left_ms", "right_ms")
        return FULL
    chunk_size, left, right = (
        None if value is None else rate.frames(name, value, lowest)
        for name, value, lowest in (
            ("--chunk-ms", options.chunk_ms, 1),
            ("--left-ms", options.left_ms, 0),
            ("--right-ms", options.right_ms, 0),
        )
    )
    return file.context(chunk_size, left, right)


def second_pass_of(options: argparse.Namespace, file: RunnableModel) -> int | str | None:
    """Return the context of the second pass; None without one, as by default in full context."""
    is_full = context_of(options, file).full
    chosen: str = options.second_pass or ("off" if is_full else options.second_pass_default)
    if is_full and chosen == "full":
        refuse(options, WITH_FULL, "second_pass")
    if chosen in ("off", "full"):
        return None if chosen == "off" else chosen
    return file.rate.frames("--second-pass", chosen, 1)


def second_search_of(options: argparse.Namespace, second_pass: object) -> SearchConfig | None:
    if second_pass is None:
        refuse(options, "without a second pass", "second_search")
    search = options.second_search
    return None if search is None else asked_search(search, "--second-search")


def name_left_out(command: str, left_out: list[LeftOut]) -> int:
    """Report on standard error what was not scored; return the exit status."""
    for each in dict.fromkeys(left_out):
        complain(command, f"not scored {each}")
    return 1 if left_out else 0

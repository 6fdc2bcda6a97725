"""What all commands share: --help with an example, the model options, one line for a mistake."""

import argparse
import sys
from collections.abc import Callable

import torch
import yaml

from asrkit.checkpoint import ModelFile, load_model
from asrkit.config import (
    Config,
    LanguageModelConfig,
    SearchConfig,
    parse_language_model,
    parse_search,
)
from asrkit.errors import UserError
from asrkit.export.backends import BACKENDS
from asrkit.model import FRAME_MS
from asrkit.runtime import Endpointer, Recognizer, recognizer_of
from asrkit.runtime.rewrite import find_postprocess
from asrkit.search.hotwords import WEIGHT, read_hotwords


def parser(name: str, description: str | None, example: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=name,
        description=(description or "").partition(":")[0] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


MODEL = "a .safetensors model file, or the name of a ready model"


def add_model_file(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--model", required=True, help=MODEL)


def add_model(arguments: argparse.ArgumentParser) -> None:
    add_model_file(arguments)
    arguments.add_argument("--device", default="cpu", help="of torch: cpu, cuda, … (default cpu)")


def add_context(arguments: argparse.ArgumentParser, chunk_ms: str | None = None) -> None:
    """The chunk and the left context; `chunk_ms`: a default of the command's own."""
    own = "the model's"
    arguments.add_argument(
        "--chunk-ms", default=chunk_ms,
        help=f"chunk in ms, a multiple of 40, or 'full' (default: {chunk_ms or own})",
    )  # fmt: skip
    arguments.add_argument(
        "--left-ms", help="left context in ms, a multiple of 40 (default: the model's)"
    )


def add_backend(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--backend",
        help=f"what runs the network: {', '.join(BACKENDS)}, or an .onnx file (default: onnx where"
        " asrkit export wrote one beside the model, else eager)",
    )


def add_search(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--search",
        help="greedy, prefix_beam, or a kind with options: '{kind: prefix_beam, min_token_prob: 0}'"
        " (default: the model's, as a rule greedy)",
    )
    arguments.add_argument("--beam", type=int, help="texts kept by prefix_beam (its default: 10)")
    arguments.add_argument(
        "--lm", metavar="FILE", help="n-gram model for prefix_beam: ARPA, or a binary of KenLM"
    )
    arguments.add_argument(
        "--lm-units", choices=["words", "tokens"], help="of the language model (default words)"
    )
    arguments.add_argument("--lm-weight", type=float, help="of the language model (default 0.5)")
    arguments.add_argument(
        "--word-bonus", type=float, help="for each word of the language model (default 0.5)"
    )
    arguments.add_argument(
        "--hotwords", metavar="FILE", help="phrases for prefix_beam to prefer: a line each"
    )
    arguments.add_argument(
        "--hotword-weight",
        type=float,
        help="for each word of a phrase that has no weight of its own in the file, after a tab"
        f" (default {WEIGHT:g})",
    )


def add_segments(arguments: argparse.ArgumentParser, endpoint: str = "off") -> None:
    """How results are cut and written."""
    arguments.add_argument(
        "--endpoint-ms", metavar="MS", default=endpoint,
        help=f"a pause this long ends a segment; off: one segment (default {endpoint})",
    )  # fmt: skip
    arguments.add_argument(
        "--min-segment-ms", type=int, metavar="MS", help="shorter segments go on (default 0)"
    )
    arguments.add_argument(
        "--max-segment-ms", type=int, metavar="MS",
        help="a segment this long ends at its next pause of 200 ms (default: never)",
    )  # fmt: skip
    arguments.add_argument(
        "--reset", choices=["search", "encoder"],
        help="what begins anew after an endpoint (default search: the network goes on)",
    )  # fmt: skip
    arguments.add_argument(
        "--vad", action="store_true",
        help="pauses must be quiet for silero-vad too (pip install 'asrkit[vad]')",
    )  # fmt: skip
    arguments.add_argument(
        "--postprocess", metavar="NAME",
        help="rewrites the text: module:function, or a name such as spelled (four four seven: 447)",
    )  # fmt: skip


def endpointer_of(options: argparse.Namespace) -> Endpointer | None:
    """What cuts a stream into segments, if the options ask for it.

    Raises:
        UserError: for a time out of range, or an option that says something of no endpoint.
    """
    given = {"min_segment_ms": options.min_segment_ms, "max_segment_ms": options.max_segment_ms}
    given = {name: value for name, value in given.items() if value is not None}
    if options.reset is not None:
        given["reset_encoder"] = options.reset == "encoder"
    if options.vad:
        given["vad"] = True
    if options.endpoint_ms == "off":
        if given:
            raise UserError("without --endpoint-ms there are no segments to set options for")
        return None
    if not options.endpoint_ms.isdecimal():
        raise UserError(f"--endpoint-ms must be milliseconds or off, got {options.endpoint_ms!r}")
    try:
        return Endpointer(int(options.endpoint_ms), **given)
    except ValueError as error:
        raise UserError(f"endpoint: {error}") from None


def search_of(options: argparse.Namespace, file: ModelFile) -> SearchConfig:
    """The search that the options ask for.

    Raises:
        UserError: for a kind or an option that is not one, or does not fit.
    """
    search = file.config.search
    if options.search is not None:
        try:
            search = parse_search(yaml.safe_load(options.search))
        except yaml.YAMLError:
            raise UserError(f"--search must be a kind or YAML, got {options.search!r}") from None
    if options.beam is not None:
        search = parse_search(search.model_dump() | {"beam": options.beam})
    return search


def lm_of(options: argparse.Namespace) -> LanguageModelConfig | None:
    """The language model that the options ask for, if any.

    Raises:
        UserError: for an option that does not fit, or says something of no language model.
    """
    given = {"units": options.lm_units, "weight": options.lm_weight,
             "word_bonus": options.word_bonus}  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    if options.lm is None:
        if given:
            raise UserError("--lm-units, --lm-weight and --word-bonus need an --lm")
        return None
    return parse_language_model({"path": options.lm, **given})


def hotwords_of(options: argparse.Namespace) -> dict[str, float] | None:
    """The hotwords that the options ask for, if any.

    Raises:
        UserError: for a file that cannot be read, or a weight of no hotwords.
    """
    weight = options.hotword_weight
    if options.hotwords is None:
        if weight is not None:
            raise UserError("--hotword-weight needs --hotwords")
        return None
    return read_hotwords(options.hotwords, WEIGHT if weight is None else weight)


def add_batch(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument(
        "--batch-seconds", type=positive_seconds, default=120.0, help="audio in a batch"
    )


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be seconds above 0, got {text!r}")
    return seconds


def frames(option: str, value: str | None) -> int | None:
    """Encoder frames of a time in ms.

    Raises:
        UserError: if it is not a multiple of 40.
    """
    if value is None:
        return None
    if not value.isdecimal() or int(value) % FRAME_MS:
        raise UserError(f"{option} must be a multiple of {FRAME_MS} ms, got {value!r}")
    return int(value) // FRAME_MS


def load_recognizer(options: argparse.Namespace) -> tuple[Recognizer, Config]:
    """The recogniser that the options ask for, segments too, and the model's configuration."""
    file = load_model(options.model)
    rewrite = None
    if options.postprocess:
        sys.path.insert(0, "")  # a function may be in the folder where the command is given
        rewrite = find_postprocess(options.postprocess)
    recognizer = recognizer_as(options, file, endpointer_of(options), rewrite, options.backend)
    leave_cores(recognizer, torch.get_num_threads())
    return recognizer, file.config


def leave_cores(recognizer: Recognizer, threads: int) -> None:
    """Give torch these threads, but one beside ONNX Runtime, which has its own.

    Torch's threads stay busy for a while after their work: on two cores a chunk of one stream took
    ONNX Runtime 30 ms beside two of them, and 12 beside one.
    """
    torch.set_num_threads(1 if recognizer.backend.kind.startswith("onnx") else threads)


def recognizer_as(
    options: argparse.Namespace,
    file: ModelFile,
    endpointer: Endpointer | None = None,
    postprocess: Callable[[str], str] | None = None,
    backend: str | None = "eager",
) -> Recognizer:
    """The recogniser that the options ask for, of a model file already read."""
    search, model = search_of(options, file), lm_of(options)
    recognizer = recognizer_of(
        file, *context_of(options), search, options.device, model, endpointer, postprocess, backend
    )
    return recognizer.with_hotwords(hotwords_of(options))


def context_of(options: argparse.Namespace) -> tuple[int | str | None, int | None]:
    """The chunk size and the left context that the options ask for, if they do."""
    full = options.chunk_ms == "full"
    chunk_size = "full" if full else frames("--chunk-ms", options.chunk_ms)
    return chunk_size, frames("--left-ms", options.left_ms)


def run_command(
    command: Callable[[argparse.Namespace], int],
    arguments: argparse.ArgumentParser,
    argv: list[str] | None,
) -> int:
    """Exit status: 0 done, 1 done but something failed, 2 a user's mistake, 130 stopped."""
    options = arguments.parse_intermixed_args(argv)  # files and settings may stand anywhere
    try:
        return command(options)
    except BrokenPipeError:  # of `| head`
        return 1
    except (UserError, OSError) as error:  # OSError: a full disk, a folder without permission
        print(f"{arguments.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{arguments.prog}: stopped", file=sys.stderr)
        return 130

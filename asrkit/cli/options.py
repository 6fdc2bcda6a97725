"""Options that several commands share, and what they ask for."""

import argparse
import io
import os
import sys
from collections.abc import Callable
from functools import partial

from asrkit.audio.file import MAX_CHANNELS
from asrkit.backends import BACKENDS
from asrkit.cli.interrupt import end_at_next_interrupt
from asrkit.cli.parser import Parser, complain, real, whole
from asrkit.config import (
    Config,
    ConfigError,
    LanguageModelConfig,
    SearchConfig,
    parse_language_model,
    parse_search,
)
from asrkit.config.read_yaml import parse_yaml
from asrkit.data.manifest import LeftOut
from asrkit.errors import UserError, shown
from asrkit.lm import LIMIT
from asrkit.lm.hotwords import WEIGHT, read_hotwords
from asrkit.model import FULL, Context
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Endpointer, Recognizer, recognizer_of
from asrkit.runtime.endpoint import PAUSE_MS
from asrkit.runtime.formats import FORMATS
from asrkit.runtime.postprocess import find_postprocess
from asrkit.runtime.threads import MOST_THREADS, leave_cores, set_threads
from asrkit.search import KINDS


def parser(name: str, description: str | None, example: str, usage: str | None = None) -> Parser:
    """The parser of a command whose module has this docstring."""
    return Parser(name, (description or "").partition(":")[0] + ".", example, usage)


MODEL = "a .safetensors model file, the name of a ready model, or hf://owner/name"
LONGEST_MS = 3_600_000  # of a time in an option
MULTIPLE = "a multiple of the model's frame, as a rule 40 ms"


def add_model_file(arguments: Parser) -> None:
    arguments.group("model").add_argument("--model", required=True, help=MODEL)


def add_model(arguments: Parser) -> None:
    add_model_file(arguments)
    add_device(arguments)
    arguments.group("model").add_argument(
        "--threads", dest="torch_threads", type=whole(1, MOST_THREADS), metavar="N",
        help="CPU threads (default: 1 for a network of fewer than 10 M parameters, else torch's)",
    )  # fmt: skip


def add_device(arguments: Parser) -> None:
    arguments.group("model").add_argument(
        "--device", default="cpu", help="of torch: cpu, cuda, … (default cpu)"
    )


def add_backend(arguments: Parser) -> None:
    arguments.group("model").add_argument(
        "--backend", metavar="KIND",
        help=f"what runs the network: {', '.join(BACKENDS)}, or an .onnx file (default: onnx where"
        " asrkit export wrote one beside the model, else eager)",
    )  # fmt: skip


def add_context(arguments: Parser, chunk_ms: str | None = None) -> None:
    """The chunk and the left context; `chunk_ms`: a default of the command's own."""
    own, group = "the model's", arguments.group("context")
    group.add_argument(
        "--chunk-ms", default=chunk_ms, metavar="MS",
        help=f"chunk, {MULTIPLE}, or full (default: {chunk_ms or own})",
    )  # fmt: skip
    group.add_argument(
        "--left-ms", metavar="MS", help=f"left context, {MULTIPLE} (default: the model's)"
    )
    add_right_context(arguments)


def add_right_context(arguments: Parser) -> None:
    arguments.group("context").add_argument(
        "--right-ms", metavar="MS",
        help="right context: what live words wait for after their chunk (default: the model's)",
    )  # fmt: skip


def add_search(arguments: Parser) -> None:
    group = arguments.group("search")
    group.add_argument(
        "--search", metavar="KIND",
        help="greedy, prefix_beam, or a kind with options: '{kind: prefix_beam, min_token_prob: 0}'"
        " (default: the model's, as a rule greedy)",
    )  # fmt: skip
    group.add_argument(
        "--beam", type=whole(1, 100_000), metavar="N", help="texts kept by prefix_beam (default 10)"
    )
    add_hotwords(arguments)
    group = arguments.group("language model")
    group.add_argument("--lm", metavar="FILE", help="n-gram model: ARPA, or a binary of KenLM")
    group.add_argument("--lm-units", choices=["words", "tokens"], help="default words")
    group.add_argument("--lm-weight", type=real(0.0, LIMIT), metavar="X", help="default 0.5")
    group.add_argument(
        "--word-bonus", type=real(-LIMIT, LIMIT), metavar="X",
        help="for each word of the language model (default 0.5)",
    )  # fmt: skip


def add_hotwords(arguments: Parser) -> None:
    group = arguments.group("search")
    group.add_argument(
        "--hotwords", metavar="FILE", help="phrases for prefix_beam to prefer: a line each"
    )
    group.add_argument(
        "--hotword-weight", type=real(0.0, LIMIT), metavar="X",
        help="for each word of a phrase that has no weight of its own in the file, after a tab"
        f" (default {WEIGHT:g})",
    )  # fmt: skip


def add_segments(arguments: Parser, live: bool = False) -> None:
    """How results are cut and written; a `live` command ends segments at pauses by default."""
    group, default = arguments.group("segments"), str(PAUSE_MS) if live else "off"
    group.add_argument(
        "--endpoint-ms", type=pause, metavar="MS", default=default,
        help=f"a pause this long ends a segment; off: one segment (default {default})",
    )  # fmt: skip
    group.add_argument(
        "--min-segment-ms", type=whole(0, LONGEST_MS), metavar="MS",
        help="shorter segments go on (default 0)",
    )  # fmt: skip
    group.add_argument(
        "--max-segment-ms", type=whole(1, LONGEST_MS), metavar="MS",
        help="a segment this long ends at its next pause of 200 ms (default: never)",
    )  # fmt: skip
    group.add_argument(
        "--reset", choices=["search", "encoder"],
        help="what begins anew after an endpoint (default search: the network goes on)",
    )  # fmt: skip
    group.add_argument(
        "--vad", action="store_true",
        help="pauses must be quiet for silero-vad too, which the extra vad installs",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--postprocess", metavar="NAME",
        help="rewrites the text: a name such as spelled (four four seven: 447), or the"
        " module:function of a file in this folder or of an installed package",
    )  # fmt: skip


def add_second_pass(arguments: Parser, default: str = "off", search: bool = True) -> None:
    """The second pass and, if there is a `search`, that of its own."""
    group = arguments.group("second pass")
    group.add_argument(
        "--second-pass", metavar="MS", default=default,
        help="when a segment has ended, recognise it once more in this chunk, or in full context:"
        f" full, a time in ms, or off (default {default})",
    )  # fmt: skip
    arguments.set_defaults(second_pass_default=default)
    if search:
        group.add_argument(
            "--second-search", metavar="KIND", help="of the second pass, as --search (default: its)"
        )


def add_channel(arguments: Parser, split: bool = False) -> None:
    """The channel and the track of a file that are read; with `split`, each channel by itself."""
    group = arguments.group("audio")
    group.add_argument(
        "--channel", type=partial(channel, split=split),
        metavar="N|mix|split" if split else "N|mix",
        help="the channel of a file, from 0; mix: the mean of all (default)"
        + ("; split: a transcript of each" if split else ""),
    )  # fmt: skip
    group.add_argument(
        "--track", type=whole(0, 1000), metavar="N",
        help="the audio track of a file, from 0 (default: the one that the file names)",
    )  # fmt: skip


def channel(text: str, split: bool) -> int | str | None:
    """A type of argument: the number of a channel, "split", or None for the mix."""
    if text in ("mix", "split") and (split or text == "mix"):
        return None if text == "mix" else text
    try:
        return whole(0, MAX_CHANNELS - 1)(text)
    except argparse.ArgumentTypeError as error:
        names = "mix, split" if split else "mix"
        text = str(error).replace("must be", f"must be {names} or")
        raise argparse.ArgumentTypeError(text) from None


def refuse_channel(options: argparse.Namespace) -> None:
    """Raises UserError for a channel or a track where a manifest names the files."""
    if options.channel is not None or options.track is not None:
        raise UserError('--channel and --track are for files: a manifest\'s lines have "channel"')


def add_batch(arguments: Parser) -> None:
    arguments.add_argument(
        "--batch-seconds", type=real(0.1, 86_400.0), default=120.0, metavar="SECONDS",
        help="audio in a batch (default 120)",
    )  # fmt: skip


def pause(text: str) -> int | None:
    """A type of argument: milliseconds, or None for off."""
    if text == "off":
        return None
    try:
        return whole(1, LONGEST_MS)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"off, or {error}") from None


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
    if options.endpoint_ms is None:
        if given:
            raise UserError("without --endpoint-ms there are no segments to set options for")
        return None
    try:
        return Endpointer(options.endpoint_ms, **given)
    except ValueError as error:
        raise UserError(f"endpoint: {error}") from None


def search_of(options: argparse.Namespace, file: ModelFile) -> SearchConfig:
    """The search that the options ask for.

    Raises:
        UserError: for a kind or an option that is not one, or does not fit.
    """
    search = file.config.search if options.search is None else asked_search(options.search)
    if options.beam is None:
        return search
    with_beam = [kind for kind in KINDS if "beam" in KINDS.options(kind)]
    if search.kind not in with_beam:
        raise UserError(f"--beam is for --search {' or '.join(with_beam)}, not for {search.kind}")
    return parse_search(search.model_dump() | {"beam": options.beam})


def asked_search(text: str, option: str = "--search") -> SearchConfig:
    """The search of a kind, or of YAML with options."""
    try:
        value = parse_yaml(text)
    except ConfigError as error:
        raise UserError(f"{option} must be a kind or YAML, got {shown(text)}: {error}") from None
    return parse_search(value)


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


def load_recognizer(options: argparse.Namespace) -> tuple[Recognizer, Config]:
    """The recogniser that the options ask for, segments too, and the model's configuration."""
    file = load_model(options.model)
    threads = threads_for(options, file)
    recognizer = recognizer_as(
        options, file, endpointer_of(options), postprocess_of(options), options.backend
    )
    leave_cores(recognizer.backend.kind, threads)
    return recognizer, file.config


def threads_for(options: argparse.Namespace, file: ModelFile) -> int:
    """Set torch's threads for this model, or those that the options ask for; their number."""
    return set_threads(getattr(options, "torch_threads", None), file.num_parameters)


def postprocess_of(options: argparse.Namespace) -> Callable[[str], str] | None:
    """What rewrites the text, if the options ask for it.

    Raises:
        UserError: if there is no such function.
    """
    if not options.postprocess:
        return None
    if ":" in options.postprocess:
        sys.path.append("")  # its module may be in the folder where the command is given
    return find_postprocess(options.postprocess)


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
        file, context_of(options, file), search, options.device, model, endpointer, postprocess,
        backend, *second_pass_of(options, file),
    )  # fmt: skip
    return recognizer.with_hotwords(hotwords_of(options))


def context_of(options: argparse.Namespace, file: ModelFile) -> Context:
    """Return the context that the options ask for; the model's own numbers for the others.

    Raises:
        UserError: for a context that cannot be, or one beside full context.
    """
    rate, full = file.model.encoder.rate, options.chunk_ms == "full"
    chunk_size, left, right = (
        None if value is None else rate.frames(name, value, lowest)
        for name, value, lowest in (
            ("--chunk-ms", None if full else options.chunk_ms, 1),
            ("--left-ms", options.left_ms, 0),
            ("--right-ms", options.right_ms, 0),
        )
    )
    if full and (left is not None or right is not None):
        option = "--right-ms" if left is None else "--left-ms"
        raise UserError(
            f"{option} has no effect with --chunk-ms full, in which every frame sees all others: "
            "leave one of them out"
        )
    own = file.config.context.live
    return FULL if full else rate.context(own, chunk_size, left, right)


def second_pass_of(
    options: argparse.Namespace, file: ModelFile
) -> tuple[int | str | None, SearchConfig | None]:
    """The context and the search of the second pass that the options ask for, if they do.

    In full context a command that has a second pass by default has none.

    Raises:
        UserError: for a search without a second pass, or a context that cannot be.
    """
    given = getattr(options, "second_pass", "off")
    search = getattr(options, "second_search", None)
    chosen = None if search is None else asked_search(search, "--second-search")
    if given == options.chunk_ms == "full" and options.second_pass_default == "off":
        raise UserError(
            "--second-pass full has no effect with --chunk-ms full, whose text is that already: "
            "leave one of them out"
        )
    if given == "off" or given == options.chunk_ms == "full":
        if chosen is not None:
            raise UserError(
                "--second-search has no effect without a second pass: give --second-pass MS, or "
                "leave it out"
            )
        return None, None
    if given == "full":
        return given, chosen
    return file.model.encoder.rate.frames("--second-pass", given, 1), chosen


def open_streams() -> None:
    """Make the standard streams usable: closed ones hold nothing, and output can show any text.

    A program without a terminal may start a command with its streams closed, which are None then;
    and characters that the encoding of a terminal or file lacks are escaped.
    """
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run_command(
    command: Callable[[argparse.Namespace], int],
    arguments: Parser,
    argv: list[str] | None,
) -> int:
    """Exit status: 0 done, 1 done but something failed, 2 a user's mistake, 130 stopped."""
    open_streams()
    try:
        # Files and settings may stand anywhere.
        return command(arguments.parse_intermixed_args(argv))
    except BrokenPipeError:  # of `| head`
        return 1
    except UserError as error:
        complain(arguments.prog, error)
        return 2
    except OSError as error:  # a full disk, a folder without permission
        why = error.strerror or str(error)
        complain(arguments.prog, f"{error.filename}: {why}" if error.filename else why)
        return 2
    except KeyboardInterrupt:
        end_at_next_interrupt()
        print(f"{arguments.prog}: stopped", file=sys.stderr)
        return 130


def add_output(arguments: Parser, form: str) -> None:
    """Add the options of the output's format and place."""
    group = arguments.group("output")
    group.add_argument(
        "--format", choices=FORMATS, default=form, help=f"of what is written (default {form})"
    )
    group.add_argument("--output-dir", metavar="DIR", help="write a file there for each")


def name_left_out(command: str, left_out: list[LeftOut]) -> int:
    """Say on standard error what was not scored; the exit status."""
    for each in left_out:
        complain(command, f"not scored {each}")
    return 1 if left_out else 0

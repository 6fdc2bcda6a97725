"""Options that several commands share."""

import argparse
from pathlib import Path

from asrkit.cli.parser import Parser, real, whole, word_or
from asrkit.errors import UserError, checked_token, shown
from asrkit.lm import LIMIT
from asrkit.lm.hotwords import WEIGHT
from asrkit.terms import Terms, checked_languages, checked_licence

MODEL = "a .safetensors model file, its .onnx export, a name of asrkit models, or hf://owner/name"
LONGEST_MS = 3_600_000  # limit of times in options
MULTIPLE = "a multiple of the model's frame, usually 40 ms"


def refuse(options: argparse.Namespace, why: str, *names: str) -> None:
    """Raise UserError for options that were given but have no effect.

    Args:
        why: phrase for the message, such as "without --lm".
        names: options that have no effect.
    """
    for name in names:
        if getattr(options, name) not in (None, False):
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} has no effect {why}: leave it out")


def refuse_channel(options: argparse.Namespace) -> None:
    """Raise UserError for a channel or a track of a manifest's recordings."""
    why = 'with --manifest, whose lines have a "channel" and a "track"'
    refuse(options, why, "channel", "track")


def add_model_file(arguments: Parser) -> None:
    arguments.group("model").add_argument("--model", required=True, help=MODEL)


def add_model(arguments: Parser) -> None:
    add_model_file(arguments)
    add_device(arguments)
    arguments.group("model").add_argument(
        "--threads", dest="model_threads", type=whole(1), metavar="N",
        help="CPU threads (default: 1 for a network of fewer than 10 M parameters, else all cores)",
    )  # fmt: skip


def add_device(arguments: Parser) -> None:
    arguments.group("model").add_argument(
        "--device", default="cpu", help="torch device: cpu, cuda, … (default cpu)"
    )


def add_recognizer(arguments: Parser, live: bool = False, chunks: str | None = None) -> None:
    """Add all options of a recogniser except its model.

    Args:
        live: whether it recognises streams, in two passes; else it has batches of recordings.
        chunks: the default, of a command with a recogniser for each of several chunks.
    """
    add_backend(arguments)
    add_context(arguments, chunks=chunks)
    add_search(arguments)
    add_segments(arguments, live)
    add_second_pass(arguments, "full" if live else "off")
    if not live:
        add_batch(arguments)


def add_backend(arguments: Parser) -> None:
    arguments.group("model").add_argument(
        "--backend", metavar="KIND",
        help="runtime of the network: eager, onnx, onnx-int8, or an .onnx file (default: onnx "
        "if asrkit export wrote such a file beside the model, else eager)",
    )  # fmt: skip


def add_context(arguments: Parser, chunk_ms: str | None = None, chunks: str | None = None) -> None:
    """Add the options of chunk, left and right context.

    Args:
        chunk_ms: the command's own default.
        chunks: the default of a command for several chunks.
    """
    group, own = arguments.group("context"), "the model's"
    about = f"chunk, {MULTIPLE}, or full (default: {chunk_ms or own})"
    if chunks is not None:
        about = f"chunks in ms, or full, separated by commas (default {chunks})"
    metavar = "MS" if chunks is None else "MS,…"
    group.add_argument("--chunk-ms", default=chunk_ms, metavar=metavar, help=about)
    group.add_argument(
        "--left-ms", metavar="MS", help=f"left context, {MULTIPLE} (default: the model's)"
    )
    group.add_argument(
        "--right-ms", metavar="MS",
        help="audio after a chunk that the chunk sees; delays live words by its length (default: "
        "the model's)",
    )  # fmt: skip


def add_search(arguments: Parser) -> None:
    group = arguments.group("search")
    group.add_argument(
        "--search", metavar="KIND",
        help="greedy, prefix_beam, or a kind with options: '{kind: prefix_beam, min_token_prob: 0}'"
        " (default: the model's, usually greedy)",
    )  # fmt: skip
    group.add_argument(
        "--beam", type=whole(1, 100_000), metavar="N", help="texts kept by prefix_beam (default 10)"
    )
    add_hotwords(arguments)
    group = arguments.group("language model")
    group.add_argument("--lm", metavar="FILE", help="n-gram model: ARPA, or a binary of KenLM")
    group.add_argument(
        "--lm-units", choices=["words", "tokens"],
        help="units of the language model: words, or tokens of the recogniser (default words)",
    )  # fmt: skip
    group.add_argument(
        "--lm-weight", type=real(0.0, LIMIT), metavar="X",
        help="weight of the language model (default 0.5)",
    )  # fmt: skip
    group.add_argument(
        "--word-bonus", type=real(-LIMIT, LIMIT), metavar="X",
        help="bonus for each word of the language model (default 0.5)",
    )  # fmt: skip


def add_hotwords(arguments: Parser) -> None:
    group = arguments.group("search")
    group.add_argument(
        "--hotwords", metavar="FILE", help="phrases that prefix_beam prefers, one per line"
    )
    group.add_argument(
        "--hotword-weight", type=real(0.0, LIMIT), metavar="X",
        help="weight of each word of a phrase without a weight in the file, after a tab"
        f" (default {WEIGHT:g})",
    )  # fmt: skip


def add_segments(arguments: Parser, live: bool = False) -> None:
    """Add the options of segments; a `live` command ends segments at pauses by default."""
    group = arguments.group("segments")
    group.add_argument(
        "--endpoint-ms", type=word_or("off", whole(1, LONGEST_MS)), metavar="MS",
        default=None if live else "off",
        help=f"pause that ends a segment; off: one segment (default {1000 if live else 'off'})",
    )  # fmt: skip
    group.add_argument(
        "--max-segment-ms", type=whole(1, LONGEST_MS), metavar="MS",
        help="length from which a segment ends at its next pause of 200 ms (default: no limit)",
    )  # fmt: skip
    group.add_argument(
        "--end-of-turn", metavar="EAGERNESS", default="off",
        help="also end a segment where a model with a label for it expects the end of a turn: low,"
        " medium or high eagerness (default off)",
    )  # fmt: skip
    group.add_argument(
        "--vad", action="store_true",
        help="count a pause only if silero-vad finds no speech in it",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--postprocess", metavar="NAME",
        help="function that rewrites the text: a name such as spelled (four four seven: 447), or"
        " module:function in this folder or an installed package",
    )  # fmt: skip


def add_second_pass(arguments: Parser, default: str = "off") -> None:
    """Add the options of the second pass and of its search."""
    group = arguments.group("second pass")
    group.add_argument(
        "--second-pass", metavar="MS",
        help="recognise each ended segment again in this larger chunk (ms) or in full context"
        f" (full); off: one pass (default {default})",
    )  # fmt: skip
    arguments.set_defaults(second_pass_default=default)
    group.add_argument(
        "--second-search", metavar="KIND", help="search of the second pass (default: the first)"
    )


def add_channel(arguments: Parser, split: bool = False) -> None:
    """Add the options that choose a file's channel and track; `split` allows all channels."""
    group = arguments.group("audio")
    group.add_argument(
        "--channel", type=word_or("split", whole(0)) if split else whole(0),
        metavar="N|split" if split else "N",
        help="channel of a file, from 0 (default: the mean of all)"
        + ("; split: each channel is a speaker" if split else ""),
    )  # fmt: skip
    group.add_argument(
        "--track", type=whole(0, 1000), metavar="N",
        help="audio track of a file, from 0 (default: the file's default track)",
    )  # fmt: skip


def add_batch(arguments: Parser) -> None:
    arguments.add_argument(
        "--batch-seconds", type=real(0.1, 86_400.0), default=120.0, metavar="SECONDS",
        help="audio in a batch (default 120)",
    )  # fmt: skip


def add_output(arguments: Parser, form: str) -> None:
    """Add the options for the format and the place of the output."""
    group = arguments.group("output")
    group.add_argument(
        "--format", metavar="FORMAT", default=form,
        help=f"output format: txt, jsonl, json, srt, vtt or textgrid (default {form})",
    )  # fmt: skip
    group.add_argument("--output-dir", metavar="DIR", help="write a file for each recording there")


def token_in(path: Path | None) -> str | None:
    """Return the token in the file of --token-file; None without a file."""
    if path is None:
        return None
    try:
        return checked_token(path.read_text(encoding="utf-8-sig").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--token-file {shown(path)}: {error}") from None


def add_terms(arguments: Parser, default: str) -> None:
    """Add the options for a model's terms; their help names the default source of the terms."""
    group = arguments.group("terms")
    group.add_argument(
        "--licence", "--license", metavar="NAME",
        help=f"licence of the weights, such as CC-BY-4.0 (default: {default})",
    )  # fmt: skip
    group.add_argument(
        "--language", action="append", default=[], metavar="CODE",
        help=f"language of the model, such as en; may be repeated (default: {default})",
    )  # fmt: skip


def without_torch(model: str) -> str:
    """Return the line about a new model file, which has no export."""
    return f"to run it without torch: asrkit export --model {model} --format onnx"


def terms_of(options: argparse.Namespace) -> Terms:
    licence = options.licence
    return Terms(
        None if licence is None else checked_licence(licence), checked_languages(options.language)
    )

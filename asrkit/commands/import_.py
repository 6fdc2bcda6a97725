"""Convert a checkpoint of another toolkit: asrkit import nemo M.nemo --output O"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.options import add_terms, terms_of, without_torch
from asrkit.cli.parser import Parser, Target, whole
from asrkit.errors import UserError, no_file, shown
from asrkit.hub import NO_LICENCE, PREFIX, address_of
from asrkit.registry import refusal
from asrkit.terms import UNKNOWN

if TYPE_CHECKING:
    from asrkit.hub.downloads import Source


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit import", __doc__,
        "asrkit import nemo stt_en.nemo --output stt_en.safetensors --licence CC-BY-4.0",
    )  # fmt: skip
    arguments.add_argument("format", metavar="TOOLKIT", help="its toolkit: nemo, wenet or whisper")
    arguments.add_argument(
        "checkpoint", help="file or folder of the checkpoint, or hf://owner/name"
    )
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    add_terms(arguments, "that of the repository's card")
    arguments.add_argument(
        "--head", choices=("transducer", "ctc"),
        help="head of a hybrid model of NeMo (default: the transducer, with the CTC layer beside "
        "it)",
    )  # fmt: skip
    arguments.add_argument(
        "--prompt", metavar="LANGUAGE",
        help="language of a model of NeMo with a language prompt, such as de-DE or auto",
    )  # fmt: skip
    arguments.add_argument(
        "--frame-ms", type=whole(20, 80), choices=(20, 40, 80),
        help="encoder frame of a start from Whisper in ms (default: 40; 20, as in Whisper, takes "
        "twice the time)",
    )  # fmt: skip
    return arguments.run(import_, argv)


def import_(options: argparse.Namespace) -> int:
    from asrkit.interop import FORMATS, import_checkpoint, recorded
    from asrkit.model_file import save_model

    if options.format not in FORMATS:
        raise UserError(f"the toolkit {refusal(options.format, FORMATS)}")
    source, checkpoint = hub_source(options), Path(options.checkpoint)
    if source is None and not checkpoint.exists():
        raise UserError(f"{shown(checkpoint)} {no_file(checkpoint)}")
    terms = terms_of(options).or_else(UNKNOWN if source is None else source.known_terms())
    if terms.licence is None:
        which = f"{shown(checkpoint)} is not known, it states none"
        if source is not None:
            which = f"{source.address} is not known, {NO_LICENCE}"
        raise UserError(
            f"the licence of {which}: add --licence, as its publisher states it, such as "
            "--licence CC-BY-4.0"
        )
    path = checkpoint if source is None else source.fetch()
    if source is not None and len(source.files) == 1:
        path /= next(iter(source.files))
    imported = import_checkpoint(
        options.format, path, options.head, options.prompt, options.frame_ms
    )
    name = path.resolve().stem if source is None else source.name
    file = recorded(imported, name, options.prompt, terms)
    save_model(options.output, file)
    for part, count in imported.left_out.items():
        print(f"left out: {part}, {count / 1e6:.2f} M parameters")
    print(f"{options.output}: {file.num_parameters / 1e6:.2f} M parameters, from {imported.source}")
    if imported.is_start:
        print(
            "a start, trained on whole recordings: train it before you stream: asrkit train "
            f"--config whisper training.start_from={options.output} data.train=… data.dev=…"
        )
    else:
        print(without_torch(options.output))
    return 0


def hub_source(options: argparse.Namespace) -> Source | None:
    """Return the source of a checkpoint on the hub; None for a path."""
    from asrkit.hub.catalogue import require_usable
    from asrkit.hub.downloads import find, find_files
    from asrkit.interop import FILES

    if not options.checkpoint.startswith(PREFIX):
        return None
    address = address_of(options.checkpoint)
    if options.format == "nemo":
        require_usable(address.repository)
        return find(address, [".nemo"])
    if address.file is not None:
        raise UserError(f"{address} must be a repository: leave /{address.file} out")
    return find_files(address, FILES[options.format])

"""The work of `asrkit import`: a model file from another toolkit's checkpoint."""

import argparse
from pathlib import Path

from asrkit.catalogue import require_usable
from asrkit.cli.terms import terms_of
from asrkit.downloads import Source, find, find_files
from asrkit.errors import UserError, shown
from asrkit.hub import PREFIX, address_of
from asrkit.interop import FILES, import_checkpoint, recorded
from asrkit.model_file import save_model
from asrkit.terms import UNKNOWN, Terms

MOST_CHARACTERS = 200  # length limit of a name


def import_(options: argparse.Namespace) -> int:
    source = hub_source(options)
    path = Path(options.checkpoint) if source is None else source.fetch()
    if source is not None and len(source.names) == 1:
        path /= source.names[0]
    imported = import_checkpoint(
        options.format, path, options.head, options.prompt, options.frame_ms
    )
    given, card = terms_of(options), UNKNOWN if source is None else source.listing.terms
    terms = Terms(
        given.licence or imported.licence or card.licence, given.languages or card.languages
    )
    if terms.licence is None:
        raise UserError(
            f"{shown(Path(options.checkpoint))} does not state its licence: add --licence, as its "
            "publisher states it, such as --licence CC-BY-4.0"
        )
    name = options.name or ""
    if len(name) > MOST_CHARACTERS or not name.isprintable():
        raise UserError(
            f"--name must be printable, of at most {MOST_CHARACTERS} characters, got {shown(name)}"
        )
    known = path.resolve().stem if source is None else source.name
    file = recorded(imported, options.name or known, options.prompt, terms)
    save_model(options.output, file)
    for part, count in imported.left_out.items():
        print(f"left out: {part}, {count / 1e6:.2f} M parameters")
    print(f"{options.output}: {file.num_parameters / 1e6:.2f} M parameters, from {imported.source}")
    if imported.is_start:
        print(
            "a start, trained on whole recordings: train it before you stream: asrkit train "
            f"--config whisper training.start_from={options.output} data.train=… data.dev=…"
        )
    return 0


def hub_source(options: argparse.Namespace) -> Source | None:
    """Return the source of a checkpoint on the hub; None for a path."""
    if not options.checkpoint.startswith(PREFIX):
        return None
    address = address_of(options.checkpoint)
    if options.format == "nemo":
        require_usable(address.repository)
        return find(address, [".nemo"])
    if address.file is not None:
        raise UserError(f"{address} must be a repository: leave /{address.file} out")
    return find_files(address, FILES[options.format])

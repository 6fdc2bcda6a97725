"""The work of `asrkit import`: a model file from another toolkit's checkpoint."""

import argparse
from pathlib import Path

from asrkit.atomic_write import sha256_of
from asrkit.cli.terms import terms_of
from asrkit.errors import UserError, shown
from asrkit.interop import import_checkpoint
from asrkit.model_contents import START
from asrkit.model_file import save_model
from asrkit.version import __version__

MOST_CHARACTERS = 200  # length limit of a name


def import_(options: argparse.Namespace) -> int:
    path = Path(options.checkpoint)
    imported = import_checkpoint(
        options.format, path, options.head, options.prompt, options.frame_ms
    )
    given = terms_of(options)
    terms = given._replace(licence=given.licence or imported.licence)
    if terms.licence is None:
        raise UserError(
            f"{shown(path)} does not state its licence: add --licence, as its publisher states it,"
            " such as --licence CC-BY-4.0"
        )
    name = options.name or ""
    if len(name) > MOST_CHARACTERS or not name.isprintable():
        raise UserError(
            f"--name must be printable, of at most {MOST_CHARACTERS} characters, got {shown(name)}"
        )
    record = {
        "name": options.name or path.resolve().stem,
        "source": imported.source,
        "sha256": {each.name: sha256_of(each) for each in imported.read},
        "licence": terms.licence,
        "left_out": imported.left_out,
        **({} if options.prompt is None else {"prompt": options.prompt}),
        "asrkit": __version__,
    } | ({START: True} if imported.is_start else {})
    file = imported.file._replace(training={"imported": record}, terms=terms)
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

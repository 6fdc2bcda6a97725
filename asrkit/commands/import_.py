"""Make a model file of another toolkit's checkpoint: asrkit import nemo M.nemo --output O"""

import argparse
import hashlib
from pathlib import Path

from asrkit.commands.arguments import Target
from asrkit.commands.options import parser, run_command
from asrkit.errors import UserError, shown
from asrkit.interop import FORMATS, import_checkpoint
from asrkit.model_file import save_model
from asrkit.version import __version__

MOST_CHARACTERS = 200  # of a name and of a licence


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit import", __doc__,
        "asrkit import nemo stt_en.nemo --output stt_en.safetensors --licence CC-BY-4.0",
    )  # fmt: skip
    arguments.add_argument("format", choices=FORMATS, help="the toolkit that wrote the checkpoint")
    arguments.add_argument("checkpoint", help="its file, or its folder")
    arguments.add_argument("--output", type=Target, required=True, help="the model file to write")
    arguments.add_argument(
        "--licence", "--license", help="of the weights, as their publisher states it: CC-BY-4.0"
    )
    arguments.add_argument("--name", help="of the model (default: the checkpoint's)")
    return run_command(import_, arguments, argv)


def import_(options: argparse.Namespace) -> int:
    path = Path(options.checkpoint)
    imported = import_checkpoint(options.format, path)
    licence = options.licence or imported.licence
    if not licence:
        raise UserError(
            f"{shown(path)} does not tell its licence: add --licence, as its publisher states it,"
            " such as --licence CC-BY-4.0"
        )
    for text in (licence, options.name or ""):
        if len(text) > MOST_CHARACTERS or not text.isprintable():
            raise UserError(
                f"must be printable, of at most {MOST_CHARACTERS} characters, got {shown(text)}"
            )
    record = {
        "name": options.name or path.resolve().stem,
        "source": imported.source,
        "sha256": {each.name: sha256(each) for each in imported.read},
        "licence": licence,
        "left_out": imported.left_out,
        "asrkit": __version__,
    }
    save_model(options.output, imported.file._replace(training={"imported": record}))
    for part, count in imported.left_out.items():
        print(f"left out: {part}, {count / 1e6:.2f} M parameters")
    parameters = sum(p.numel() for p in imported.file.model.parameters())
    print(f"{options.output}: {parameters / 1e6:.2f} M parameters, from {imported.source}")
    return 0


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()

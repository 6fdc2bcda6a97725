"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

from __future__ import annotations

import argparse
from textwrap import indent
from typing import TYPE_CHECKING

from asrkit.cli.options import MODEL, add_terms, terms_of
from asrkit.cli.parser import Parser
from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.hub import CARD, PREFIX, Address, address_of
from asrkit.hub import MODEL as MODEL_NAME
from asrkit.hub.access import upload
from asrkit.terms import spelled

if TYPE_CHECKING:
    from asrkit.model_file import ModelFile


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit push", __doc__,
        "asrkit push exp/mine/model.safetensors me/mine --licence CC-BY-4.0 --dry-run",
    )  # fmt: skip
    arguments.add_argument("model", help=MODEL)
    arguments.add_argument(
        "repository", metavar="owner/name",
        help="repository, made if missing; owner/name@branch: a branch, also made if missing",
    )  # fmt: skip
    add_terms(arguments, "that of the model file")
    arguments.add_argument("--private", action="store_true", help="make a private repository")
    arguments.add_argument(
        "--overwrite-card", action="store_true", help="replace an existing README.md"
    )
    arguments.add_argument(
        "--dry-run", action="store_true", help="print the card, and upload nothing"
    )
    return arguments.run(push, argv)


LICENCES = {  # licences that the hub has names for
    "apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0",
    "gpl-3.0", "lgpl-3.0", "mit", "mpl-2.0", "openrail", "unlicense",
}  # fmt: skip
USE = """```python
import asrkit

recognizer = asrkit.load("{address}")  # pip install 'asrkit-streaming[hub]'
print(recognizer.transcribe("a.wav"))
```
"""
NEW = """# {name}

A streaming {layer} with {head} for asrkit: it recognises speech while it is spoken, and its text
is that of offline recognition at the same chunk size.

{use}
## Network

{network}

## Training

{training}
"""


def push(options: argparse.Namespace) -> int:
    from asrkit.model_file import load_model
    from asrkit.model_path import model_path

    need("huggingface_hub")
    address = address_of(PREFIX + options.repository.removeprefix(PREFIX))
    path = model_path(options.model)
    file = load_model(path)
    file.runnable.require_trained()
    terms = terms_of(options).or_else(file.terms)
    if terms.licence is None:
        raise UserError(
            f"{shown(options.model)} does not state its licence: add --licence, such as --licence "
            "CC-BY-4.0"
        )
    own = path.with_suffix(".md")
    text = own.read_text(encoding="utf-8", errors="replace") if own.is_file() else None
    card = card_of(file._replace(terms=terms), address, text)
    name, size = address.file or MODEL_NAME, f"{path.stat().st_size / 1e6:.1f} MB"
    if options.dry_run:
        print(card)
        print(f"{address} would get {name}, {size}, and this {CARD} unless it has one")
        return 0
    commit, has_card = upload(path, card, address, options.private, options.overwrite_card)
    wrote = f" and {CARD}" if has_card else f"; its {CARD} stays (--overwrite-card)"
    print(f"{address._replace(revision=commit)}: {name}, {size}{wrote}")
    return 0


def card_of(file: ModelFile, address: Address, own: str | None) -> str:
    """Return the README.md for a model's repository.

    Args:
        own: text of the model's card. One with properties is complete; else it gets them, and an
            example.
    """
    from huggingface_hub import ModelCardData

    from asrkit.commands.info import described, indented

    if own is not None and own.startswith("---\n"):
        return own
    licence, model = spelled(str(file.terms.licence)), file.config.model
    properties = ModelCardData(
        license=licence if licence in LICENCES else "other",
        license_name=None if licence in LICENCES else file.terms.licence,
        language=[*file.terms.languages] or None,
        library_name="asrkit",
        pipeline_tag="automatic-speech-recognition",
        tags=["asrkit", "streaming", model.layer, model.head.kind],
    )
    use = USE.format(address=address)
    text = f"{own.rstrip()}\n\n## Use\n\n{use}" if own else NEW.format(
        name=address.repository.partition("/")[2], layer=model.layer.capitalize(),
        head="CTC" if model.head.kind == "ctc" else f"a {model.head.kind}", use=use,
        network="\n".join(f"- {key}: {value}" for key, value in described(file.runnable).items()),
        training=indent(indented(file.training), "  "),  # as code
    )  # fmt: skip
    return f"---\n{properties.to_yaml()}\n---\n\n{text}"

"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

import argparse
import re

from asrkit.commands.card import card_of
from asrkit.commands.info import card_beside
from asrkit.commands.options import MODEL, parser, run_command
from asrkit.errors import UserError, printable, shown
from asrkit.hub import CARD, PREFIX, address_of, upload
from asrkit.hub import MODEL as MODEL_NAME
from asrkit.model_file import ModelFile, load_model, model_path

LANGUAGE = re.compile(r"[a-z]{2,3}")
MOST_CHARACTERS = 200  # of a licence and of a message


def main(argv: list[str] | None = None) -> int:
    arguments = parser(
        "asrkit push", __doc__,
        "asrkit push exp/mine/model.safetensors me/mine --licence CC-BY-4.0 --dry-run",
    )  # fmt: skip
    arguments.add_argument("model", help=MODEL)
    arguments.add_argument(
        "repository", metavar="owner/name",
        help="made if it is not there; owner/name@branch: a branch of it, made likewise",
    )  # fmt: skip
    arguments.add_argument(
        "--licence", "--license", help="of the weights, as CC-BY-4.0 (default: what the file tells)"
    )
    arguments.add_argument(
        "--language", action="append", default=[], metavar="CODE",
        help="that it recognises, as en; may be repeated",
    )  # fmt: skip
    arguments.add_argument("--private", action="store_true", help="make a private repository")
    arguments.add_argument("--message", help="of the commit")
    arguments.add_argument(
        "--overwrite-card", action="store_true", help="replace the README.md that is there"
    )
    arguments.add_argument(
        "--dry-run", action="store_true", help="print the card, and upload nothing"
    )
    return run_command(push, arguments, argv)


def push(options: argparse.Namespace) -> int:
    address = address_of(PREFIX + options.repository.removeprefix(PREFIX))
    path = model_path(options.model)
    file = load_model(path)
    licence, languages = licence_of(options, file), languages_of(options)
    card = card_of(file, address, licence, languages, card_beside(path))
    name, size = address.file or MODEL_NAME, f"{path.stat().st_size / 1e6:.1f} MB"
    if options.dry_run:
        print(card)
        print(f"{address} would get {name}, {size}, and this {CARD} unless it has one")
        return 0
    message = options.message or f"Upload {name} with asrkit"
    done = upload(path, card, address, message, options.private, options.overwrite_card)
    wrote = f" and {CARD}" if done.card else f"; its {CARD} stays (--overwrite-card)"
    print(f"{address._replace(revision=done.commit)}: {name}, {size}{wrote}")
    return 0


def licence_of(options: argparse.Namespace, file: ModelFile) -> str:
    """The licence of the weights.

    Raises:
        UserError: if neither the options nor the model file tell it.
    """
    record = file.training.get("imported")
    told = options.licence or (record.get("licence") if isinstance(record, dict) else None)
    if not isinstance(told, str) or len(told) > MOST_CHARACTERS or printable(told) != told:
        raise UserError(
            f"{shown(options.model)} does not tell its licence: add --licence, such as --licence "
            "CC-BY-4.0"
        )
    return told


def languages_of(options: argparse.Namespace) -> list[str]:
    """The codes of the languages that the options name.

    Raises:
        UserError: for a text that is no code.
    """
    for code in options.language:
        if not LANGUAGE.fullmatch(code):
            raise UserError(f"--language is a code of two or three letters, as en: {shown(code)}")
    return options.language

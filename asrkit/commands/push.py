"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

import argparse

from asrkit.cli.parser import complain
from asrkit.cli.terms import changed_terms
from asrkit.commands.card import card_of, stated_licence
from asrkit.commands.info import card_beside
from asrkit.errors import UserError, shown
from asrkit.hub import CARD, PREFIX, address_of, upload
from asrkit.hub import MODEL as MODEL_NAME
from asrkit.model_file import ModelFile, load_model, model_path, read_terms_of
from asrkit.pretrained import ready_models
from asrkit.terms import Terms, inherited, spelled


def push(options: argparse.Namespace) -> int:
    address = address_of(PREFIX + options.repository.removeprefix(PREFIX))
    path = model_path(options.model)
    file = load_model(path)
    file = file._replace(terms=pushed_terms(options, file))
    own = card_beside(path)
    card = card_of(file, address, own)
    report_card(card, file.terms)
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


def pushed_terms(options: argparse.Namespace, file: ModelFile) -> Terms:
    """Return the terms for the repository; report a licence that is not the model's own."""
    terms = changed_terms("asrkit push", options, file.terms)
    start = file.config.training.start_from
    if start in ready_models():  # other names are paths on the machine of the training
        terms, notes = inherited(terms, {start: read_terms_of(start)}, "--licence")
        for note in notes:
            complain("asrkit push", note)
    if terms.licence is None:
        raise UserError(
            f"{shown(options.model)} does not state its licence: add --licence, such as --licence "
            "CC-BY-4.0"
        )
    return terms


def report_card(card: str, terms: Terms) -> None:
    """Report a model's own card whose properties state another licence, or none."""
    stated = stated_licence(card)
    if stated is None or spelled(stated) != spelled(str(terms.licence)):
        found = "no licence" if stated is None else f"the licence {stated}"
        complain("asrkit push", f"the model's card states {found}, not {terms.licence}")

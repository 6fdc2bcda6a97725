"""Options for a model's licence and languages, shared by the commands that write model files."""

import argparse

from asrkit.cli.parser import complain
from asrkit.terms import Terms, checked_languages, checked_licence, differences


def add_terms(arguments: argparse.ArgumentParser, default: str) -> None:
    """Add the options; their help names the default source of the terms."""
    group = arguments.add_argument_group("terms")
    group.add_argument(
        "--licence", "--license", metavar="NAME",
        help=f"licence of the weights, such as CC-BY-4.0 (default: {default})",
    )  # fmt: skip
    group.add_argument(
        "--language", action="append", default=[], metavar="CODE",
        help=f"language of the model, such as en; may be repeated (default: {default})",
    )  # fmt: skip


def terms_of(options: argparse.Namespace) -> Terms:
    licence = options.licence
    return Terms(
        None if licence is None else checked_licence(licence), checked_languages(options.language)
    )


def changed_terms(command: str, options: argparse.Namespace, found: Terms) -> Terms:
    """Replace terms of a model file by those of the options; report a changed licence."""
    own = terms_of(options)
    if own.licence is not None:
        for note in differences(own.licence, {"the model file": found}):
            complain(command, note)
    return Terms(own.licence or found.licence, own.languages or found.languages)

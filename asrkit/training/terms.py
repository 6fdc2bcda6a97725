"""The licence and the languages of the model that a training makes."""

import logging
from pathlib import Path

from asrkit.config import Config, ConfigError
from asrkit.config.read_yaml import parse_yaml
from asrkit.errors import UserError
from asrkit.model_file import read_terms_of
from asrkit.terms import UNKNOWN, Terms, inherited, read_terms

logger = logging.getLogger("asrkit")


def with_terms(config: Config, former: Path | None) -> Config:
    """The configuration with the terms of `training.start_from` where it names none of its own.

    Reports inherited terms, and a licence that differs from the first model's.

    Args:
        config: of the training.
        former: the configuration file of the same training before it was resumed. A resumed
            training keeps its terms, also where the first model has gone.

    Raises:
        UserError: for a model to start from that cannot be read.
    """
    own = Terms(config.data.licence, tuple(config.data.languages))
    if former is not None:
        before = former_terms(former)
        own = Terms(own.licence or before.licence, own.languages or before.languages)
    start, sources = config.training.start_from, {}
    if start is not None:
        try:
            sources[start] = read_terms_of(start)
        except UserError as error:
            if former is None:
                raise
            logger.warning("the licence of training.start_from is not compared: %s", error)
    terms, notes = inherited(own, sources, "data.licence")
    for note in notes:
        logger.warning("%s", note)
    found = {"licence": terms.licence, "languages": [*terms.languages]}
    return config.model_copy(update={"data": config.data.model_copy(update=found)})


def former_terms(path: Path) -> Terms:
    """The terms in the configuration file of a training; those that it lacks are unknown."""
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
        return read_terms(values["data"])
    except (OSError, UnicodeDecodeError, ConfigError, UserError, KeyError, TypeError):
        return UNKNOWN  # a file of an older version, or one that somebody else changed

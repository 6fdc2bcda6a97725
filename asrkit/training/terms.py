"""The licence and the languages of a trained model."""

import logging
from pathlib import Path

from asrkit.config import Config, ConfigError
from asrkit.config.read_yaml import parse_yaml
from asrkit.errors import UserError
from asrkit.model_file import read_terms_of
from asrkit.terms import UNKNOWN, Terms, inherited, read_terms

logger = logging.getLogger("asrkit")


def with_terms(config: Config, former: Path | None) -> Config:
    """Fill the configuration's missing terms with those of `training.start_from`.

    Inherited terms, and a licence that differs from the first model's, are logged.

    Args:
        former: configuration file of the same training before it was resumed. A resumed training
            keeps its terms, even if the first model no longer exists.
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
            logger.warning("the licence of training.start_from cannot be compared: %s", error)
    terms, notes = inherited(own, sources, "data.licence")
    for note in notes:
        logger.warning("%s", note)
    found = {"licence": terms.licence, "languages": [*terms.languages]}
    return config.model_copy(update={"data": config.data.model_copy(update=found)})


def former_terms(path: Path) -> Terms:
    """Read the terms in a training's configuration file; missing terms are unknown."""
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
        return read_terms(values["data"])
    except (OSError, UnicodeDecodeError, ConfigError, UserError, KeyError, TypeError):
        return UNKNOWN  # a file of an older version, or changed by hand

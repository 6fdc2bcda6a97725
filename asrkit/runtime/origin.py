"""The call that made a recogniser: with it a recogniser is pickled, and made again elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from asrkit.errors import UserError


class Origin(NamedTuple):
    """A call of `asrkit.load`, and hotwords that were added since."""

    load: Callable[..., Any]
    arguments: Mapping[str, Any]
    hotwords: tuple[Mapping[str, float], ...] = ()


def pickled(origin: Origin | None) -> tuple[Any, ...]:
    """Return what pickle stores of a recogniser: the path of its model file, and no weights.

    Raises:
        UserError: for a recogniser that `asrkit.load` did not make.
    """
    if origin is None:
        raise UserError(
            "only a recognizer of asrkit.load can be pickled, with or without hotwords: it is "
            "loaded again from its model file; in the other process call asrkit.load"
        )
    return loaded_again, (origin.load, dict(origin.arguments), origin.hotwords)


def loaded_again(
    load: Callable[..., Any],
    arguments: Mapping[str, Any],
    hotwords: tuple[Mapping[str, float], ...],
) -> Any:
    """The recogniser of these arguments and hotwords, with threads that suit this process."""
    recognizer = load(**(dict(arguments) | {"threads": None}))
    for phrases in hotwords:
        recognizer = recognizer.with_hotwords(phrases)
    return recognizer

"""The call that made a recogniser: with it a recogniser is pickled, and made again elsewhere."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.runtime.recognizer import Recognizer


class Origin(NamedTuple):
    """The arguments of `asrkit.load`, and hotwords that were added since."""

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
    return loaded_again, (dict(origin.arguments), origin.hotwords)


def loaded_again(
    arguments: Mapping[str, Any], hotwords: tuple[Mapping[str, float], ...]
) -> "Recognizer":
    """The recogniser of these arguments and hotwords, with threads that suit this process."""
    from asrkit.runtime.load import load

    recognizer = load(**(dict(arguments) | {"threads": None}))
    for phrases in hotwords:
        recognizer = recognizer.with_hotwords(phrases)
    return recognizer

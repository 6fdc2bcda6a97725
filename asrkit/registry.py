"""A registry of classes by name: the kinds that a setting can choose."""

import difflib
import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from asrkit.errors import shown

Class = TypeVar("Class")


class Kinds(dict[str, type[Class]]):
    """The classes that a setting can choose, by kind.

    Args:
        what: name of the setting, for messages.
        given: arguments of the classes that the program passes; all others are a user's options.
    """

    def __init__(
        self, what: str, classes: Mapping[str, type[Class]], given: Collection[str]
    ) -> None:
        super().__init__(classes)
        self.what, self.given = what, given

    def options(self, kind: str) -> dict[str, inspect.Parameter]:
        """Return the options of a kind, with their types and defaults."""
        parameters = inspect.signature(self[kind]).parameters
        return {name: each for name, each in parameters.items() if name not in self.given}

    def chosen(self, choice: str | Mapping[str, Any]) -> tuple[type[Class], dict[str, Any]]:
        """Return the class of a kind, and its options.

        Args:
            choice: kind, or a dict of its options and "kind".

        Raises:
            ValueError: for an unknown kind.
        """
        options = dict(choice) if isinstance(choice, Mapping) else {"kind": choice}
        kind = options.pop("kind", None)
        if not isinstance(kind, str) or kind not in self:
            raise ValueError(f"{self.what} {refusal(kind, self)}")
        return self[kind], options


def refusal(kind: object, known: Iterable[str]) -> str:
    """Return the message for an unknown kind: the known ones, and the nearest of them."""
    known = list(known)
    near = difflib.get_close_matches(kind, known, n=1) if isinstance(kind, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {', '.join(known)}, got {shown(kind)}{hint}"

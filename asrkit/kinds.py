"""Kinds of one thing: classes by name. The options of a kind are arguments of its class."""

import difflib
import inspect
from collections.abc import Collection, Iterable

from asrkit.errors import shown


def options(cls: type, given: Collection[str]) -> dict[str, inspect.Parameter]:
    """The arguments that the program has not given, with types and defaults: a user's choices."""
    parameters = inspect.signature(cls).parameters
    return {name: p for name, p in parameters.items() if name not in given}


def refusal(kind: object, known: Iterable[str]) -> str:
    """What to say of a kind that is not one."""
    known = list(known)
    near = difflib.get_close_matches(kind, known, n=1) if isinstance(kind, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {', '.join(known)}, got {shown(kind)}{hint}"

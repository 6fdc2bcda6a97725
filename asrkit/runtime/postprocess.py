"""Rewriting what was recognised, as digits or with capitals, by a function of the user."""

import importlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions

from asrkit.errors import UserError, reason, shown
from asrkit.text.spelled import join_spelled

BUILT_IN: dict[str, Callable[[str], str]] = {"spelled": join_spelled}
GROUP = "asrkit.postprocess"  # of the entry points under which packages offer such functions


def find_postprocess(name: str | Callable[[str], str]) -> Callable[[str], str]:
    """The function of a "module:function", or of a name: asrkit's own, or an installed package's.

    A function stands for itself.

    Raises:
        UserError: if there is none.
    """
    if not isinstance(name, str):
        if not callable(name):
            raise UserError(f"postprocess must be a function or the name of one, got {shown(name)}")
        return name
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, separator, function = name.partition(":")
    offered = {} if separator else installed()
    if not separator and name not in offered:
        known = ", ".join(sorted({*BUILT_IN, *offered}))
        raise UserError(
            f"no postprocess {shown(name)}: write module:function, or a name of: {known}"
        )
    try:
        if separator:
            found = getattr(importlib.import_module(module), function)
        else:
            found = offered[name].load()
    except Exception as error:  # the module is the user's own, and may raise anything
        raise UserError(f"postprocess {shown(name)}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise UserError(f"postprocess {shown(name)} is no function")
    return found


def installed() -> dict[str, EntryPoint]:
    """The functions that installed packages offer, by name; the working folder offers none."""
    here = os.path.realpath(os.curdir)
    path = [folder for folder in sys.path if os.path.realpath(folder) != here]
    return {
        each.name: each
        for package in distributions(path=path)
        for each in package.entry_points.select(group=GROUP)
    }


def applied(postprocess: Callable[[str], str], text: str) -> str:
    """What a user's function makes of a text.

    Raises:
        UserError: if the function fails, or returns no string.
    """
    try:
        new = postprocess(text)
    except Exception as error:  # it may raise anything
        said = f"{type(error).__name__}: {reason(error)}"
        raise UserError(f"postprocess failed on {shown(text)}: {said}") from error
    if not isinstance(new, str):
        raise UserError(f"postprocess must return a text, got {shown(new)} for {shown(text)}")
    return new

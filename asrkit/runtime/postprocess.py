"""Functions that rewrite recognised text, for example with digits or capitals."""

import importlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distributions

from asrkit.errors import UserError, reason, shown
from asrkit.text.spelled import join_spelled

BUILT_IN: dict[str, Callable[[str], str]] = {"spelled": join_spelled}
GROUP = "asrkit.postprocess"  # entry points under which packages provide such functions


def find_postprocess(name: str | Callable[[str], str]) -> Callable[[str], str]:
    """Return the function for a "module:function" or a name, asrkit's or an installed package's.

    A function is returned as it is.

    Raises:
        UserError: for an unknown name, or one that is not a function.
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
    except Exception as error:  # the user's own module may raise any exception
        raise UserError(f"postprocess {shown(name)}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise UserError(f"postprocess must be a function, got {shown(name)}")
    return found


def installed() -> dict[str, EntryPoint]:
    """Return the functions of installed packages by name, ignoring the working folder."""
    here = os.path.realpath(os.curdir)
    path = [folder for folder in sys.path if os.path.realpath(folder) != here]
    return {
        each.name: each
        for package in distributions(path=path)
        for each in package.entry_points.select(group=GROUP)
    }


def applied(postprocess: Callable[[str], str], text: str) -> str:
    """Return a text as rewritten by a user's function.

    Raises:
        UserError: if the function fails, or does not return a string.
    """
    try:
        new = postprocess(text)
    except Exception as error:  # the function may raise any exception
        said = f"{type(error).__name__}: {reason(error)}"
        raise UserError(f"postprocess failed on {shown(text)}: {said}") from error
    if not isinstance(new, str):
        raise UserError(f"postprocess must return a text, got {shown(new)} for {shown(text)}")
    return new

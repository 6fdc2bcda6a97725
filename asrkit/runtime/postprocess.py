"""Functions that rewrite recognised text, for example with digits or capitals."""

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from asrkit.errors import UserError, reason, shown
from asrkit.text.spelled import join_spelled

BUILT_IN: dict[str, Callable[[str], str]] = {"spelled": join_spelled}


def find_postprocess(name: str | Callable[[str], str]) -> Callable[[str], str]:
    """Return the function for a "module:function" or a name of asrkit's.

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
    if not separator:
        raise UserError(
            f"no postprocess {shown(name)}: write module:function, or {', '.join(BUILT_IN)}"
        )
    try:
        rewrite = getattr(importlib.import_module(module), function)
    except Exception as error:  # the user's own module may raise any exception
        raise UserError(f"postprocess {shown(name)}: {type(error).__name__}: {error}") from None
    if not callable(rewrite):
        raise UserError(f"postprocess must be a function, got {shown(name)}")
    return rewrite


def applied(postprocess: Callable[[str], str], text: str) -> str:
    """Return a text as rewritten by a user's function.

    Raises:
        UserError: if the function fails, or does not return a string.
    """
    try:
        new = postprocess(text)
    except Exception as error:  # the function may raise any exception
        problem = f"{type(error).__name__}: {reason(error)}"
        raise UserError(f"postprocess failed on {shown(text)}: {problem}") from error
    if not isinstance(new, str):
        raise UserError(f"postprocess must return a text, got {shown(new)} for {shown(text)}")
    return new


def identity_of(function: Callable[..., Any]) -> str:
    """Return a hash that changes when a function's results may change.

    It covers the text attribute `identity`, if the function has one. Otherwise it covers module,
    name, source, and version of the package, but not what the function calls or reads.

    Raises:
        UserError: for a lambda, a closure, a method, or another object, without `identity`.
    """
    identity = getattr(function, "identity", None)
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not isinstance(identity, str):
        owner = getattr(function, "__self__", None)
        has_state = getattr(function, "__closure__", None) or not (
            owner is None or inspect.ismodule(owner)
        )
        has_state = has_state or isinstance(function, functools.partial)  # from 3.14 a routine
        if has_state or not inspect.isroutine(function) or "<" in name:
            raise UserError(
                f"streams of a recognizer with the postprocess {shown(name)} cannot be saved: set "
                "its attribute identity to a text that changes whenever its results do, or use a "
                "function of a module"
            )
        source = package = ""
        with suppress(OSError, TypeError):  # it is not written in Python
            source = inspect.getsource(function)
        with suppress(PackageNotFoundError, ValueError):  # it is not of an installed package
            package = version(module.partition(".")[0])
        identity = f"{package} {source}"
    return hashlib.sha256(f"{module}:{name} {identity}".encode()).hexdigest()

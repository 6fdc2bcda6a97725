"""Rewriting what was recognised, as digits or with capitals, by a function of the user."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, distributions

from asrkit.errors import UserError, reason, shown
from asrkit.runtime.word import Word, joined
from asrkit.text.graphemes import units
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


def rewritten(words: Sequence[Word], text: str) -> list[Word]:
    """The words of a text that was made from these, with their times.

    Words that stayed, and those that took the place of as many others, have their times. Others
    share the time of what they took the place of, in equal parts; added ones stand in between.
    """
    if text.split() == joined(words).split():
        return list(words)
    parts = [units(word) for word in text.split()]
    new = [unit for word in parts for unit in word]
    spaced = [not number for word in parts for number in range(len(word))]
    # Labels of several characters are compared character by character.
    words = [unit for word in words for unit in shared([word], units(word.text))]
    found: list[Word] = []
    for old_part, new_part in changes([word.text for word in words], new):
        before, after = words[old_part], new[new_part]
        if len(before) == len(after):
            found += [word._replace(text=text) for word, text in zip(before, after, strict=True)]
        elif before:
            found += shared(before, after)
        else:
            near = words[max(0, old_part.start - 1)]
            at = near.end if old_part.start else near.start
            found += [Word(text, at, at, near.confidence) for text in after]
    return [word.with_space(each) for word, each in zip(found, spaced, strict=True)]


def shared(before: Sequence[Word], after: Sequence[str]) -> list[Word]:
    """Words in equal parts of the time of others, as sure as the least sure of them."""
    if len(before) == len(after) == 1:
        return [before[0]._replace(text=after[0])]
    start, length = before[0].start, before[-1].end - before[0].start
    confidence = min(word.confidence for word in before)
    edges = [round(start + length * i / max(1, len(after)), 3) for i in range(len(after) + 1)]
    return [Word(text, edges[i], edges[i + 1], confidence) for i, text in enumerate(after)]


def changes(old: Sequence[str], new: Sequence[str]) -> list[tuple[slice, slice]]:
    """What took the place of what: parts of both, in order; equal parts too."""
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [(slice(i, j), slice(k, m)) for _, i, j, k, m in matcher.get_opcodes()]

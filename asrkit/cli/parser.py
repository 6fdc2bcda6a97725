"""Parsing of command arguments: options in groups, numbers in range, short messages."""

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar

from asrkit.errors import UserError, printable, shown

LONGEST_LINE = 1000  # characters on standard error
MOST_LINES = 50

Number = TypeVar("Number", int, float)


class Target(str):
    """The path of a file to write, which no other argument may read; a type of argument."""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are a UserError of one line.

    Args:
        name: name of the command in messages.
        description: description of the command, one sentence.
        example: example calls of the command, one or more lines.
        usage: first line of the help after the name; None lists all options there.
    """

    def __init__(self, name: str, description: str, example: str, usage: str | None = None) -> None:
        super().__init__(
            prog=name,
            usage=usage and f"{name} {usage}",
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.groups: dict[str, argparse._ArgumentGroup] = {}

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the group of options with this title in the help; make it at first use."""
        if title not in self.groups:
            self.groups[title] = self.add_argument_group(title)
        return self.groups[title]

    def parse_intermixed_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Return the arguments; files and options may be in any order.

        Raises:
            UserError: for unknown or wrong arguments, or a file that is both read and written.
        """
        given = list(sys.argv[1:] if args is None else args)
        if "--" in given:  # argparse drops it between its passes; ./ makes it unnecessary
            end = given.index("--")
            files = [f"./{each}" if each[:1] == "-" != each else each for each in given[end + 1 :]]
            given = given[:end] + files
        options = super().parse_intermixed_args(given, namespace)
        refuse_overwriting(options)
        return options

    def error(self, message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        near = difflib.get_close_matches(unknown[:50].split(" ")[0], self._option_string_actions, 1)
        if near:
            message += f"; did you mean {near[0]}?"
        if message.endswith("expected one argument"):
            message += " (write a value that begins with - after =, as in --name=-5)"
        raise UserError(f"{message}; --help says more")


def refuse_overwriting(options: argparse.Namespace) -> None:
    """Raise UserError for a file to write that another argument reads."""
    values = [value if isinstance(value, list) else [value] for value in vars(options).values()]
    named = [path for value in values for path in value if isinstance(path, str)]
    for target in (path for path in named if isinstance(path, Target)):
        if any(path is not target and same_file(path, target) for path in named):
            raise UserError(
                f"{shown(Path(target))} is read and cannot be written: name another file"
            )


def same_file(path: str, other: str) -> bool:
    """Return whether two paths name the same existing file."""
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):  # ValueError: not a path
        return False


def complain(name: str, message: object) -> None:
    """Print an error on standard error, with escapes and limited length."""
    for line in f"{name}: {message}".split("\n")[:MOST_LINES]:
        more = "…" if len(line) > LONGEST_LINE else ""
        print(printable(line[:LONGEST_LINE]) + more, file=sys.stderr)


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a type of argument: whole numbers from `lowest` to `highest`."""
    return _between(int, "a whole number", lowest, highest)


def real(lowest: float, highest: float) -> Callable[[str], float]:
    """Return a type of argument: numbers from `lowest` to `highest`."""
    return _between(float, "a number", lowest, highest)


def _between(
    read: Callable[[str], Number], name: str, lowest: Number, highest: Number
) -> Callable[[str], Number]:
    def number(text: str) -> Number:
        with suppress(ValueError):
            value = read(text)
            if lowest <= value <= highest:
                return value
        raise argparse.ArgumentTypeError(
            f"must be {name} from {lowest} to {highest}, got {shown(text)}"
        )

    return number

"""How commands read their arguments: options in groups, numbers in range, short messages."""

import argparse
import difflib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

from asrkit.errors import UserError, printable, shown

LONGEST_LINE = 1000  # characters on standard error
MOST_LINES = 50

Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """A command's arguments: no abbreviations, and what is wrong in one line.

    Args:
        name: the command, as in messages.
        description: of the command, in one sentence.
        example: how it is called, one or more lines.
        usage: what follows the name in the first line of the help, where all options in brackets
            would be too many.
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
        """The options that the help shows under this title."""
        if title not in self.groups:
            self.groups[title] = self.add_argument_group(title)
        return self.groups[title]

    def error(self, message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        near = difflib.get_close_matches(unknown[:50].split(" ")[0], self._option_string_actions, 1)
        if near:
            message += f"; did you mean {near[0]}?"
        if message.endswith("expected one argument"):
            message += " (one that begins with - is written after =, as --name=-5)"
        raise UserError(f"{message}; --help says more")


def complain(name: str, message: object) -> None:
    """What is wrong, on standard error: lines that a terminal shows as they are, none too long."""
    for line in f"{name}: {message}".split("\n")[:MOST_LINES]:
        more = "…" if len(line) > LONGEST_LINE else ""
        print(printable(line[:LONGEST_LINE]) + more, file=sys.stderr)


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    """A type of argument: whole numbers from one to another."""
    return _between(int, "a whole number", lowest, highest)


def real(lowest: float, highest: float) -> Callable[[str], float]:
    """A type of argument: numbers from one to another."""
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

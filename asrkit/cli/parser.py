"""The parser of a command, which also runs it: options in groups, short messages, exit status."""

import argparse
import difflib
import io
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from asrkit.cli.interrupt import end_at_next_interrupt
from asrkit.errors import UserError, printable, shown
from asrkit.extras import EXTRA_OF, REQUIRED, missing

LONGEST_LINE = 1000  # characters on standard error
MOST_LINES = 50

Number = TypeVar("Number", int, float)
Value = TypeVar("Value")


class Target(str):
    """The path of a file to write, which no other argument may read; a type of argument."""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose errors are a UserError of one line.

    Args:
        doc: docstring of the command's module, whose first words describe the command.
        usage: first line of the help after the name; None lists all options there.
    """

    def __init__(self, name: str, doc: str | None, example: str, usage: str | None = None) -> None:
        super().__init__(
            prog=name,
            usage=usage and f"{name} {usage}",
            description=(doc or "").partition(":")[0] + ".",
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
        """Return the arguments; files and options may be in any order."""
        options = super().parse_intermixed_args(args, namespace)
        refuse_overwriting(options)
        return options

    def error(self, message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        name = unknown[:50].split(" ")[0]
        near = difflib.get_close_matches(name, self._option_string_actions, 1, cutoff=0.7)
        if near:
            message += f"; did you mean {near[0]}?"
        if message.endswith("required: --model"):
            message += ", such as --model small-en-alnum, which is in the package"
        raise UserError(f"{message}; --help says more")

    def run(self, command: Callable[[argparse.Namespace], int], argv: list[str] | None) -> int:
        """Parse the arguments, call a command with them, and print its errors as lines.

        Args:
            command: function of the parsed options that returns an exit status. It imports what
                --help does without.

        Returns:
            Exit status: 0 done, 1 done but something failed, 2 a user's mistake, 130 stopped.
        """
        open_streams()
        # OpenMP reads it when torch is imported. By default its threads stay busy while they wait
        # for each other, which takes many times as long if another program needs a core.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        try:
            return command(self.parse_intermixed_args(argv))
        except BrokenPipeError:  # for example with `| head`
            return 1
        except UserError as error:
            complain(self.prog, error)
            return 2
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRA_OF.keys() | REQUIRED:
                raise
            complain(self.prog, missing([package]))
            return 2
        except OSError as error:  # for example a full disk, or a folder without permission
            why, name = error.strerror or str(error), error.filename
            name = os.fsdecode(name) if isinstance(name, bytes) else name
            complain(self.prog, f"{name}: {why}" if name else why)
            return 2
        except KeyboardInterrupt:
            end_at_next_interrupt()
            print(f"{self.prog}: stopped", file=sys.stderr)
            return 130


def open_streams() -> None:
    """Make the standard streams usable: replace closed ones, and escape characters in output.

    Streams are None if a program without a terminal starts a command with closed streams.
    Characters are escaped if the encoding of a terminal or file lacks them.
    """
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def refuse_overwriting(options: argparse.Namespace) -> None:
    """Raise UserError for a file to write that another argument reads."""
    values = [value if isinstance(value, list) else [value] for value in vars(options).values()]
    named = [path for value in values for path in value if isinstance(path, str)]
    paths = Counter(map(os.path.realpath, named))
    for target in (path for path in named if isinstance(path, Target) and os.path.exists(path)):
        if paths[os.path.realpath(target)] > 1:
            raise UserError(
                f"{shown(Path(target))} is read and cannot be written: name another file"
            )


def complain(name: str, message: object) -> None:
    """Print an error on standard error, with escapes and limited length."""
    for line in f"{name}: {message}".split("\n")[:MOST_LINES]:
        more = "…" if len(line) > LONGEST_LINE else ""
        print(printable(line[:LONGEST_LINE]) + more, file=sys.stderr)


def whole(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """Return a type of argument: whole numbers from `lowest` to `highest`."""
    return number(int, "a whole number", lowest, highest)


def real(lowest: float, highest: float) -> Callable[[str], float]:
    """Return a type of argument: numbers from `lowest` to `highest`."""
    return number(float, "a number", lowest, highest)


def word_or(word: str, number: Callable[[str], int]) -> Callable[[str], str | int]:
    """Return a type of argument: a word, or a number."""

    def read(text: str) -> str | int:
        try:
            return word if text == word else number(text)
        except argparse.ArgumentTypeError as error:
            message = str(error).replace("must be", f"must be {word} or")
            raise argparse.ArgumentTypeError(message) from None

    return read


def number(
    read: Callable[[str], Number], name: str, lowest: float, highest: float
) -> Callable[[str], Number]:
    """Return a type of argument: numbers with limits."""

    def limited(text: str) -> Number:
        value = read(text)
        if not lowest <= value <= highest:
            raise ValueError
        return value

    limits = f"from {lowest} to {highest}" if highest < math.inf else f"from {lowest}"
    return typed(f"{name} {limits}", limited)


def typed(name: str, read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return a type of argument: values with this name in messages.

    Args:
        read: function that returns the value of a text, or raises ValueError.
    """

    def value(text: str) -> Value:
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {name}, got {shown(text)}") from None

    return value

"""Run a command: import its work when it is called, and turn its errors into lines."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable

from asrkit.cli.interrupt import end_at_next_interrupt
from asrkit.cli.parser import Parser, complain
from asrkit.errors import UserError
from asrkit.extras import EXTRA_OF, missing


def work(module: str, function: str | None = None) -> Callable[[argparse.Namespace], int]:
    """Return a function of a module of asrkit.commands, which is imported when it is called.

    Torch takes seconds to import, and --help does without.

    Args:
        module: name of the module.
        function: name of the function; None for the module's name.
    """

    def run(options: argparse.Namespace) -> int:
        found = getattr(importlib.import_module(f"asrkit.commands.{module}"), function or module)
        status: int = found(options)
        return status

    return run


def run_command(
    command: Callable[[argparse.Namespace], int], arguments: Parser, argv: list[str] | None
) -> int:
    """Parse the arguments and call a command with them.

    Args:
        command: function of the parsed options that returns an exit status.
        arguments: parser of the command.
        argv: arguments; None for those of this process.

    Returns:
        exit status: 0 done, 1 done but something failed, 2 a user's mistake, 130 stopped.
    """
    open_streams()
    try:
        # Files and settings may stand anywhere.
        return command(arguments.parse_intermixed_args(argv))
    except BrokenPipeError:  # of `| head`
        return 1
    except UserError as error:
        complain(arguments.prog, error)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        complain(arguments.prog, missing([package]))
        return 2
    except OSError as error:  # a full disk, a folder without permission
        why = error.strerror or str(error)
        complain(arguments.prog, f"{error.filename}: {why}" if error.filename else why)
        return 2
    except KeyboardInterrupt:
        end_at_next_interrupt()
        print(f"{arguments.prog}: stopped", file=sys.stderr)
        return 130


def open_streams() -> None:
    """Make the standard streams usable: closed ones hold nothing, and output can show any text.

    A program without a terminal may start a command with its streams closed, which are None then;
    and characters that the encoding of a terminal or file lacks are escaped.
    """
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

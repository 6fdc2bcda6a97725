"""Run a command: import its module on the call, and print its errors as lines."""

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
    """Return a function of a module of asrkit.commands that is imported on the call.

    Torch takes seconds to import; --help does without it.

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
        Exit status: 0 done, 1 done but something failed, 2 a user's mistake, 130 stopped.
    """
    open_streams()
    try:
        # Files and settings may be in any order.
        return command(arguments.parse_intermixed_args(argv))
    except BrokenPipeError:  # for example with `| head`
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
    except OSError as error:  # for example a full disk, or a folder without permission
        why = error.strerror or str(error)
        complain(arguments.prog, f"{error.filename}: {why}" if error.filename else why)
        return 2
    except KeyboardInterrupt:
        end_at_next_interrupt()
        print(f"{arguments.prog}: stopped", file=sys.stderr)
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

"""The commands. Each is imported when it is run: torch alone takes seconds."""

import importlib
import sys

from asrkit.cli.interrupt import end_at_next_interrupt
from asrkit.extras import EXTRA_OF, missing

MODULES = {  # of commands whose module has not their name
    "import": "import_",
}


def run(command: str, argv: list[str] | None = None) -> int:
    """Exit status of a command, also where packages of an extra are missing.

    Args:
        command: its name.
        argv: its arguments; None for those of this process.
    """
    module = MODULES.get(command, command)
    try:
        return importlib.import_module(f"asrkit.commands.{module}").main(argv)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        print(f"asrkit {command}: {missing([package])}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while packages are imported
        end_at_next_interrupt()
        print(f"asrkit {command}: stopped", file=sys.stderr)
        return 130

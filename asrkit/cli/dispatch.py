"""Running the command that the first argument names."""

import importlib
from collections.abc import Mapping, Sequence

from asrkit.cli.parser import complain
from asrkit.registry import refusal

Groups = Mapping[str, Mapping[str, str]]  # purposes of commands, by the title of a group and name


def dispatch(program: str, groups: Groups, example: str, argv: Sequence[str]) -> int:
    """Run a command, or print the list of all; return the exit status."""
    command, *rest = argv or ["--help"]
    names = [name for group in groups.values() for name in group]
    if command in names:
        status: int = importlib.import_module(module_of(f"{program} {command}")).main(rest)
        return status
    if command in ("-h", "--help"):
        print(usage(program, groups, example))
        return 0
    complain(program, f"the command {refusal(command, names)}")
    return 2


def module_of(command: str) -> str:
    """Return the name of a command's module; `import` is a keyword of Python."""
    name = "_".join(command.split()[1:])
    return f"asrkit.commands.{name}{'_' * (name == 'import')}"


def usage(program: str, groups: Groups, example: str) -> str:
    lines = [f"usage: {program} <command> [options]; {program} <command> --help says more"]
    for title, commands in groups.items():
        lines += [f"\n{title}:", *(f"  {name:10}{each}" for name, each in commands.items())]
    return "\n".join([*lines, f"\nexample:\n  {example}"])

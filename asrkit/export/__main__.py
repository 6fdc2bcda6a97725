"""The command asrkit export, for `python -m asrkit.export`."""

from asrkit.commands.export import main

if __name__ == "__main__":
    raise SystemExit(main())

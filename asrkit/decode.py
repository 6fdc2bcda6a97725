"""The command asrkit decode, for `python -m asrkit.decode`."""

from asrkit.commands.decode import main

if __name__ == "__main__":
    raise SystemExit(main())

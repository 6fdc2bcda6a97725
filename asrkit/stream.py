"""The command asrkit stream, for `python -m asrkit.stream`."""

from asrkit.commands.stream import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.stream: see `commands.stream`."""

from asrkit.commands.stream import main

if __name__ == "__main__":
    raise SystemExit(main())

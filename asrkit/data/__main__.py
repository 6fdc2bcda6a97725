"""python -m asrkit.data: see `commands.data`."""

from asrkit.commands.data import main

if __name__ == "__main__":
    raise SystemExit(main())

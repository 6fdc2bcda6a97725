"""python -m asrkit.decode: see `commands.decode`."""

from asrkit.commands.decode import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.pack: see `commands.pack`."""

from asrkit.commands.pack import main

if __name__ == "__main__":
    raise SystemExit(main())

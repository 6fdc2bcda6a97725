"""python -m asrkit.align: see `commands.align`."""

from asrkit.commands.align import main

if __name__ == "__main__":
    raise SystemExit(main())

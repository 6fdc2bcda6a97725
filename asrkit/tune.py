"""python -m asrkit.tune: see `commands.tune`."""

from asrkit.commands.tune import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.evaluate: see `commands.evaluate`."""

from asrkit.commands.evaluate import main

if __name__ == "__main__":
    raise SystemExit(main())

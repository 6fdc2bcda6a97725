"""python -m asrkit.info: see `commands.info`."""

from asrkit.commands.info import main

if __name__ == "__main__":
    raise SystemExit(main())

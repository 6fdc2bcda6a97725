"""python -m asrkit.verify: see `commands.verify`."""

from asrkit.commands.verify import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.export: see `commands.export`."""

from asrkit.commands.export import main

if __name__ == "__main__":
    raise SystemExit(main())

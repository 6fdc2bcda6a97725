"""python -m asrkit.bench: see `commands.bench`."""

from asrkit.commands.bench import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.train: see `commands.train`."""

from asrkit.commands.train import main

if __name__ == "__main__":
    raise SystemExit(main())

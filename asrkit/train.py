"""The command asrkit train, for `python -m asrkit.train`."""

from asrkit.commands.train import main

if __name__ == "__main__":
    raise SystemExit(main())

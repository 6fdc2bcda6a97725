"""The command asrkit evaluate, for `python -m asrkit.evaluate`."""

from asrkit.commands.evaluate import main

if __name__ == "__main__":
    raise SystemExit(main())

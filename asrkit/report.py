"""python -m asrkit.report: see `commands.report`."""

from asrkit.commands.report.command import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.report: see `commands.report`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "report")

if __name__ == "__main__":
    raise SystemExit(main())

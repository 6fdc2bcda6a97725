"""python -m asrkit.export: see `commands.export`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "export")

if __name__ == "__main__":
    raise SystemExit(main())

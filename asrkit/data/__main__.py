"""python -m asrkit.data: see `commands.data`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "data")

if __name__ == "__main__":
    raise SystemExit(main())

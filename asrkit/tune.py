"""python -m asrkit.tune: see `commands.tune`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "tune")

if __name__ == "__main__":
    raise SystemExit(main())

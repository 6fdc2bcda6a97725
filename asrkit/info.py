"""python -m asrkit.info: see `commands.info`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "info")

if __name__ == "__main__":
    raise SystemExit(main())

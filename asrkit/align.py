"""python -m asrkit.align: see `commands.align`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "align")

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.verify: see `commands.verify`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "verify")

if __name__ == "__main__":
    raise SystemExit(main())

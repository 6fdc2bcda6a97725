"""python -m asrkit.push: see `commands.push`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "push")

if __name__ == "__main__":
    raise SystemExit(main())

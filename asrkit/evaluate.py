"""python -m asrkit.evaluate: see `commands.evaluate`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "evaluate")

if __name__ == "__main__":
    raise SystemExit(main())

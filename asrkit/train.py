"""python -m asrkit.train: see `commands.train`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "train")

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.listen: see `commands.listen`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "listen")

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.decode: see `commands.decode`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "decode")

if __name__ == "__main__":
    raise SystemExit(main())

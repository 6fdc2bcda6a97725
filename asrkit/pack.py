"""python -m asrkit.pack: see `commands.pack`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "pack")

if __name__ == "__main__":
    raise SystemExit(main())

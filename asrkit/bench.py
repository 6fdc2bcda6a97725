"""python -m asrkit.bench: see `commands.bench`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "bench")

if __name__ == "__main__":
    raise SystemExit(main())

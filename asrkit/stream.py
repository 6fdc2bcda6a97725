"""python -m asrkit.stream: see `commands.stream`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "stream")

if __name__ == "__main__":
    raise SystemExit(main())

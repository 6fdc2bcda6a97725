"""python -m asrkit.ngram: see `commands.ngram`."""

from functools import partial

from asrkit.commands import run

main = partial(run, "ngram")

if __name__ == "__main__":
    raise SystemExit(main())

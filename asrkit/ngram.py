"""python -m asrkit.ngram: see `commands.ngram`."""

from asrkit.commands.ngram import main

if __name__ == "__main__":
    raise SystemExit(main())

"""python -m asrkit.serve: see `commands.serve`."""

from asrkit.commands import run

if __name__ == "__main__":
    raise SystemExit(run("serve"))

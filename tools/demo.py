"""make demo: train on the embedded corpus, decode, stream, export, and print what came out.

Every step is a command that you can run yourself; each is printed before it runs.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
EXPERIMENT = Path("exp/digits")
MODEL = EXPERIMENT / "model.safetensors"
DIGITS = Path("data/digits")


def run(*command: str, show: bool = True) -> str:
    """Run a python command of the project; its standard error, and that it took."""
    print(f"\n$ python {' '.join(command)}", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=PROJECT,
        check=False,
        text=True,
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
    )
    if done.returncode:
        print(done.stderr or "", file=sys.stderr)
        sys.exit(f"make demo: this failed with exit status {done.returncode}")
    print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
    return done.stderr or ""


def word_error_rate(chunk: str) -> str:
    """WER line of the test set at a chunk size."""
    output = run(
        "-m", "asrkit.decode", "--model", str(MODEL), "--manifest", str(DIGITS / "test.jsonl"),
        "--chunk-ms", chunk, show=False,
    )  # fmt: skip
    found = re.search(r"WER (.*)", output)
    if not found:
        sys.exit(f"make demo: no WER in {output!r}")
    return found[1]


def main() -> None:
    started = time.monotonic()
    if not (PROJECT / MODEL).is_file():
        resume = ["--resume"] if (PROJECT / EXPERIMENT / "checkpoints").is_dir() else []
        run("-m", "asrkit.train", "--config", "conf/digits.yaml", *resume)
    table = {chunk: word_error_rate(chunk) for chunk in ("full", "640", "320", "160")}
    tests = [
        json.loads(line) for line in (PROJECT / DIGITS / "test.jsonl").read_text().splitlines()
    ]
    longest = max(tests, key=lambda utterance: utterance["duration"])
    audio = str(DIGITS / longest["audio"])
    print(f"\nStreaming the longest one, as fast as it was spoken; reference: {longest['text']}")
    run(
        "-m", "asrkit.stream", "--model", str(MODEL), "--file", audio, "--chunk-ms", "320",
        "--simulate-realtime", *([] if sys.stdout.isatty() else ["--partials"]),
    )  # fmt: skip
    run("-m", "asrkit.verify", "--model", str(MODEL), audio)
    run("-m", "asrkit.export", "--model", str(MODEL), "--output", str(EXPERIMENT / "encoder.ts"))
    print(f"\nWord error rate on {len(tests)} utterances of voices not heard in training, greedy")
    for chunk, rate in table.items():
        name = "offline, full context" if chunk == "full" else f"streaming, {chunk} ms chunks"
        print(f"  {name:<28}{rate}")
    print("\nWhere everything lies")
    for path, what in (
        (MODEL, "the model: weights, tokenizer, configuration"),
        (EXPERIMENT / "encoder.ts", "the encoder as TorchScript"),
        (EXPERIMENT / "train.log", "the log"),
        (EXPERIMENT / "tensorboard", "curves: tensorboard --logdir exp"),
        (DIGITS, "the corpus"),
    ):
        print(f"  {path!s:<36}{what}")
    print(f"\ndone in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

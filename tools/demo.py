"""make demo: train on the embedded corpus, decode, stream, and print what came out.

Every step is a command that you can run yourself; each is printed before it runs.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
EXPERIMENT = Path("exp/digits")
MODEL = EXPERIMENT / "model.safetensors"
DIGITS = Path("data/digits")
ERRORS = ("substitutions", "deletions", "insertions")


def run(*command: str, show: bool = True) -> str:
    """Run a python command of the project, print how long it took, and return what is not shown."""
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
    return done.stdout or ""


def word_error_rates(*options: str) -> dict[str, str]:
    """WER of the test set in each context that is asked for, by the context's name."""
    scores = run(
        "-m", "asrkit.evaluate", "--model", str(MODEL), *options, "--format", "json",
        str(DIGITS / "test.jsonl"), show=False,
    )  # fmt: skip
    contexts = json.loads(scores)["contexts"]
    return {name: shown(each["words"]) for name, each in contexts.items()}


def shown(words: dict[str, float]) -> str:
    """An error rate of words, and the errors."""
    kinds = ", ".join(f"{words[kind]} {kind[:3]}" for kind in ERRORS)
    return f"{words['rate']:.2f} % ({kinds} in {words['reference_units']})"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    started = time.monotonic()
    if not (PROJECT / MODEL).is_file():
        resume = ["--resume"] if (PROJECT / EXPERIMENT / "checkpoints").is_dir() else []
        run("-m", "asrkit.train", "--config", "conf/digits.yaml", *resume)
    table = word_error_rates("--chunk-ms", "full,640,320,160")
    both = ("--chunk-ms", "320", "--endpoint-ms", "600", "--second-pass", "full")
    table |= word_error_rates(*both)
    tests = [
        json.loads(line) for line in (PROJECT / DIGITS / "test.jsonl").read_text().splitlines()
    ]
    longest = max(tests, key=lambda utterance: utterance["duration"])
    audio = str(DIGITS / longest["audio"])
    print(f"\nStreaming the longest one, as fast as it was spoken; reference: {longest['text']}")
    stream = ("-m", "asrkit.stream", "--model", str(MODEL), audio, "--chunk-ms", "320")
    run(*stream, "--simulate-realtime")
    run("-m", "asrkit", "verify", "--model", str(MODEL), audio)
    print(f"\nWord error rate on {len(tests)} utterances of voices not heard in training, greedy")
    for context, rate in table.items():
        chunk, _, second = context.partition(", ")
        name = "offline, full context" if chunk == "full" else f"streaming, {chunk} chunks"
        print(f"  {name + (', final text' if second else ''):<38}{rate}")
    exports = sorted(path.relative_to(PROJECT) for path in (PROJECT / EXPERIMENT).glob("*.onnx"))
    print("\nWhere everything lies")
    for path, what in (
        (MODEL, "the model: weights, tokenizer, configuration"),
        *((path, "its export to ONNX: runs without torch") for path in exports),
        (EXPERIMENT / "train.log", "the log"),
        (EXPERIMENT / "tensorboard", "curves: tensorboard --logdir exp"),
        (DIGITS, "the corpus"),
    ):
        print(f"  {path!s:<36}{what}")
    print(f"\ndone in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

"""Fine-tune small-en-alnum on ten recordings of one voice, and measure the gain.

    python docs/examples/fine_tune.py my/recordings.jsonl

Ten recordings of the manifest, drawn at random, are for training; all others are for testing. With
exactly ten recordings nothing is tested.
The new model writes only the words of the ten recordings: they must have every word that you need.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

SETTINGS = [
    "data.recipe=null", "data.num_workers=0", "augmentation.noise=null",
    "augmentation.speed_factors=[0.9, 1.0, 1.1]", "training.start_from=small-en-alnum",
    "training.epochs=10", "training.learning_rate=1.0e-3", "training.num_threads=1",
    "training.validate_every_epochs=10",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("manifest", type=Path, help="JSONL: id, audio and text of each recording")
    parser.add_argument("--output-dir", type=Path, default=Path("exp/my-voice"))
    options = parser.parse_args()
    lines = options.manifest.read_text(encoding="utf-8").splitlines()
    recordings = [json.loads(line) for line in lines if line.strip()]
    if len(recordings) < 10:
        parser.error(f"{options.manifest} must have at least 10 recordings, got {len(recordings)}")
    for recording in recordings:
        recording["audio"] = str((options.manifest.parent / recording["audio"]).resolve())
    random.Random(0).shuffle(recordings)
    train, test = options.output_dir / "train.jsonl", options.output_dir / "test.jsonl"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for path, part in ((train, recordings[:10]), (test, recordings[10:])):
        path.write_text("".join(json.dumps(each) + "\n" for each in part), encoding="utf-8")

    # The test set must not choose any setting: training validates on its own recordings.
    run("train", "--config", "alnum", f"data.train={train}", f"data.dev={train}",
        f"training.output_dir={options.output_dir}", *SETTINGS)  # fmt: skip
    if not recordings[10:]:
        print("not measured: all ten were trained on; add recordings to measure the gain")
        return
    for model in ("small-en-alnum", options.output_dir / "model.safetensors"):
        run("evaluate", "--model", str(model), str(test))


def run(command: str, *arguments: str) -> None:
    print(f"$ asrkit {command} {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", f"asrkit.{command}", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()

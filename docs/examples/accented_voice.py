"""Make recordings of a voice that is new to small-en-alnum: English digits with a German accent.

    python docs/examples/accented_voice.py data/accent
    python docs/examples/fine_tune.py data/accent/recordings.jsonl

The German voice of espeak-ng reads the digits (pip install '.[train]'). Run in a clone of asrkit.
"""

import json
import sys
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "digits"))
from prepare import DIGITS, SAMPLE_RATE, record

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "recordings.jsonl").open("w", encoding="utf-8") as manifest:
    for i in range(60):
        rng = np.random.default_rng([i, 7])
        text = " ".join(rng.choice(DIGITS, size=6))
        soundfile.write(folder / f"{i:02}.flac", record(text, "de", rng), SAMPLE_RATE)
        manifest.write(json.dumps({"id": f"{i:02}", "audio": f"{i:02}.flac", "text": text}) + "\n")

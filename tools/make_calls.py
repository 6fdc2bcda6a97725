"""Calls of two speakers: python tools/make_calls.py MANIFEST FOLDER

Pairs the speakers of a manifest. In a call each of the two has a channel of its own, and they take
turns with their recordings, one after another. Most turns begin before the turn before has ended.
FOLDER has the calls as 16-bit FLAC, and two manifests: `channels.jsonl` has a line for each
channel, `mix.jsonl` one for each call, whose text is that of all turns by their starts.
"""

import argparse
import itertools
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile

from asrkit.audio import SAMPLE_RATE
from asrkit.data.inputs import read_recordings
from asrkit.data.recording import Recording


class Call(NamedTuple):
    samples: np.ndarray  # (n, 2) float32 at 16 kHz
    turns: list[tuple[int, str]]  # channel and text of each turn
    overlap: float  # seconds of two recordings at once


def call_of(speakers: list[list[Recording]], draw: random.Random) -> Call:
    """Return a call whose speakers take turns; it ends with the recordings of either."""
    told: list[tuple[int, str]] = []
    tracks = [np.zeros(0, np.float32)] * 2
    overlap = 0.0
    for number, each in enumerate(itertools.chain(*zip(*speakers, strict=False))):
        channel = number % 2
        samples, other = each.load(), tracks[1 - channel]
        shift = round(SAMPLE_RATE * draw.uniform(-2.0, 0.5))  # from the end of the other's turn
        start = max(len(tracks[channel]), len(other) + shift, 0)
        overlap += max(0, min(len(other), start + len(samples)) - start) / SAMPLE_RATE
        pause = np.zeros(start - len(tracks[channel]), np.float32)
        tracks[channel] = np.concatenate([tracks[channel], pause, samples])
        told.append((channel, each.text or ""))
    length = max(map(len, tracks))
    padded = [np.pad(track, (0, length - len(track))) for track in tracks]
    return Call(np.stack(padded, axis=1), told, overlap)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("manifest", help="recordings with texts and speakers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    draw, by_speaker = random.Random(options.seed), defaultdict[str, list[Recording]](list)
    for each in read_recordings(options.manifest):
        by_speaker[each.speaker or ""].append(each)
    names = sorted(by_speaker)
    draw.shuffle(names)
    options.folder.mkdir(parents=True)
    lines: dict[str, list[str]] = {"channels": [], "mix": []}
    seconds = overlap = 0.0
    for pair in zip(names[::2], names[1::2], strict=False):
        call = call_of([by_speaker[name] for name in pair], draw)
        name = "-".join(pair)
        soundfile.write(options.folder / f"{name}.flac", call.samples, SAMPLE_RATE)
        seconds, overlap = seconds + len(call.samples) / SAMPLE_RATE, overlap + call.overlap
        about = {"audio": f"{name}.flac", "duration": len(call.samples) / SAMPLE_RATE}
        for channel, speaker in enumerate(pair):
            text = " ".join(text for number, text in call.turns if number == channel)
            value = {"id": f"{name}-{speaker}", **about, "text": text, "speaker": speaker}
            lines["channels"].append(json.dumps(value | {"channel": channel}))
        text = " ".join(text for _, text in call.turns)
        lines["mix"].append(json.dumps({"id": name, **about, "text": text}))
    for name, each in lines.items():
        (options.folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in each))
    print(f"{len(lines['mix'])} calls, {seconds:.0f} s, {overlap:.0f} s of two recordings at once")


if __name__ == "__main__":
    main()

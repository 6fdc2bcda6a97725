"""Compare offline with streaming recognition in the same context: asrkit beside other toolkits.

python tools/benchmarks/consistency.py data/an4/dev.jsonl

Each toolkit recognises each recording twice with one network: the whole recording at once, and
chunk by chunk. `--only speechbrain` runs one toolkit, `--quick` three recordings. The command names
each toolkit that is not installed. docs/consistency.md explains the table.
"""

import argparse
import importlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from benchmarks import Row, environment, positive, report
from pairs import Pair, Settings, greedy
from torch import Tensor
from tqdm import tqdm

from asrkit import audio
from asrkit.data.labelled import jobs_of
from asrkit.errors import UserError

TOOLKITS = "asrkit", "torchaudio", "speechbrain", "nemo", "sherpa_onnx"
LEVEL = 1e-3  # rounding is below it, all other causes are above it
QUICK_RECORDINGS, QUICK_LAYERS = 3, 2


class Compared(NamedTuple):
    """The two outputs of one recording, compared."""

    other_text: bool  # the greedy texts differ
    frames: int = 0  # encoder frames that both paths have; 0 where a toolkit gives text alone
    other_frames: int = 0  # with a log-probability that differs by more than LEVEL
    largest: float = 0.0  # largest difference of log-probabilities
    more: int = 0  # frames of streaming minus frames of offline


def compare(offline: Tensor | str, streaming: Tensor | str) -> Compared:
    """Compare two outputs of a recording, (E, V) or texts.

    Frames of streaming after offline's last frame are cut off, for they come from the silence that
    fills the last chunk. A frame of offline that streaming lacks is a part of the text.
    """
    if isinstance(offline, str) or isinstance(streaming, str):
        return Compared(greedy(offline) != greedy(streaming))
    more, frames = len(streaming) - len(offline), min(len(streaming), len(offline))
    other_text = greedy(offline) != greedy(streaming[: len(offline)])
    if not frames:
        return Compared(other_text, more=more)
    worst = (offline[:frames] - streaming[:frames]).abs().amax(dim=1)
    return Compared(other_text, frames, int((worst > LEVEL).sum()), float(worst.max()), more)


def measure(pair: Pair, recordings: Sequence[np.ndarray]) -> Row:
    """Return the row of a pair: its names, and the counts of `compare` over all recordings."""
    with torch.inference_mode():
        turns = tqdm(recordings, desc=f"{pair.toolkit}, {pair.source}", leave=False)
        found = [compare(pair.offline(each), pair.streaming(each)) for each in turns]
    total, more = sum(each.frames for each in found), [each.more for each in found]
    other = sum(each.other_frames for each in found)
    return {
        "toolkit": pair.toolkit,
        "weights": pair.weights,
        "from": pair.source,
        "context, ms": pair.context,
        "other texts": f"{sum(each.other_text for each in found)} of {len(found)}",
        "other frames": f"{100 * other / total:.1f} %" if total else None,
        "largest difference": f"{max(each.largest for each in found):.1e}" if total else None,
        "frames at the end": span(min(more), max(more)) if total else None,
    }


def note(pair: Pair) -> str:
    """Return the line below the table: the calls of both paths and the cause of the difference."""
    calls = f" Calls: {pair.calls}." if pair.calls else ""
    return f"- {pair.toolkit}, from {pair.source}.{calls} Cause: {pair.cause}."


def span(fewest: int, most: int) -> str:
    """Name how many frames streaming has more than offline."""
    signed = [f"{each:+d}" if each else "0" for each in (fewest, most)]
    return signed[0] if fewest == most else " to ".join(signed)


def pairs_of(toolkit: str, settings: Settings) -> Iterator[Pair]:
    """Yield the pairs of one toolkit, or report on standard error that it is not installed."""
    if find_spec(toolkit) is None:
        print(f"{toolkit}: left out, it is not installed", file=sys.stderr)
    else:
        yield from importlib.import_module(f"pairs.of_{toolkit}").pairs(settings)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description="Compare offline with streaming recognition in the same context.",
        epilog="example:\n  python tools/benchmarks/consistency.py --only asrkit speechbrain -- "
        "data/an4/dev.jsonl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("manifest", help="recordings, a manifest of any kind")
    parser.add_argument(
        "--only", nargs="+", choices=TOOLKITS, default=TOOLKITS, metavar="TOOLKIT",
        help=f"toolkits among {', '.join(TOOLKITS)} (default all)",
    )  # fmt: skip
    parser.add_argument(
        "--every", type=positive, default=1, metavar="N", help="every N-th recording (default 1)"
    )
    parser.add_argument(
        "--layers", type=positive, default=4,
        help="layers of networks with random weights (default 4)",
    )  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true",
        help=f"{QUICK_RECORDINGS} recordings, {QUICK_LAYERS} layers",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    options = parser.parse_args(arguments)
    options.threads = [1]
    if options.quick:
        options.layers = QUICK_LAYERS
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    torch.set_num_threads(1)
    facts = environment(options)
    try:
        jobs = jobs_of([], options.manifest, [])[:: options.every]
        jobs = jobs[:QUICK_RECORDINGS] if options.quick else jobs
        recordings = [audio.load(job.path, job.start, job.duration) for job in jobs]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    rows: list[Row] = []
    notes: list[str] = []
    for toolkit in options.only:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(recordings, options.layers, Path(folder))
            for pair in pairs_of(toolkit, settings):
                rows.append(measure(pair, recordings))
                notes.append(note(pair))
                print(*rows[-1].values(), sep="  ", file=sys.stderr)
    if not rows:
        return 1
    report("Streaming beside offline, in the same context", facts, rows, options.json)
    print("", *dict.fromkeys(notes), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

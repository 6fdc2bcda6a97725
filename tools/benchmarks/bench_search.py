"""Measure the time that a search takes for a minute of posteriors, on one thread.

Posteriors are synthetic: tokens at random, two frames each, in noise, at a temperature that gives
the frames' highest posteriors the asked mean. Times are of the CPU, so that what else runs on the
machine counts as little as it can. flashlight-text, in C++ and not incremental here, takes part
where it is installed; it looks at the 10 likeliest tokens of a frame.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from benchmarks import Row, compared, environment, parser, report, round_robin, timed

from asrkit.lm import Weighted, WordFusion, read_arpa
from asrkit.lm.kneser_ney import arpa_lines, estimate
from asrkit.search import GreedySearch, PrefixBeamSearch, Search
from asrkit.text.graphemes import complete_units

FRAMES, VOCAB_SIZE, TOKENS, BEAM = 1500, 500, 285, 10
QUICK_FRAMES = 60
CHUNK_SIZE, FRAME_MS = 16, 40  # as a rule
PEAKS = {"peaky": 0.88, "soft": 0.54}  # mean of the frames' highest posteriors
MAIN = f"prefix beam {BEAM}"  # what the others are compared with


def posteriors(peak: float, num_frames: int) -> np.ndarray:
    """(E, V) log-probabilities whose highest of each frame have this mean."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(num_frames, VOCAB_SIZE, generator=draw)
    logits[:, 0] += 6.0
    count = TOKENS * num_frames // FRAMES
    frames = torch.linspace(2, num_frames - 4, count).long()
    frames += torch.randint(0, 2, (count,), generator=draw)
    tokens = torch.randint(1, VOCAB_SIZE, (count,), generator=draw)
    logits[frames, tokens] += 12.0
    logits[frames + 1, tokens] += 8.0
    low, high = 0.0, 10.0
    for _ in range(40):
        scale = (low + high) / 2
        above = float((scale * logits).softmax(1).amax(1).mean()) > peak
        low, high = (low, scale) if above else (scale, high)
    return (scale * logits).log_softmax(1).numpy()


def passes(log_probs: np.ndarray) -> dict[str, Callable[[], list[float]]]:
    """Return the searches to measure, by name."""
    beam = PrefixBeamSearch(BEAM)
    everything = PrefixBeamSearch(BEAM, min_token_prob=0.0, skip_blank_prob=1.0)
    found: dict[str, Callable[[], object]] = {
        "greedy": partial(searched, GreedySearch(), [log_probs]),
        MAIN: partial(searched, beam, [log_probs]),
        f"{MAIN}, in chunks of {FRAME_MS * CHUNK_SIZE} ms": partial(
            searched, beam, np.split(log_probs, range(CHUNK_SIZE, len(log_probs), CHUNK_SIZE))
        ),
        f"{MAIN}, all tokens": partial(searched, everything, [log_probs]),
        f"{MAIN}, with a 3-gram of words": partial(
            searched, PrefixBeamSearch(BEAM, fusion=word_fusion()), [log_probs]
        ),
        "prefix beam 50": partial(searched, PrefixBeamSearch(50), [log_probs]),
    }
    flashlight = flashlight_decode(log_probs)
    if flashlight is not None:
        found[f"flashlight-text, beam {BEAM}"] = flashlight
    return {name: partial(timed, run, time.process_time) for name, run in found.items()}


@cache
def word_fusion() -> WordFusion:
    """A model of random words, of which every third piece begins one."""
    pieces = [f"{' ' * (token % 3 == 0)}{token:x}." for token in range(VOCAB_SIZE)]
    draw = random.Random(0)
    texts = ["".join(draw.choices(pieces, k=30)).split() for _ in range(2000)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lm.arpa"
        path.write_text("\n".join(arpa_lines(estimate(texts, 3))))
        return WordFusion(Weighted(read_arpa(path), 0.5, 0.5), pieces, complete_units)


def searched(search: Search, parts: list[np.ndarray]) -> None:
    """A partial result after each part."""
    state = search.start()
    for part in parts:
        state = search.step(state, part)
        search.best(state)


def flashlight_decode(log_probs: np.ndarray) -> Callable[[], object] | None:
    """A lexicon-free decoder that sums paths, where flashlight-text is installed."""
    try:
        from flashlight.lib.text import decoder
    except ImportError:
        return None
    options = decoder.LexiconFreeDecoderOptions(
        BEAM, 10, 50.0, 0.0, 0.0, True, decoder.CriterionType.CTC
    )
    silence = VOCAB_SIZE - 1  # it must have one; here it costs nothing
    free = decoder.LexiconFreeDecoder(options, decoder.ZeroLM(), silence, 0, [])
    return lambda: free.decode(log_probs.ctypes.data, *log_probs.shape)


def measure(kind: str, num_frames: int, options: argparse.Namespace) -> list[Row]:
    """A row of the table for each contender."""
    measured = passes(posteriors(PEAKS[kind], num_frames))
    results = round_robin(measured, options.rounds, True, options.limit, kind)
    return compared(
        results, MAIN,
        lambda taken: {
            "median, ms": 1000 * statistics.median(taken), "min, ms": 1000 * min(taken),
        },
        posteriors=kind,
    )  # fmt: skip


def main() -> None:
    arguments = parser(
        f"CPU time of a search for {FRAMES} frames (60 s), {VOCAB_SIZE} tokens, one thread.",
        "python tools/benchmarks/bench_search.py --rounds 20 --json exp/bench_search.json",
    )
    arguments.set_defaults(threads=[1])
    options = arguments.parse_args()
    if options.threads != [1]:
        arguments.error("--threads must be 1: the searches use no more")
    torch.set_num_threads(1)
    facts = environment(options)
    num_frames = QUICK_FRAMES if options.quick else FRAMES
    rows = [row for kind in PEAKS for row in measure(kind, num_frames, options)]
    report(f"Search: {num_frames} frames, {VOCAB_SIZE} tokens", facts, rows, options.json)


if __name__ == "__main__":
    main()

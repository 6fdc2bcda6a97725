"""Time and memory of a transducer's loss, forward and backward, whole and pruned.

    python tools/benchmarks/bench_transducer_loss.py

A row a size, on one thread of a CPU. Each case runs in a process of its own: its memory is the most
that the process took beyond what it had before the first loss.
"""

import argparse
import multiprocessing
import resource
import time

import torch

from asrkit.cli.table import head, row
from asrkit.model.transducer import TransducerHead

SIZES = [(8, 125, 30, 65), (8, 125, 40, 500), (4, 125, 60, 1025), (4, 250, 120, 1025)]
DIM, JOINT = 256, 256


def measured(size: tuple[int, ...], prune_range: int | None, rounds: int) -> tuple[float, float]:
    """Return seconds, the median of the rounds, and MB.

    Args:
        size: B, T, U, V.
        prune_range: places of each frame; None for all.
    """
    batch, frames, count, vocab_size = size
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transducer = TransducerHead(
        DIM, vocab_size, predictor_dim=DIM, joint_dim=JOINT, ctc_weight=0.0, prune_range=prune_range
    )
    encoded = torch.randn(batch, frames, DIM, requires_grad=True)
    tokens = torch.randint(1, vocab_size, (batch, count))
    lengths, token_lengths = torch.full((batch,), frames), torch.full((batch,), count)
    before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(rounds):
        started = time.perf_counter()
        transducer.loss(encoded, lengths, tokens, token_lengths).sum().backward()
        times.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return sorted(times)[rounds // 2], (peak - before) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--range", type=int, default=5, help="places of a frame; default 5")
    parser.add_argument("--rounds", type=int, default=5, help="losses of a case; default 5")
    parser.add_argument("--quick", action="store_true", help="the first size, one round")
    options = parser.parse_args()
    rounds, sizes = (1, SIZES[:1]) if options.quick else (options.rounds, SIZES)
    print(head(("(B, T, U, V)", "whole: s, MB", f"{options.range} places: s, MB")), flush=True)
    for size in sizes:
        cells = []
        for prune_range in (None, options.range):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, memory = pool.apply(measured, (size, prune_range, rounds))
            cells.append(f"{seconds:.2f}, {memory:.0f}")
        print(row((str(size), *cells)), flush=True)


if __name__ == "__main__":
    main()

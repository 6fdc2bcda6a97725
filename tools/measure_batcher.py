"""How long callers of a Batcher wait for live results and final text, in one pass and in two.

    python tools/measure_batcher.py --model small-en-alnum --streams 50 data/an4/dev.jsonl

Callers speak at the same time, in packets of 100 ms, for some seconds of the corpus each. Time is
simulated: packets come at the speed of speech, and work takes the CPU time that it took, so that
other programs on the machine change little.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from asrkit import Batcher, Endpointer
from asrkit.audio import SAMPLE_RATE
from asrkit.evaluation.testset import read_scored
from asrkit.model_file import load_model
from asrkit.runtime import BatchedSession, recognizer_of

PACKET_S = 0.1


class Callers:
    """Callers of one batcher, in simulated time.

    Args:
        batcher: which serves them.
        recordings: samples of each caller, who begin within the first second one after another.
    """

    def __init__(self, batcher: Batcher, recordings: list[np.ndarray]) -> None:
        self.batcher, self.clock = batcher, 0.0
        self.sessions = [batcher.start() for _ in recordings]
        size = int(PACKET_S * SAMPLE_RATE)
        self.arrivals = sorted(
            (i / len(recordings) + (start + size) / SAMPLE_RATE, i, start)
            for i, samples in enumerate(recordings)
            for start in range(0, len(samples), size)
        )
        self.recordings, self.size = recordings, size
        self.due: dict[int, float] = {}  # when the packet that completed a chunk came
        self.ended: dict[int, list[float]] = {}  # when the segments that wait had ended
        self.live_waits: list[float] = []
        self.final_waits: list[float] = []

    def run(self) -> None:
        """From the first packet to the last result."""
        arrivals = iter(self.arrivals)
        following = next(arrivals, None)
        while True:
            while following is not None and following[0] <= self.clock:
                self.took(lambda at=following: self.accept(*at))
                following = next(arrivals, None)
            before = [(s.result, self.waiting(s)) for s in self.sessions]
            if self.took(self.batcher.step):
                self.note(before)
            elif following is None:
                return
            else:
                self.clock = following[0]

    def took(self, work: Callable[[], Any]) -> Any:
        """What the work returns; the clock goes on by its CPU time."""
        start = time.process_time()
        done = work()
        self.clock += time.process_time() - start
        return done

    def accept(self, arrival: float, caller: int, start: int) -> None:
        session = self.sessions[caller]
        session.accept(self.recordings[caller][start : start + self.size])
        if session.seconds_waiting:
            self.due.setdefault(caller, arrival)

    def waiting(self, session: BatchedSession) -> int:
        """Segments that wait for the second pass."""
        return len(session.stream.ended_feats)

    def note(self, before: list[tuple[Any, int]]) -> None:
        """Who has something new after a step."""
        for i, (session, (result, waited)) in enumerate(zip(self.sessions, before, strict=True)):
            if session.result is result:
                continue
            waits = self.waiting(session)
            if waits < waited:  # the second pass
                self.final_waits.append(self.clock - self.ended[i].pop(0))
                continue
            self.live_waits.append(self.clock - self.due.pop(i))
            self.ended.setdefault(i, []).extend([self.clock] * (waits - waited))
            if session.seconds_waiting:
                self.due[i] = self.clock


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--streams", type=int, default=50)
    arguments.add_argument("--seconds", type=float, default=20.0, help="of each caller")
    arguments.add_argument("--chunk-ms", type=int, default=320)
    arguments.add_argument("--endpoint-ms", type=int, default=600)
    arguments.add_argument("--backend", default="eager")
    arguments.add_argument("manifest")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    file = load_model(options.model)
    corpus = np.concatenate([each.load() for each in read_scored(options.manifest, [])])
    length = int(options.seconds * SAMPLE_RATE)
    starts = np.random.default_rng(0).integers(len(corpus) - length, size=options.streams)
    recordings = [corpus[start : start + length] for start in starts]
    titles = ["second pass", "live p50", "p99", "longest", "segments", "final p50", "p99", "CPU"]
    print(f"| {' | '.join(titles)} |\n" + "|---" * len(titles) + "|")
    for second in (None, "full", None, "full"):
        rate = file.model.encoder.rate
        context = rate.context(file.config.context.live, options.chunk_ms // rate.frame_ms)
        recognizer = recognizer_of(
            file, context, backend=options.backend,
            endpointer=Endpointer(options.endpoint_ms), second_pass=second,
        )  # fmt: skip
        callers = Callers(Batcher(recognizer, options.streams), recordings)
        began = time.process_time()
        callers.run()
        busy = (time.process_time() - began) / (options.seconds + 1)
        live = np.percentile(callers.live_waits, [50, 99, 100])
        cells = [second or "none", *(f"{1000 * each:.0f} ms" for each in live)]
        finals = callers.final_waits
        cells += [str(len(finals) or "–")]
        cells += [f"{1000 * np.percentile(finals, q):.0f} ms" if finals else "–" for q in (50, 99)]
        print("| " + " | ".join([*cells, f"{busy:.2f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()

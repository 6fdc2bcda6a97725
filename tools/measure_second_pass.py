"""What a second pass gives and costs: error rates, words that change, delays, CPU time.

    python tools/measure_second_pass.py --model small-en-alnum data/an4/dev.jsonl

One row for each corpus, chunk and pause: WER in full context of whole recordings, in one pass and
in two; the words of the first pass that the second one changes; the time from the end of the last
word to the final text of segments that end with a pause, computing included; and the CPU time of
the second pass as a share of the first one's.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from asrkit import Endpointer, Recognizer
from asrkit.audio import SAMPLE_RATE
from asrkit.build import build_normalizer
from asrkit.config import parse_language_model, parse_search
from asrkit.data.manifest import LeftOut
from asrkit.evaluation import ReferenceRecording
from asrkit.evaluation.testset import read_scored, utterances
from asrkit.evaluation.wer import bootstrap, interval_shown, wer
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of

PACKET = SAMPLE_RATE // 10  # 100 ms, as `asrkit stream` takes them


class Streamed(NamedTuple):
    """A recording in packets."""

    text: str
    delays: list[float]  # s from the last word's end to the final text, at a pause
    cpu: float  # seconds


def stream(recognizer: Recognizer, samples: np.ndarray) -> Streamed:
    """As a live source: the final text, and when it is there if packets come at speech's speed."""
    session = recognizer.start()
    delays, count = list[float](), 0
    began = time.process_time()
    for start in range(0, len(samples), PACKET):
        before = time.perf_counter()
        result = session.accept(samples[start : start + PACKET])
        there = (start + PACKET) / SAMPLE_RATE + time.perf_counter() - before
        delays += [there - segment.words[-1].end for segment in result.segments[count:]]
        count = len(result.segments)
    text = session.finish().text
    return Streamed(text, delays, time.process_time() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--chunk-ms", default="640,320,160")
    arguments.add_argument("--endpoint-ms", default="600,1000")
    arguments.add_argument("--second-pass", default="full", help="full, or a chunk in ms")
    arguments.add_argument("--backend", default="eager")
    arguments.add_argument("--lm", help="n-gram of a beam in the second pass, as a third column")
    arguments.add_argument("--lm-weight", type=float, default=0.5)
    arguments.add_argument("--word-bonus", type=float, default=0.5)
    arguments.add_argument("--join", type=int, default=1, help="recordings joined to a longer one")
    arguments.add_argument("--most", type=int, help="recordings of each manifest at most")
    arguments.add_argument("manifests", nargs="+")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    print(
        "| corpus | chunk | pause | full | one pass | two passes | with LM | words changed "
        "| delay p50, p95 | segments | CPU of 2nd |\n" + "|---" * 11 + "|"
    )
    for manifest in options.manifests:
        measure(options, manifest)


def measure(options: argparse.Namespace, manifest: str) -> None:
    """The rows of a corpus."""
    file = load_model(options.model)
    normalize = build_normalizer(file.config.text)
    left_out: list[LeftOut] = []
    found = list(utterances(read_scored(manifest, left_out), normalize, left_out))[: options.most]
    for each in left_out:
        print(each, file=sys.stderr)
    found = [joined(found[i : i + options.join]) for i in range(0, len(found), options.join)]
    frame_rate, live = file.model.encoder.rate, file.config.context.live
    frame_ms = frame_rate.frame_ms

    def recognizer(chunk: int | str, **more: object) -> Recognizer:
        context = frame_rate.context(live, chunk)
        return recognizer_of(file, context, backend=options.backend, **more)  # type: ignore[arg-type]

    second = "full" if options.second_pass == "full" else int(options.second_pass) // frame_ms
    whole = recognizer("full")
    full = rate(found, lambda samples: whole.transcribe(samples).text)
    for chunk_ms in map(int, options.chunk_ms.split(",")):
        for pause in map(int, options.endpoint_ms.split(",")):
            chunk, ends = chunk_ms // frame_ms, Endpointer(pause)
            both = [recognizer(chunk, endpointer=ends),
                    recognizer(chunk, endpointer=ends, second_pass=second)]  # fmt: skip
            one, two = [], []
            for utterance in found:  # in turns, so that drift changes both
                one.append(stream(both[0], utterance.samples))
                two.append(stream(both[1], utterance.samples))
            with_lm = "–"
            if options.lm:
                model = parse_language_model(
                    {
                        "path": options.lm,
                        "weight": options.lm_weight,
                        "word_bonus": options.word_bonus,
                    }
                )
                third = recognizer(
                    chunk, endpointer=ends, second_pass=second, lm=model,
                    second_search=parse_search("prefix_beam"),
                )  # fmt: skip
                with_lm = rate(found, lambda samples, third=third: third.transcribe(samples).text)  # type: ignore[misc]
            delays = [1000 * delay for each in two for delay in each.delays]
            late = "–"
            if delays:
                late = f"{np.percentile(delays, 50):.0f}, {np.percentile(delays, 95):.0f} ms"
            changed = wer([each.text for each in two], [each.text for each in one])
            share = statistics.median(b.cpu / a.cpu - 1 for a, b in zip(one, two, strict=True))
            total = sum(each.cpu for each in two) / sum(each.cpu for each in one) - 1
            cells = [
                Path(manifest).parent.name, f"{chunk_ms} ms", f"{pause} ms", full,
                percent(found, [each.text for each in one]),
                percent(found, [each.text for each in two]), with_lm,
                changed.percent, late, str(len(delays)),
                f"{total:.2f} (median {share:.2f})",
            ]  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)


def joined(parts: Sequence[ReferenceRecording]) -> ReferenceRecording:
    """Several recordings as one."""
    samples = np.concatenate([part.samples for part in parts])
    return ReferenceRecording(parts[0].id, samples, " ".join(part.reference for part in parts))


def rate(found: Sequence[ReferenceRecording], text: Callable[[np.ndarray], str]) -> str:
    """WER of all recordings."""
    return percent(found, [text(utterance.samples) for utterance in found])


def percent(found: Sequence[ReferenceRecording], texts: Sequence[str]) -> str:
    """WER with its interval of 95 %."""
    each = [wer([known.reference], [text]) for known, text in zip(found, texts, strict=True)]
    total = wer([known.reference for known in found], texts)
    return f"{total.percent} ({interval_shown(bootstrap(each))})"


if __name__ == "__main__":
    main()

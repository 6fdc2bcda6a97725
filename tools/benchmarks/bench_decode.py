"""Seconds of audio that are decoded in a second: asrkit in batches and alone, beside sherpa-onnx.

    asrkit export --model MODEL --format onnx --output m.onnx         # and onnx-int8, sherpa-onnx
    python tools/benchmarks/bench_decode.py --model MODEL --manifest dev.jsonl \\
        --onnx m.onnx --sherpa FOLDER

All contenders recognise the same samples from memory, in chunks of the model, with greedy search.
sherpa-onnx takes streaming wenet-ctc models one recording at a time.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from benchmarks import compared, environment, parser, report, round_robin, timed

from asrkit import audio
from asrkit.backends.export_metadata import Exported
from asrkit.data.inputs import jobs_of
from asrkit.export.sherpa_folder import text_of
from asrkit.export.sherpa_graphs import tail_samples
from asrkit.export.sherpa_layouts import WENET_CTC
from asrkit.model_file import load_model
from asrkit.runtime import recognizer_of
from asrkit.transcription.batches import batches

BATCHED = "asrkit"  # what the others are compared with
BATCH_SECONDS = 120.0  # as `asrkit decode` has


def main() -> None:
    arguments = parser(
        "Audio seconds a second of decoding, beside sherpa-onnx.",
        "python tools/benchmarks/bench_decode.py --model small-en-alnum --manifest dev.jsonl",
    )
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--manifest", required=True)
    arguments.add_argument("--onnx", type=Path, nargs="+", default=[], metavar="FILE")
    arguments.add_argument("--sherpa", type=Path, nargs="+", default=[], metavar="FOLDER")
    options = arguments.parse_args()
    facts = environment(options)
    torch.set_num_threads(options.threads[0])
    file = load_model(options.model)
    jobs = jobs_of([], options.manifest, [])[: 3 if options.quick else None]
    samples = [job.load() for job in jobs]
    seconds = sum(map(len, samples)) / audio.SAMPLE_RATE
    recognizers = {BATCHED: recognizer_of(file)}
    recognizers |= {
        f"asrkit, {path.name}": recognizer_of(file, backend=path) for path in options.onnx
    }
    passes: dict[str, Callable[[], object]] = {}
    for name, recognizer in recognizers.items():
        for label, batch_seconds in (name, BATCH_SECONDS), (f"{name}, one at a time", 0.1):
            passes[label] = lambda recognizer=recognizer, batch_seconds=batch_seconds: list(
                batches(recognizer, [*enumerate(samples)], batch_seconds)
            )
    spec = recognizers[BATCHED].backend.spec
    for folder in options.sherpa:
        exported = Exported("ctc", spec.context, spec.rate.frame_ms)
        theirs = WENET_CTC.wheel([folder / "model.onnx"], folder / "tokens.txt", file, exported)
        tail = np.zeros(tail_samples(file, exported), np.float32)
        passes[f"sherpa-onnx, {folder.name}"] = lambda theirs=theirs, tail=tail: [
            text_of(theirs, np.concatenate([each, tail])) for each in samples
        ]
    results = round_robin(
        {name: partial(timed, run) for name, run in passes.items()}, options.rounds, True,
        options.limit, "decode",
    )  # fmt: skip
    rows = compared(
        results, BATCHED,
        lambda taken: {
            "RTFx": median(seconds / each for each in taken),
            "lowest": seconds / max(taken), "highest": seconds / min(taken),
        },
    )  # fmt: skip
    report(f"Decoding {len(jobs)} recordings, {seconds:.0f} s", facts, rows, options.json)


if __name__ == "__main__":
    main()

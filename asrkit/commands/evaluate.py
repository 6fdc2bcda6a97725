"""Error rates and delays at several chunk sizes: asrkit evaluate --model M dev.jsonl"""

from __future__ import annotations

import argparse
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from asrkit.cli.options import add_model, add_recognizer
from asrkit.cli.parser import Parser, complain
from asrkit.cli.progress import bar
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.data.manifest import LeftOut
    from asrkit.evaluation import Outcome, Score
    from asrkit.model_contents import RunnableModel
    from asrkit.runtime import Recognizer


CHUNKS = "full,640,320,160"


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit evaluate", __doc__,
        "asrkit evaluate --model exp/conformer/model.safetensors data/digits/test.jsonl\n"
        "  asrkit evaluate --model MODEL --chunk-ms full,640 --format json dev.jsonl\n"
        "  asrkit evaluate --model MODEL --chunk-ms 640 --backend onnx-int8 dev.jsonl\n"
        "  asrkit evaluate --model MODEL --endpoint-ms 600 --second-pass full dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_recognizer(arguments, chunks=f"{CHUNKS}; without torch full and the model's own")
    arguments.add_argument(
        "--written", choices=["english", "basic"],
        help="also score the texts normalised by these rules of whisper-normalizer (default: for "
        "models with text.written, by their language)",
    )  # fmt: skip
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    arguments.add_argument("manifest", help="recordings with their texts")
    return arguments.run(evaluate, argv)


def evaluate(options: argparse.Namespace) -> int:
    from asrkit.cli.recognizer import name_left_out
    from asrkit.evaluation import scores
    from asrkit.evaluation.written import normalizer_of, rules_of, written_table
    from asrkit.runtime.load import load_runnable

    file = load_runnable(options.model)
    options.chunk_ms = options.chunk_ms or default_chunks(file)
    recognizers, aligner = recognizers_of(options, file)
    rules = rules_of(file, options.written)
    written = normalizer_of(rules)
    left_out: list[LeftOut] = []
    outcomes = recognized(options, options.manifest, recognizers, left_out, aligner)
    status = name_left_out("asrkit evaluate", left_out)
    found = scores(outcomes, written)
    if options.format == "text":
        tables = [rates_table(found)]
        if rules:
            tables.append(written_table({n: each.written for n, each in found.items()}, rules))
        print("\n\n".join(tables))
    else:
        print(json.dumps(as_json(file, found), indent=1))
    return status


def default_chunks(file: RunnableModel) -> str:
    """Return the default of --chunk-ms; without torch, the contexts that exports usually have."""
    own = "" if file.live.full else f",{file.live.chunk_size * file.rate.frame_ms}"
    return CHUNKS if find_spec("torch") else f"full{own}"


def recognized(
    options: argparse.Namespace,
    manifest: str,
    recognizers: dict[str, Recognizer],
    left_out: list[LeftOut],
    aligner: Recognizer | None = None,
) -> list[dict[str, Outcome]]:
    """Return the outcomes of all utterances of a manifest; append what is not to `left_out`."""
    from asrkit.evaluation import recognize
    from asrkit.evaluation.testset import read_batches

    normalize = next(iter(recognizers.values())).normalizer
    batches = read_batches(manifest, normalize, options.batch_seconds, left_out)
    return list(bar(recognize(batches, recognizers, aligner), "recognising", "utterance"))


def recognizers_of(
    options: argparse.Namespace, file: RunnableModel
) -> tuple[dict[str, Recognizer], Recognizer | None]:
    """Return a recogniser for each chunk of --chunk-ms, by name, and one to align references."""
    from asrkit.cli import recognizer as of
    from asrkit.context import FULL
    from asrkit.runtime import recognizer_of
    from asrkit.runtime.load import searches_of

    common = {
        "device": options.device, "postprocess": of.postprocess_of(options),
        "threads": getattr(options, "model_threads", None),
    }  # fmt: skip
    endpointer, hotwords = of.endpointer_of(options), of.hotwords_of(options)
    contexts = []
    chunks = options.chunk_ms.split(",")
    for chunk_ms in chunks:
        asked = argparse.Namespace(**vars(options) | {"chunk_ms": chunk_ms})
        if chunk_ms == "full" and len(chunks) > 1:  # these options are for the other chunks
            asked.left_ms = asked.right_ms = None
            asked.second_pass = "off"
        contexts.append((of.context_of(asked, file), of.second_pass_of(asked, file)))
    last_pass = next((second for _, second in contexts if second is not None), None)
    first, last = searches_of(
        of.lm_of(options), of.search_of(options, file),
        of.second_search_of(options, last_pass), file,
    )  # fmt: skip
    recognizers = {}
    for context, second in contexts:
        recognizer = recognizer_of(
            file, context, endpointer=endpointer, backend=options.backend, second_pass=second,
            **common,
        ).with_search(first)  # fmt: skip
        if second is not None:
            recognizer = recognizer.with_final_search(last or first)
        recognizers[recognizer.context] = recognizer.with_hotwords(hotwords)
    try:
        return recognizers, of.aligner_of(options, file, FULL, postprocess=common["postprocess"])
    except UserError as error:  # it can run neither in torch nor as an export
        complain("asrkit evaluate", f"no delays: {error}")
        return recognizers, None


def as_json(file: RunnableModel, found: dict[str, Score]) -> dict[str, Any]:
    """Return the scores as JSON, with the errors of every utterance."""
    contexts: dict[str, dict[str, Any]] = {}
    for name, score in found.items():
        rates = {"words": score.words, "characters": score.characters}
        written = score.written and score.written.as_json()
        contexts[name] = {
            **{
                unit: {"name": rate.name, **rate._asdict(), "rate": rate.rate}
                for unit, rate in rates.items()
            },
            "interval": score.interval,
            "delay_ms": score.delay and score.delay._asdict(),
            "calibration_error": score.calibration_error,
            "errors": {name: rate.errors for name, rate in score.each.items()},
            **({"written": written} if written else {}),
        }
    return {"training": file.training, "contexts": contexts}


def rates_table(found: dict[str, Score]) -> str:
    from asrkit.evaluation.tables import table
    from asrkit.evaluation.wer import interval_shown, total

    whole = total(score.words for score in found.values())
    titles = [whole.name, "95 %", "errors", f"{whole.unit}s"]
    titles += ["CER"] * (whole.name != "CER")
    rows = []
    for name, score in found.items():
        words = score.words
        cells = [words.percent, interval_shown(score.interval), str(words.errors)]
        cells += [str(words.reference_units)]
        cells += [score.characters.percent] * (whole.name != "CER")
        cells += ["–" if ms is None else f"{ms:.0f}" for ms in score.delay or [None] * 4]
        rows.append([name, *cells, f"{100 * score.calibration_error:.1f} %"])
    return table(("chunk", *titles, "delay ms", "median", "90 %", "last", "ECE"), rows)

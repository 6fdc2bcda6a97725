"""Error rates and delays at several chunk sizes: python -m asrkit.evaluate --model M dev.jsonl"""

from asrkit.cli.options import (
    add_backend,
    add_batch,
    add_model,
    add_right_context,
    add_search,
    add_second_pass,
    add_segments,
)
from asrkit.cli.parser import Parser, Target

CHUNKS = "full,640,320,160"


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit evaluate", __doc__,
        "python -m asrkit.evaluate --model exp/conformer/model.safetensors data/digits/test.jsonl\n"
        "  python -m asrkit.evaluate --model MODEL --chunk-ms full,640 --format json dev.jsonl\n"
        "  python -m asrkit.evaluate --model MODEL --chunk-ms 640 --backend onnx-int8 dev.jsonl\n"
        "  asrkit evaluate --model MODEL --chunk-ms full,640,320 --by-place dev.jsonl\n"
        "  asrkit evaluate --model MODEL --endpoint-ms 600 --second-pass full dev.jsonl\n"
        "  asrkit evaluate --model MODEL --chunk-ms 320 --endpoint-ms 600 --turns dev.jsonl",
    )  # fmt: skip
    add_model(arguments)
    add_backend(arguments)
    group = arguments.group("context")
    group.add_argument(
        "--chunk-ms", default=CHUNKS, metavar="MS,…",
        help=f"chunks in ms, or full, separated by commas (default {CHUNKS})",
    )  # fmt: skip
    group.add_argument("--left-ms", metavar="MS", help="left context in ms (default: the model's)")
    add_right_context(arguments)
    add_search(arguments)
    add_segments(arguments)
    add_second_pass(arguments)
    arguments.add_argument(
        "--by-place", action="store_true",
        help="also show errors by the place of words in their chunk and utterance",
    )  # fmt: skip
    arguments.add_argument(
        "--turns", action="store_true",
        help="also show the time from the end of speech to the final text, and turns cut too early",
    )  # fmt: skip
    arguments.add_argument(
        "--written", choices=["english", "basic"],
        help="also score the texts normalised by these rules of whisper-normalizer, their marks and"
        " their capitals (default: for models with text.written, by their language)",
    )  # fmt: skip
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    arguments.add_argument("--output", type=Target, help="file to write instead of standard output")
    add_batch(arguments)
    arguments.add_argument("manifest", help="recordings with their texts")
    return arguments.run("evaluate:evaluate", argv)


if __name__ == "__main__":
    raise SystemExit(main())

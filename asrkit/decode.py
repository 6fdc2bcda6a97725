"""Decode files or a manifest: python -m asrkit.decode --model MODEL a.wav b.mp3 …"""

import sys

from asrkit.cli.choices import ENGINES, LEASE_SECONDS
from asrkit.cli.options import add_batch, add_channel, add_model, add_output, add_recognizer
from asrkit.cli.parser import Parser, Target, real, whole


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit decode", __doc__,
        "asrkit decode --model exp/conformer/model.safetensors a.wav b.mp3\n"
        "  asrkit decode --model MODEL --manifest test.jsonl --chunk-ms 640\n"
        "  asrkit decode --manifest new.jsonl --confident 0.9 --output pseudo.jsonl",
        "--model MODEL [options] FILE … | --manifest MANIFEST",
    )  # fmt: skip
    add_model(arguments)
    add_recognizer(arguments)
    arguments.add_argument("files", nargs="*", metavar="FILE", help="an audio file, or a folder")
    arguments.add_argument(
        "--manifest", help="manifest, or lhotse's cuts; with texts, WER and CER are printed too"
    )
    add_channel(arguments, split=True)
    add_output(arguments, "txt")
    arguments.group("output").add_argument(
        "--nbest", type=whole(0, 100_000), metavar="N", default=0,
        help="the N likeliest texts with their scores, in jsonl",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--confident", type=real(0.0, 1.0), metavar="P",
        help="write a manifest for training, of the texts whose words have a mean confidence of P",
    )  # fmt: skip
    arguments.group("output").add_argument(
        "--output", type=Target, metavar="FILE", help="the manifest of --confident"
    )
    add_batch(arguments)
    add_corpus(arguments)
    arguments.set_defaults(argv=tuple(sys.argv[1:] if argv is None else argv))  # for workers
    return arguments.run("decode:decode", argv)


def add_corpus(arguments: Parser) -> None:
    """Add the options of a corpus that is decoded in shards."""
    group = arguments.group("a corpus")
    group.add_argument(
        "--shards", type=whole(1, 1_000_000), metavar="N",
        help="decode a manifest in N parts, and join them to one file in --output-dir; the same"
        " command shares the work with other running ones, and resumes stopped ones",
    )  # fmt: skip
    group.add_argument(
        "--workers", type=whole(0, 1024), metavar="W", default=1,
        help="processes to start here; 0: only join parts (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--engine", choices=ENGINES, default="processes",
        help="starter of the workers (default processes)",
    )  # fmt: skip
    group.add_argument(
        "--lease-seconds", type=real(0.1, 86_400.0), metavar="SECONDS",
        help="time after which another process takes the part of one that has ended (default "
        f"{LEASE_SECONDS:g}; equal for all)",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

"""Import, check, normalize, segment or pack a corpus: python -m asrkit.data check train.jsonl"""

import sys

from asrkit.cli.choices import CORPORA
from asrkit.cli.options import MODEL, add_channel, add_context, add_model
from asrkit.cli.parser import Parser, Target, complain, real, whole
from asrkit.registry import refusal


def main(argv: list[str] | None = None) -> int:
    action, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if action in ACTIONS:
        return ACTIONS[action](rest)
    if action in ("-h", "--help"):
        print(USAGE)
        return 0
    complain("asrkit data", f"the first argument {refusal(action, ACTIONS)}; --help says more")
    return 2


def import_main(argv: list[str]) -> int:
    """Import a corpus: `asrkit data import`."""
    arguments = Parser(
        "asrkit data import", PURPOSES["import"],
        "python -m asrkit.data import folder recordings --output corpus\n"
        "  python -m asrkit.data import table list.csv --columns audio=f,text=t --output corpus\n\n"
        "kinds:\n" + "\n".join(f"  {name:12}{CORPORA[name]}" for name in CORPORA) + "\n\n"
        "exit status: 0 imported, 1 imported but something was left out, 2 nothing was imported",
    )  # fmt: skip
    arguments.add_argument(
        "kind", choices=["auto", *CORPORA], metavar="KIND",
        help=f"kind of the corpus: auto (by its content), {', '.join(CORPORA)}",
    )  # fmt: skip
    arguments.add_argument(
        "sources", metavar="SOURCE", nargs="+", help="folders or files of the corpus"
    )
    arguments.add_argument(
        "--output", required=True, metavar="DIR", help="new folder for train.jsonl and dev.jsonl"
    )
    arguments.add_argument(
        "--dev", type=real(0.0, 0.5), metavar="SHARE",
        help="share of the hours for dev, in whole speakers; 0 for train alone (default 0.1)",
    )  # fmt: skip
    arguments.add_argument(
        "--columns", metavar="KEY=COLUMN,…",
        help="columns of a table, by name or from 1: audio, text, speaker, id, start, duration, "
        "end, channel (default: by their usual names)",
    )  # fmt: skip
    arguments.add_argument(
        "--channels", metavar="SPEAKER=CHANNEL,…",
        help="channel of each speaker in files with several, from 0: agent=0,customer=1 (default: "
        "the channel that the corpus states, or the mean of all)",
    )  # fmt: skip
    arguments.add_argument(
        "--audio-root", metavar="FOLDER",
        help="folder in which relative paths of audio begin (default: that of SOURCE)",
    )  # fmt: skip
    arguments.add_argument(
        "--speaker-pattern",
        metavar="REGEX",
        help="regular expression that finds the speaker in the path of a recording; its first "
        "group, if any (default: the speaker that the corpus states)",
    )
    arguments.add_argument(
        "--jobs", type=whole(1, 1024), metavar="N",
        help="threads that read headers (default: one for each core)",
    )  # fmt: skip
    arguments.add_argument(
        "--copy", action="store_true",
        help="copy the audio to DIR/audio (default: it stays where it is)",
    )  # fmt: skip
    arguments.add_argument(
        "--force", action="store_true", help="write into a folder that is not empty"
    )
    arguments.add_argument(
        "--normalize",
        action="store_true",
        help="normalize the texts and report each kind of change",
    )
    add_normalization(arguments)
    return arguments.run("data_import:import_corpus", argv)


def normalize_main(argv: list[str]) -> int:
    """Normalize the texts of a manifest: `asrkit data normalize`."""
    arguments = Parser(
        "asrkit data normalize", PURPOSES["normalize"],
        "python -m asrkit.data normalize train.jsonl --output new.jsonl --numbers en\n\n"
        "exit status: 0 normalized, 1 normalized but texts became empty, 2 nothing was written",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a JSONL manifest")
    arguments.add_argument("--output", required=True, type=Target, metavar="FILE", help="manifest")
    add_normalization(arguments)
    return arguments.run("data_normalize:normalize", argv)


def add_normalization(arguments: Parser) -> None:
    """Add the choices of a normalisation; the fields of `text.normalization.Normalization`."""
    group = arguments.group("texts")
    group.add_argument("--case", choices=["keep", "lower", "upper"], help="case (default keep)")
    group.add_argument(
        "--punctuation", choices=["keep", "remove"],
        help="punctuation, without signs inside a word (default keep)",
    )  # fmt: skip
    group.add_argument(
        "--brackets", choices=["remove", "words", "keep"],
        help="brackets and marked words such as [laughs]: remove them, keep their words, or keep "
        "both (default remove)",
    )  # fmt: skip
    group.add_argument(
        "--numbers", metavar="LANGUAGE",
        help="language in which digits become words, such as en (default: digits stay)",
    )  # fmt: skip
    group.add_argument(
        "--letters", choices=["keep", "usual"],
        help="letters that look alike, such as two forms of the Arabic yeh: keep them, or write "
        "the most frequent one and remove tatweels (default keep)",
    )  # fmt: skip


def segment_main(argv: list[str]) -> int:
    """Divide a long recording: `asrkit data segment`."""
    arguments = Parser(
        "asrkit data segment", PURPOSES["segment"],
        "python -m asrkit.data segment book.mp3 book.txt --model MODEL --output book.jsonl\n\n"
        "exit status: 0 all of the text was found, 1 some was left out, 2 nothing was written",
    )  # fmt: skip
    add_model(arguments)
    add_context(arguments)
    arguments.add_argument("file", help="an audio file")
    arguments.add_argument("text", metavar="TEXT", help="its text: a text file, .srt or .vtt")
    arguments.add_argument("--output", required=True, type=Target, metavar="FILE", help="manifest")
    arguments.add_argument("--speaker", help="name of the speaker, for the manifest")
    group = arguments.group("pieces")
    group.add_argument(
        "--min-score", type=real(0.0, 1.0), default=0.1, metavar="P",
        help="lowest score, of a piece's worst word; other pieces are left out (default 0.1)",
    )  # fmt: skip
    group.add_argument(
        "--pause", type=real(0.04, 10.0), default=0.2, metavar="S",
        help="shortest pause in which the recording is cut, seconds (default 0.2)",
    )  # fmt: skip
    group.add_argument(
        "--shortest", type=real(0.1, 600.0), default=1.0, metavar="S",
        help="shortest piece, seconds (default 1)",
    )  # fmt: skip
    group.add_argument(
        "--longest", type=real(1.0, 600.0), default=15.0, metavar="S",
        help="longest piece, seconds (default 15)",
    )  # fmt: skip
    add_channel(arguments)
    return arguments.run("data_segment:segment", argv)


def shard_main(argv: list[str]) -> int:
    """Pack a manifest: `asrkit data shard`."""
    arguments = Parser(
        "asrkit data shard", PURPOSES["shard"],
        "python -m asrkit.data shard train.jsonl --output train-shards\n\n"
        "exit status: 0 packed, 2 nothing could be packed",
    )  # fmt: skip
    arguments.add_argument("manifest", help="a JSONL or lhotse manifest")
    arguments.add_argument(
        "--output", required=True, metavar="DIR", help="new folder of the shards and their index"
    )
    arguments.add_argument(
        "--shard-size", type=whole(1, 1_000_000), default=1000, metavar="N",
        help="utterances in a shard (default 1000)",
    )  # fmt: skip
    return arguments.run("data:shard", argv)


def check_main(argv: list[str]) -> int:
    """Check manifests: `asrkit data check`."""
    arguments = Parser(
        "asrkit data check", PURPOSES["check"],
        "python -m asrkit.data check train.jsonl dev.jsonl --config mine.yaml\n"
        "  python -m asrkit.data check train.jsonl --list --write clean.jsonl\n\n"
        "exit status: 0 no errors, 1 errors, 2 nothing could be checked",
    )  # fmt: skip
    arguments.add_argument(
        "manifests", nargs="+", help="JSONL or lhotse manifests, the training set first"
    )
    rules = arguments.add_mutually_exclusive_group()
    rules.add_argument(
        "--config",
        help="judge by this configuration, with the tokenizer of the first manifest's texts "
        "(default: the configuration's defaults, characters)",
    )
    rules.add_argument("--model", help=f"judge by the configuration and tokenizer of {MODEL}")
    arguments.add_argument("--format", choices=["text", "json"], default="text")
    arguments.add_argument("--list", action="store_true", help="print every finding, one a line")
    arguments.add_argument("--strict", action="store_true", help="let warnings count as errors")
    arguments.add_argument("--no-audio", action="store_true", help="read headers only: seconds")
    arguments.add_argument(
        "--jobs", type=whole(1, 1024), metavar="N",
        help="threads that read files (default: one for each core)",
    )  # fmt: skip
    arguments.add_argument(
        "--write", metavar="CLEAN", help="write the manifest's utterances without errors here"
    )
    return arguments.run("data:check", argv)


PURPOSES = {
    "import": "Turn any corpus into checked manifests, divided by speaker",
    "check": "Find what is wrong with a corpus before training",
    "normalize": "Normalize a manifest's texts, and report each kind of change",
    "segment": "Divide a long recording with its text into utterances",
    "shard": "Pack a manifest and its audio in shards, which read faster",
}


ACTIONS = {
    "import": import_main, "check": check_main, "normalize": normalize_main,
    "segment": segment_main, "shard": shard_main,
}  # fmt: skip


USAGE = "\n".join([
    "usage: asrkit data <action> [options]; asrkit data <action> --help says more\n",
    *(f"  {name:11}{PURPOSES[name]}" for name in ACTIONS),
    "\nexample:\n  asrkit data import folder recordings --output corpus\n"
    "  asrkit data check corpus/train.jsonl corpus/dev.jsonl --config mine.yaml",
])  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())

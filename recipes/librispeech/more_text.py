"""English sentences for a language model, from texts that Debian packages.

One file a source, a sentence a line: words in lower case, spelled as in LibriSpeech's transcripts,
or with capitals and marks.
"""

import argparse
import gzip
import itertools
import re
import subprocess
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import RecipeError, explain, refused

from asrkit.atomic_write import replacing
from asrkit.data.manifest import read_manifest
from asrkit.errors import UserError

LARGEST = 100_000_000  # bytes of a file, unpacked
SHORTEST, LONGEST = 3, 60  # words of a sentence
RUN = 8  # words in a row that a sentence may not share with a text of --without

SPELLED = {
    "mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "messrs": "messieurs",
    "capt": "captain", "col": "colonel", "gen": "general", "lieut": "lieutenant",
    "hon": "honorable", "rev": "reverend", "prof": "professor", "sr": "senior", "jr": "junior",
    "no": "number",
}  # fmt: skip
ASCII = str.maketrans({"’": "'", "‘": "'", "`": "'", "—": " ", "–": " ", "&": " and "})
SPELLED_RE = re.compile(rf"\b({'|'.join(SPELLED)})\.(?=\s+[A-Z0-9])", re.IGNORECASE)
OTHERS_RE = re.compile(r"\b(i\.e|e\.g|viz|etc|vs|cf|pp?|vol|fig|esp|[A-Z])\.", re.IGNORECASE)
END_RE = re.compile(r"(?<=[.!?;:])[\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
DASH_RE = re.compile(r"[\s,;:]*(?:--+|[—–])[\s,]*")
SILENT_RE = re.compile(r"[\"()*_]|(?<!\w)'|'(?!\w)")


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph, which may be broken into lines."""
    text = " ".join(paragraph.split())
    text = SPELLED_RE.sub(lambda match: SPELLED[match[1].lower()].capitalize(), text)
    text = OTHERS_RE.sub(lambda match: match[1].replace(".", " "), text)
    yield from filter(None, END_RE.split(text))


def in_ascii(text: str) -> str:
    """A text without accents, with plain apostrophes and without dashes."""
    text = unicodedata.normalize("NFKD", text.translate(ASCII))
    return text.encode("ascii", "ignore").decode()


def written(sentence: str) -> str:
    """A sentence with its capitals and marks, without quotation marks and brackets."""
    text = SILENT_RE.sub("", in_ascii(DASH_RE.sub(", ", sentence)))
    return " ".join(re.sub(r"\s+(?=[.,;:!?])|(?<=[.!?]),|^[\s,]+", "", text).split())


def cleaned(sentence: str) -> tuple[str, str]:
    """The words of a sentence, and why it is left out, which is empty if it is not."""
    text = in_ascii(sentence)
    if re.search(r"\d", text):
        return "", "digits"
    if re.search(r"[^\w\s'\-.,;:!?\"()*]|__", text):
        return "", "other characters"
    letters = re.sub(r"[^a-z' ]", " ", text.replace("_", "").lower())
    words = [word.strip("'") for word in letters.split()]
    words = [word for word in words if word]
    if not SHORTEST <= len(words) <= LONGEST:
        return "", "length"
    single = sum(len(word) == 1 and word not in "aio" for word in words)
    if text.isupper() or single * 4 > len(words):
        return "", "headings and letters"
    return " ".join(words), ""


def unzipped(path: Path) -> str:
    """The text of a file, which may be gzipped."""
    with explain(f"cannot read {path}", "install its package again"):
        with gzip.open(path) if path.suffix in (".gz", ".dz") else path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"larger than {LARGEST} bytes")
    return data.decode("utf-8", "replace")


def novels(path: Path) -> Iterator[str]:
    """The paragraphs of an R package's lazily loaded vectors of lines."""
    with explain(f"cannot read {path}", "install its package again"):
        rest = path.read_bytes()
        while rest:  # a vector: 4 bytes of its size, then zlib
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(rest[4:], LARGEST)
            if not unpacking.eof:
                raise ValueError("a vector without an end")
            rest = unpacking.unused_data
            yield from "\n".join(strings(data)).split("\n\n")


def strings(data: bytes) -> Iterator[str]:
    """The strings of a character vector as R serialises it: each of type 9, with its length."""
    at = data.index(b"\x00\x00\x00\x10") + 8  # behind the vector's type and length
    while data[at + 3 : at + 4] == b"\x09":
        size = int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
        at += 8 + max(size, 0)
        yield data[at - max(size, 0) : at].decode("utf-8", "replace")


def verses(path: Path) -> Iterator[str]:
    """The verses that the program `bible` prints, without their numbers."""
    with explain(f"cannot run {path}", "install bible-kjv and bible-kjv-text again"):
        command = [str(path), "-f", "gen1:1-rev22:21"]
        printed = subprocess.run(command, capture_output=True, timeout=60, check=True, text=True)
    for line in printed.stdout.splitlines():
        yield line.partition(" ")[2]


def quotes(path: Path) -> Iterator[str]:
    """The quotes of a file of fortunes, without who said them."""
    for quote in unzipped(path).split("\n%\n"):
        yield re.sub(r"\n\s*--.*", "", quote, flags=re.DOTALL)


def definitions(path: Path) -> Iterator[str]:
    """Return the texts of a dictionary in dictd's format says, without headwords and grammar."""
    text = unzipped(path)
    text = re.sub(r"\[[^\]]{0,300}\]|\([^)]{0,80}\)|--\s?[A-Z][\w. ()&]*", "", text)
    text = re.sub(r"^\S.*\\.*\n|^\S.{0,60}\n(?=\s)|^\s+(?:n|v|adj|adv|\w\w)?\s*\d+[.:]|^\s*Syn: .*",
                  "\n\n", text, flags=re.MULTILINE)  # fmt: skip
    text = re.sub(r"[{}]|^[A-Z\- ']+, [a-z.]+", "", text, flags=re.MULTILINE)
    yield from re.split(r"\n\s*\n", text)


def articles(path: Path) -> Iterator[str]:
    """The paragraphs of prose in Markdown."""
    for paragraph in re.split(r"\n\s*\n", unzipped(path)):
        if not re.match(r"\s*([#|>*`\-]|\d)", paragraph):
            yield re.sub(r"\[([^\]]*)\]\([^)]*\)|[*_]", r"\1", paragraph)


class Source(NamedTuple):
    """Return the folder of a package's texts."""

    package: str
    pattern: str  # of files, under --root
    read: Callable[[Path], Iterator[str]]  # of a file's paragraphs


NOVELS = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
SOURCES = {
    "austen": Source("r-cran-janeaustenr", NOVELS, novels),
    "bible": Source("bible-kjv", "usr/bin/bible", verses),
    "fortunes": Source("fortunes", "usr/share/games/fortunes/[a-z]*[a-z]", quotes),
    "devil": Source("dict-devil", "usr/share/dictd/devil.dict.dz", definitions),
    "gcide": Source("dict-gcide", "usr/share/dictd/gcide.dict.dz", definitions),
    "wordnet": Source("dict-wn", "usr/share/dictd/wn.dict.dz", definitions),
    "jargon": Source("dict-jargon", "usr/share/dictd/jargon.dict.dz", definitions),
    "anarchism": Source("anarchism", "usr/share/doc/anarchism/markdown/*.md.gz", articles),
}  # fmt: skip


Runs = set[tuple[str, ...]]  # of RUN words


def runs(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield all RUN words in a row."""
    return zip(*(words[i:] for i in range(RUN)), strict=False)


def paragraphs(source: Source, root: Path) -> Iterator[str]:
    """The paragraphs of a source's files."""
    for path in sorted(root.glob(source.pattern)):
        if not path.is_dir() and path.suffix not in (".dat", ".u8"):  # other languages, an index
            yield from source.read(path)


def selected(texts: Iterable[str], tested: Runs) -> tuple[dict[str, str], Counter[str]]:
    """The different sentences of paragraphs, and how many were left out, by reason.

    A sentence is a key with its words alone, and a value as it is written.
    """
    found: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for sentence in itertools.chain.from_iterable(map(sentences, texts)):
        text, reason = cleaned(sentence)
        if text and not tested.isdisjoint(runs(text.split())):
            reason = "in --without"
        elif text in found:
            reason = "repeated"
        if reason:
            left_out[reason] += 1
        else:
            found[text] = written(sentence)
    return found, left_out


def write_sources(
    names: list[str], root: Path, output: Path, tested: Runs, as_written: bool
) -> None:
    """Write each source's file, and print what is in it."""
    output.mkdir(parents=True, exist_ok=True)
    print(f"{'source':10} sentences     words  left out")
    for name in names:
        found, left_out = selected(paragraphs(SOURCES[name], root), tested)
        texts = [*(found.values() if as_written else found)]
        with replacing(output / f"{name}.txt") as temporary:
            temporary.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        words = sum(text.count(" ") + 1 for text in found)
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        print(f"{name:10}{len(texts):10}{words:10}  {reasons}")


def installed(wanted: list[str], root: Path) -> list[str]:
    """The sources to read: those named, or all that are there.

    Raises:
        RecipeError: if a named one is missing, or all are.
    """
    missing = [name for name in wanted or SOURCES if not any(root.glob(SOURCES[name].pattern))]
    command = " ".join(["apt-get install", *(SOURCES[name].package for name in missing)])
    if missing and (wanted or len(missing) == len(SOURCES)):
        raise RecipeError(f"{root} has no {', '.join(missing)}: {command}")
    if missing:
        print(f"left out, not installed: {', '.join(missing)} ({command})")
    return [name for name in wanted or SOURCES if name not in missing]


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "recipes/librispeech/more_text.py", description=__doc__,
        epilog="example: python recipes/librispeech/more_text.py --output-dir data/text --without "
        "data/librispeech5/dev.jsonl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the texts")
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="folder of the unpacked packages (default /)"
    )
    parser.add_argument(
        "--without", type=Path, nargs="+", default=[], metavar="MANIFEST",
        help=f"leave out sentences that share {RUN} words in a row with a text of these",
    )  # fmt: skip
    parser.add_argument("--written", action="store_true", help="keep capitals and marks")
    known = ", ".join(SOURCES)
    parser.add_argument(
        "--sources", nargs="+", default=[], choices=SOURCES, metavar="NAME",
        help=f"sources: {known} (default: all that are installed)",
    )  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the texts; returns the exit code."""
    args = command_line().parse_args(argv)
    try:
        names = installed(args.sources, args.root)
        tested = {
            run
            for manifest in args.without
            for row in read_manifest(manifest)
            for run in runs((row.text or "").lower().split())
        }
        write_sources(names, args.root, args.output_dir, tested, args.written)
    except (RecipeError, UserError, OSError) as error:
        return refused("librispeech", error, "more_text")
    return 0


if __name__ == "__main__":
    sys.exit(main())

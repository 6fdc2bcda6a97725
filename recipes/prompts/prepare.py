"""Prompts: what telephone exchanges say, in five languages; one voice each, 8 kHz, 25 min.

The recordings and their texts are those of Debian's packages asterisk-core-sounds-*.
"""

import argparse
import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from corpus import KEYS, RecipeError, Utterance, audio_seconds, explain, refused, write_manifests

from asrkit.data.splits import taken
from asrkit.text.marks import SYMBOLS
from asrkit.text.normalization import Normalization, Normalizer

VOICES = {
    "en": "en_US_f_Allison",
    "es": "es_MX_f_Allison",
    "fr": "fr_CA_f_June",
    "it": "it_IT_m_Carlo",
    "ru": "ru_RU_f_IvrvoiceRU",
}
DEV_SHARE = 0.15
NOT_SAID = re.compile(r"[\[(].*[\])]")  # [beep], (ahooga)
LOST = re.compile(r"\w\?(?=\s*[^\W\d_A-Z])|\ufffd")  # "pu? essere": a letter was lost
SIGNS = f"{SYMBOLS}+=<>$"
MARKS = re.compile(r"[^\w\s'’-]|_|(?<!\w)-|-(?!\w)")


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line; lines that begin with a semicolon are comments."""
    with explain(f"cannot read {path}", "unpack the package again"):
        for line in gzip.decompress(path.read_bytes()).decode("utf-8-sig").splitlines():
            name, colon, text = line.partition(":")
            if colon and not line.startswith(";"):
                yield name.strip(), text.strip()


def spoken(text: str) -> str:
    """A text in lower case without marks, as it is said."""
    return " ".join(MARKS.sub(" ", text.lower()).split())


def read_prompts(folder: Path, language: str, written: bool = False) -> list[Utterance]:
    """The prompts of a language, without those whose text is not what is said.

    Args:
        written: keep capitals and marks, in one form of each; signs for words are left out too.
    """
    tidy = Normalizer(Normalization(brackets="keep"))
    package = f"asterisk-core-sounds-{language}"
    texts = folder / f"usr/share/doc/{package}/core-sounds-{language}.txt.gz"
    voice = folder / "usr/share/asterisk/sounds" / VOICES[language]
    for path in (texts, voice):
        if not path.exists():
            raise RecipeError(f"{path} is missing: unpack {package} and {package}-wav in {folder}")
    rows: list[Utterance] = []
    left_out: Counter[str] = Counter()
    seen: set[str] = set()
    for name, text in read_texts(texts):
        audio, id = voice / f"{name}.wav", name.replace("/", "-")
        if id in seen:
            left_out["come twice"] += 1
        elif not audio.resolve().is_relative_to(voice.resolve()) or not audio.is_file():
            left_out["have no recording"] += 1
        elif NOT_SAID.search(text) or not spoken(text):
            left_out["name a sound"] += 1
        elif any(letter.isdigit() for letter in text):
            left_out["have digits"] += 1
        elif LOST.search(text):
            left_out["have lost letters"] += 1
        elif written and any(sign in text for sign in SIGNS):
            left_out["have signs for words"] += 1
        else:
            seconds, speaker = audio_seconds(audio), VOICES[language]
            said = tidy(text).replace("...", "…") if written else spoken(text)
            values = (id, audio, seconds, said, speaker)
            rows.append(dict(zip(KEYS, values, strict=True)))
        seen.add(id)
    for reason, count in left_out.items():
        print(f"{count} prompts {reason}: left out")
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the corpus of a language; returns the exit code."""
    parser = argparse.ArgumentParser(
        "recipes/prompts/prepare.py",
        description="Write the manifests of a language's telephone prompts.",
        epilog="example: python recipes/prompts/prepare.py --language ru --data-dir data/prompts"
        " --output-dir data/prompts-ru",
    )
    parser.add_argument("--language", choices=sorted(VOICES), required=True)
    parser.add_argument(
        "--data-dir", type=Path, required=True, help="folder in which the packages were unpacked"
    )
    parser.add_argument("--output-dir", type=Path, required=True, help="folder of the manifests")
    parser.add_argument("--written", action="store_true", help="keep capitals and marks")
    args = parser.parse_args(argv)
    try:
        rows = read_prompts(args.data_dir.resolve(), args.language, args.written)
        train, dev = taken(rows, DEV_SHARE, lambda warning: print(f"note: {warning}"))
        write_manifests({"train": train, "dev": dev}, args.output_dir.resolve())
    except (RecipeError, OSError) as error:
        return refused("prompts", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

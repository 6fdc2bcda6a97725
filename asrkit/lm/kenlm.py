"""Binary n-gram models of KenLM, read by KenLM itself (Heafield 2011)."""

import mmap
from pathlib import Path
from typing import Any

from asrkit.atomic_write import sha256_of
from asrkit.errors import reason, shown
from asrkit.extras import pip_install
from asrkit.lm.fit import SAMPLE
from asrkit.lm.ngram import BEGIN, END, LN_10, UNKNOWN, ArpaError

MAGIC = b"mmap lm http://kheafield.com/code"
FORMAT = MAGIC + b" format version 5\n\0"
HAS_WORDS, COUNT = 0x64, slice(0x6C, 0x74)  # a flag and the number of words, in the header


def is_binary(path: Path) -> bool:
    """Return whether a file is a binary of KenLM."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class KenLM:
    """A `LanguageModel` that KenLM computes.

    KenLM maps a binary into memory without checking it: a damaged binary can crash the process. Use
    only binaries that you made yourself. asrkit reads and checks ARPA files without KenLM.

    Args:
        path: binary or ARPA file.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            import kenlm
        except ImportError:
            raise ArpaError(f"{path} is a binary of KenLM: {pip_install('kenlm')}") from None
        self.path, self.new_state = Path(path), kenlm.State
        try:
            self.model = kenlm.Model(str(path))
        except (OSError, RuntimeError, ValueError) as error:  # the messages may not be UTF-8
            raise ArpaError(
                f"KenLM cannot read {shown(Path(path), 300)}: {reason(error)}"
            ) from None
        self.order: int = self.model.order
        self.sha256 = sha256_of(self.path)

    def start(self) -> Any:
        state = self.new_state()
        self.model.BeginSentenceWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        after = self.new_state()
        return LN_10 * self.model.BaseScore(state, word, after), after

    def finish(self, state: Any) -> float:
        return self.score(state, END)[0]

    def has_word(self, word: str) -> bool:
        return word in self.model

    def words_in_part(self) -> list[str] | None:
        return words_in(self.path)


def words_in(path: Path, most: int = SAMPLE) -> list[str] | None:
    """Return words of a binary at about equal distances, without <s>, </s> and <unk>.

    A binary of format 5 ends with its words, <unk> first, each followed by a zero byte. The result
    is None for other formats and for a binary without words (`build_binary -v`).
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[: len(FORMAT)] != FORMAT or len(data) <= COUNT.stop or not data[HAS_WORDS]:
            return None
        count = int.from_bytes(data[COUNT], "little")
        first = data.rfind(b"<unk>\0")
        if first < 0 or not 0 < count <= len(data) - first:
            return None
        if count <= most:
            parts = data[first:].split(b"\0")
        else:
            step = (len(data) - first) / most
            found = (data.find(b"\0", first + int(i * step)) + 1 for i in range(most))
            parts = [data[at : data.find(b"\0", at)] for at in dict.fromkeys(found)]
        words = [part.decode("utf-8", "replace") for part in parts[:most]]
    return [word for word in words if word and word not in (BEGIN, END, UNKNOWN)]

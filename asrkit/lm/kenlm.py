"""Binary n-gram models of KenLM, read by KenLM itself (Heafield 2011)."""

from pathlib import Path
from typing import Any

from asrkit.atomic_write import sha256_of
from asrkit.errors import reason, shown
from asrkit.extras import pip_install
from asrkit.lm.ngram import END, LN_10, ArpaError

MAGIC = b"mmap lm http://kheafield.com/code"


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
        self.new_state = kenlm.State
        try:
            self.model = kenlm.Model(str(path))
        except (OSError, RuntimeError, ValueError) as error:  # the messages may not be UTF-8
            raise ArpaError(
                f"KenLM cannot read {shown(Path(path), 300)}: {reason(error)}"
            ) from None
        self.sha256 = sha256_of(Path(path))

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

    def words_in_part(self) -> None:
        """Return None: KenLM does not list the words of a binary."""

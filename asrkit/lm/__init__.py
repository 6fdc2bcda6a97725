"""Language models and hotwords, whose scores a search adds to a text's score (`search.fusion`)."""

from pathlib import Path

from asrkit.lm.hotwords import Hotwords, weighed
from asrkit.lm.kenlm import KenLM, is_binary
from asrkit.lm.lm_fusion import LIMIT, LanguageModel, TokenFusion, Weighted, WordFusion
from asrkit.lm.ngram import ArpaError, NGram, read_arpa


def read_language_model(path: str | Path) -> LanguageModel:
    """Read the language model in an ARPA file, which may be gzipped, or in a binary of KenLM.

    Raises:
        ArpaError: for a file that cannot be read.
    """
    path = Path(path)
    return KenLM(path) if path.is_file() and is_binary(path) else read_arpa(path)

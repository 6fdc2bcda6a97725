"""Binaries of KenLM: the same scores as the ARPA file that they were made from."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from asrkit.extras import missing
from asrkit.lm import ArpaError, TokenFusion, Weighted, WordFusion, read_arpa, read_language_model
from asrkit.lm.kenlm import KenLM
from asrkit.text.graphemes import complete_units
from tests.conftest import skip

FOLDER = Path(__file__).parent
ARPA, BINARY = FOLDER / "tiny.arpa", FOLDER / "tiny.kenlm"  # build_binary trie tiny.arpa tiny.kenlm
PIECES = ["", " ", "a", "b", "c"]


def test_without_kenlm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ArpaError, match="is a binary of KenLM: pip install kenlm"):
        read_language_model(BINARY)
    assert read_language_model(ARPA) == read_arpa(ARPA)


@pytest.fixture
def kenlm() -> None:
    if not importlib.util.find_spec("kenlm"):
        skip(missing(["kenlm"]))


@pytest.mark.usefixtures("kenlm")
def test_scores_equal_those_of_the_arpa_file() -> None:
    """500 random sentences, unknown words among them."""
    ours, theirs, draw = read_arpa(ARPA), read_language_model(BINARY), random.Random(0)
    assert isinstance(theirs, KenLM)
    for _ in range(500):
        our_state, their_state = ours.start(), theirs.start()
        for word in draw.choices(["a", "b", "ab", "ba", "zebra"], k=draw.randrange(8)):
            assert theirs.has_word(word) == ours.has_word(word)
            log_prob, our_state = ours.score(our_state, word)
            other, their_state = theirs.score(their_state, word)
            assert other == pytest.approx(log_prob, abs=1e-5)
        assert theirs.finish(their_state) == pytest.approx(ours.finish(our_state), abs=1e-5)


@pytest.mark.usefixtures("kenlm")
def test_binary_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its words are others, expected the tokens d, e"):
        TokenFusion(Weighted(KenLM(BINARY), 1.0, 0.0), ["", "d", "e"])
    (tmp_path / "cut.bin").write_bytes(BINARY.read_bytes()[:300])
    with pytest.raises(ArpaError, match=r"KenLM cannot read .*cut\.bin"):
        read_language_model(tmp_path / "cut.bin")
    (tmp_path / "other.bin").write_bytes(b"\xff" + BINARY.read_bytes())  # which KenLM quotes
    with pytest.raises(ArpaError, match=r"KenLM cannot read .*other\.bin"):
        KenLM(tmp_path / "other.bin")


@pytest.mark.usefixtures("kenlm")
def test_a_binary_whose_spelling_is_not_checked_is_reported() -> None:
    """In another case its scores are those of unknown words."""
    for pieces in (PIECES, ["", " ", "A", "B"]):
        fusion = WordFusion(Weighted(KenLM(BINARY), 1.0, 0.0), pieces, complete_units)
        assert fusion.misfit().startswith("its words cannot be listed")

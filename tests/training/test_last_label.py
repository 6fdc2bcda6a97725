"""The label for ends of turns in a training."""

from pathlib import Path

from asrkit.config import load_config
from asrkit.model_file import save_model
from asrkit.text import CharTokenizer, end_of_turn
from asrkit.training.dataset import load_corpus
from tests.conftest import write_config
from tests.test_model_file import a_file


def test_a_label_for_ends_of_turns_is_appended(corpus: Path, tmp_path: Path) -> None:
    """Every text to learn ends with it, and needs a frame more; texts to score do not have it."""
    save_model(tmp_path / "m.safetensors", a_file(CharTokenizer(list("enosy "))))
    start = [f"training.start_from={tmp_path / 'm.safetensors'}", "training.keep_labels=true"]
    path, label = write_config(tmp_path / "c.yaml", corpus, tmp_path / "out"), 7
    config = load_config(path, [*start, "text.end_of_turn=true"])
    encode = load_corpus(config).encode
    assert end_of_turn(encode.tokenizer) == label
    assert encode.learnable("yes", 16_000)[1] == [*encode("yes")[1], label]
    assert label not in encode("yes")[1]
    assert "labels need 4" in str(encode.why_not("yes", 1_600))
    without = load_corpus(load_config(path, start)).encode
    assert without.learnable("yes", 16_000)[1] == encode("yes")[1]
    assert "labels need 3" in str(without.why_not("yes", 1_000))

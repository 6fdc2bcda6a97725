"""Going on from another model: the encoder, and the labels that both write."""

from pathlib import Path
from typing import Any

import pytest
import torch

from asrkit.build_network import build_model
from asrkit.errors import UserError
from asrkit.model_file import ModelFile, save_model
from asrkit.text import CharTokenizer, SentencePieceTokenizer, WordTokenizer
from asrkit.training.warm_start import same_labels, start_from
from tests.laws.test_resume import same
from tests.test_model_file import a_file


def test_labels_written_alike_or_but_for_case() -> None:
    old = WordTokenizer(["NO", "no", "yes", "Go"])
    new = WordTokenizer(["GO", "No", "no", "stop", "yes"])
    pairs = {new.piece(b).strip(): old.piece(a).strip() for a, b in same_labels(old, new)[1:]}
    assert pairs.pop("No").casefold() == "no"
    assert pairs == {"GO": "Go", "no": "no", "yes": "yes"}
    pieces = SentencePieceTokenizer.train(["yes no", "no yes"] * 3, 12)
    assert same_labels(pieces, pieces) == [(i, i) for i in range(pieces.vocab_size)]


TRANSDUCER = {"kind": "transducer", "predictor_dim": 8, "joint_dim": 8}


def file_with(head: dict[str, Any], letters: str) -> ModelFile:
    """A model with this head and random weights."""
    file = a_file(CharTokenizer(list(letters)))
    settings = type(file.config.model)(**file.config.model.model_dump() | {"head": head})
    config = file.config.model_copy(update={"model": settings})
    model = build_model(settings, file.tokenizer.vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return file._replace(model=model, config=config)


def test_what_is_taken_over(tmp_path: Path) -> None:
    other, file = (file_with({"kind": "ctc"}, letters) for letters in ("abc ", "Bcd "))
    other.model.encoder.mean.normal_()
    save_model(tmp_path / "m.safetensors", other)
    drawn = file.model.head.weight.clone()
    known = start_from(str(tmp_path / "m.safetensors"), file.model, file.tokenizer, file.config)
    assert known == (3, "")
    assert same(file.model.encoder.state_dict(), other.model.encoder.state_dict())
    row_of = {file.tokenizer.piece(t): file.model.head.weight[t] for t in range(1, 5)}
    theirs = {other.tokenizer.piece(t): other.model.head.weight[t] for t in range(1, 5)}
    for mine, old in ("cc", "Bb", "  "):
        assert torch.equal(row_of[mine], theirs[old])
    assert torch.equal(row_of["d"], drawn[file.tokenizer.encode("d")[0]])
    assert torch.equal(file.model.head.weight[0], other.model.head.weight[0])


@pytest.mark.parametrize(
    ("there", "here", "note", "kept"),
    [
        ({"kind": "ctc"}, TRANSDUCER,
         "; the head begins anew except its CTC layer: model.head.kind is ctc there, transducer "
         "here", {"ctc"}),
        (TRANSDUCER, {"kind": "ctc"},
         "; the head begins anew except its CTC layer: model.head.kind is transducer there, ctc "
         "here", {"weight", "bias"}),
        ({"kind": "ctc"}, TRANSDUCER | {"ctc_weight": 0.0},
         "; the head begins anew: model.head.kind is ctc there, transducer here", set()),
        (TRANSDUCER | {"adapter_dim": 4}, {"kind": "ctc"},
         "; the head begins anew: model.head.kind is transducer there, ctc here", set()),
        (TRANSDUCER, TRANSDUCER | {"predictor_dim": 6, "activation": "tanh"},
         "; the head begins anew except its CTC layer: model.head.predictor_dim is 8 there, 6 "
         "here; model.head.activation is relu there, tanh here", {"ctc"}),
        (TRANSDUCER | {"ctc_weight": 0.0}, TRANSDUCER | {"dropout": 0.0},
         "; parts of the head begin anew: ctc",
         {"predictor", "from_encoder", "from_predictor", "out"}),
        (TRANSDUCER, TRANSDUCER | {"max_symbols": 5}, "",
         {"predictor", "from_encoder", "from_predictor", "out", "ctc"}),
    ],
)  # fmt: skip
def test_another_head_begins_anew(
    there: dict[str, Any], here: dict[str, Any], note: str, kept: set[str], tmp_path: Path
) -> None:
    """The encoder is kept, and the rows of shared labels in the layers of `kept`."""
    other, file = file_with(there, "abc "), file_with(here, "xcb")
    save_model(tmp_path / "m.safetensors", other)
    drawn = {name: each.clone() for name, each in file.model.head.state_dict().items()}
    known = start_from(str(tmp_path / "m.safetensors"), file.model, file.tokenizer, file.config)
    assert known == (2, note)
    assert same(file.model.encoder.state_dict(), other.model.encoder.state_dict())
    changed = {
        name.partition(".")[0]
        for name, each in file.model.head.state_dict().items()
        if not torch.equal(each, drawn[name])
    }
    assert changed == kept
    if kept & {"ctc", "weight"}:
        own, old = file.model.head.ctc_layer(), other.model.head.ctc_layer()
        assert own is not None
        assert old is not None
        for letter, is_known in (("c", True), ("b", True), ("x", False)):
            token = file.tokenizer.encode(letter)[0]
            rows = [torch.equal(own.weight[token], row) for row in old.weight]
            assert any(rows) == is_known


def test_another_shape_is_refused(tmp_path: Path) -> None:
    other, file = a_file(), a_file()
    save_model(tmp_path / "m.safetensors", other)
    model = file.config.model.model_copy(update={"dim": 48, "dropout": 0.5})
    config = file.config.model_copy(update={"model": model})
    with pytest.raises(UserError, match=r"start_from .*: model\.dim is \d+ there, 48 here$"):
        start_from(str(tmp_path / "m.safetensors"), file.model, file.tokenizer, config)

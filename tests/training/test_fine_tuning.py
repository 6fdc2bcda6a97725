"""`training.start_from` alone: the settings, labels and weights of models of any kind."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from asrkit import train
from asrkit.build import build_normalizer
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import load_config, parse_config
from asrkit.errors import UserError
from asrkit.interop import import_checkpoint
from asrkit.model_file import ModelFile, load_model, read_header, save_model
from asrkit.text import CharTokenizer, SentencePieceTokenizer, TextError, decode
from asrkit.training.labels import tokenizer_of
from asrkit.training.warm_start import load_training
from tests.conftest import FIXTURES
from tests.test_model_file import a_file

KINDS: dict[str, tuple[str, str, dict[str, str]]] = {  # format, fixture, options of the import
    "ctc": ("nemo", "nemo-fastconformer-ctc", {}),
    "transducer": ("nemo", "nemo-fastconformer-rnnt", {}),
    "hybrid": ("nemo", "nemo-fastconformer-rnnt-hybrid", {}),
    "prompt": ("nemo", "nemo-fastconformer-rnnt-prompt", {"prompt": "de-DE"}),
    "wenet, sub-words": ("wenet", "wenet-u2pp-ctc", {}),
    "wenet, characters": ("wenet", "wenet-u2pp-ctc-batchnorm", {}),
}
EXTRA = "étoile"  # letters that no fixture has


def imported(kind: str) -> ModelFile:
    """Return the model file of an imported checkpoint."""
    toolkit, name, options = KINDS[kind]
    folder = FIXTURES / name
    source = folder / "model.nemo" if toolkit == "nemo" else folder
    return import_checkpoint(toolkit, source, **options).file


def minimal(folder: Path, corpus: Path, file: ModelFile, **training: object) -> Path:
    """Write a model and a configuration that starts from it, without network, contexts and text."""
    save_model(start := folder / "m.safetensors", file)
    values = {
        "data": {"train": str(corpus / "train.jsonl"), "dev": str(corpus / "dev.jsonl"),
                 "max_batch_seconds": 6.0, "num_buckets": 2, "num_workers": 0},
        "augmentation": {"speed_factors": [1.0], "spec_probability": 0.0},
        "training": {"start_from": str(start), "output_dir": str(folder / "out"), "epochs": 1,
                     "num_threads": 1, "average": 1, "export": False} | training,
    }  # fmt: skip
    path = folder / "finetune.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_unwritten_settings_and_labels_are_those_of_the_model(kind: str, tmp_path: Path) -> None:
    file = imported(kind)
    path = minimal(tmp_path, tmp_path, file)
    config = load_training(path, [])
    assert config.model == file.config.model
    assert config.context == file.config.context
    assert config.text == file.config.text
    assert config.training.keep_labels
    assert load_config(path).model != file.config.model  # control: without that model
    normalize = build_normalizer(config.text)
    known, letter = [*map(normalize, ["a no", "the one"])], normalize("é")
    same = tokenizer_of(config, known)
    assert same.to_bytes() == file.tokenizer.to_bytes()
    longer = tokenizer_of(config, [*known, EXTRA])
    old = [file.tokenizer.piece(token) for token in range(1, file.tokenizer.vocab_size)]
    assert [longer.piece(token) for token in range(1, len(old) + 1)] == old
    assert longer.vocab_size > len(old) + 1
    with pytest.raises(TextError):
        same.encode(letter)
    assert decode(longer, longer.encode(letter)) == letter


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.dim=22", r"model\.dim is 24 there, 22 here; leave these settings out"),
        ("model.position=rotary", r"model\.position is .*relative.* there, .*rotary.* here"),
        ("model.nothing=1", "unknown key 'model.nothing'"),
    ],
)
def test_a_written_setting_that_differs_is_refused(
    override: str, told: str, tmp_path: Path
) -> None:
    path = minimal(tmp_path, tmp_path, a_file())
    with pytest.raises(UserError, match=told):
        load_training(path, [override])
    same = ["model.dim=24", "model.position=relative", "model.dropout=0.3", "model.frontend=kaldi"]
    config = load_training(path, same).model
    assert config == a_file().config.model.model_copy(update={"dropout": 0.3})


def changed(**changes: dict[str, Any]) -> ModelFile:
    """Return a model with changed sections of the configuration."""
    file = a_file()
    values = file.config.model_dump(mode="json")
    config = parse_config({name: each | changes.get(name, {}) for name, each in values.items()})
    return file._replace(config=config)


def test_contexts_and_text_may_be_written(tmp_path: Path) -> None:
    """Another tokenizer takes no rule of the model's texts, and no weight depends on a context."""
    context = {"chunk_sizes": [5], "left_contexts": [10], "right_contexts": [2]}
    file = changed(context=context, text={"case": "upper"})
    first, path = file.config, minimal(tmp_path, tmp_path, file)
    config = load_training(path, ["context.chunk_sizes=[3]"])
    assert config.context == first.context.model_copy(update={"chunk_sizes": [3]})
    assert (config.text, config.training.keep_labels) == (first.text, True)
    config = load_training(path, ["text.case=lower"])
    assert (config.text.case, config.training.keep_labels) == ("lower", True)
    config = load_training(path, ["text.tokenizer=words"])
    assert (config.text.case, config.training.keep_labels) == ("keep", False)
    config = load_training(path, ["text.tokenizer=characters"])
    assert (config.text.case, config.training.keep_labels) == ("upper", False)
    with pytest.raises(UserError, match=r"text\.tokenizer is characters there, words here"):
        tokenizer_of(load_training(path, ["text.tokenizer=words", "training.keep_labels=true"]), [])
    with pytest.raises(ConfigError, match=r"training\.keep_labels': True has no effect while"):
        load_config(path, ["training.start_from=null", "training.keep_labels=true"])


def test_options_of_the_same_head_are_filled(tmp_path: Path) -> None:
    head = {"kind": "transducer", "predictor_dim": 12, "joint_dim": 8, "ctc_weight": 0.3}
    path = minimal(tmp_path, tmp_path, changed(model={"head": head}))
    found = load_training(path, ["model.head={kind: transducer, dropout: 0.01}"])
    known = found.model.head.model_dump()
    assert (known["predictor_dim"], known["joint_dim"], known["dropout"]) == (12, 8, 0.01)
    other = load_training(path, ["model.head=ctc"]).model.head
    assert other.kind == "ctc"


def test_appended_labels_are_counted_and_sub_words_refuse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = minimal(tmp_path, tmp_path, a_file(CharTokenizer(list("abc "))))
    config = load_training(path, [])
    with caplog.at_level(logging.WARNING):
        tokenizer_of(config, ["a b", "ab"])
        assert not caplog.messages
        assert tokenizer_of(config, ["a d", "dé", "c"]).vocab_size == 7
    assert caplog.messages[0].endswith("lacks 2 of the labels: 'd', 'é'")
    pieces = SentencePieceTokenizer.train(["yes no", "no yes"] * 3, 12)
    file = a_file(pieces, "unigram")
    save_model(tmp_path / "m.safetensors", file)
    config = load_training(path, [])
    assert tokenizer_of(config, ["so no one"]).to_bytes() == pieces.to_bytes()
    told = r"not in the vocabulary: 'b' .*'ü' in .*training\.keep_labels=false$"
    with pytest.raises(TextError, match=told):
        tokenizer_of(config, ["yes", "übel", "kübel"])


def test_a_resumed_training_keeps_its_settings_without_the_first_model(tmp_path: Path) -> None:
    path = minimal(tmp_path, tmp_path, changed(context={"chunk_sizes": [5]}))
    config = load_training(path, [])
    (tmp_path / "out").mkdir()
    written = config.model_dump(mode="json")
    written["training"]["parallel"] = "ddp"  # by an earlier version
    (tmp_path / "out" / "config.yaml").write_text(yaml.safe_dump(written))
    (tmp_path / "m.safetensors").unlink()
    assert load_training(path, [], resume=True) == config
    with pytest.raises(UserError, match="no model file"):
        load_training(path, [])


def test_other_features_have_statistics_of_their_own(corpus: Path, tmp_path: Path) -> None:
    path, means = minimal(tmp_path, corpus, file := a_file()), []
    for frontend in ("kaldi", "sherpa_nemo"):
        folder = tmp_path / frontend
        overrides = [f"model.frontend={frontend}", f"training.output_dir={folder}"]
        assert train.main(["--config", str(path), *overrides]) == 0
        means.append(load_model(folder).model.encoder.mean)
    assert means[0].equal(file.model.encoder.mean)
    assert means[1].max() < means[0].min() - 1.0  # samples in [-1, 1], not 16-bit integers


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_steps_lower_the_loss_and_keep_the_settings(
    kind: str, corpus: Path, tmp_path: Path
) -> None:
    file = imported(kind)
    fast = {"epochs": 3, "learning_rate": 5e-3, "validate_every_epochs": 3}
    path = minimal(tmp_path, corpus, file, **fast)
    assert train.main(["--config", str(path)]) == 0
    log = (tmp_path / "out" / "train.log").read_text()
    losses = [float(each) for each in re.findall(r"  step \d+  loss (\S+)", log)]
    assert losses[-1] < 0.8 * losses[0]
    assert load_model(tmp_path / "out").config.model == file.config.model
    assert read_header(tmp_path / "out").config.context == file.config.context

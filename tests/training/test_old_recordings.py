"""Old recordings that are mixed in, and the scores of other domains."""

import re
from pathlib import Path

import numpy as np
import pytest

from asrkit import train
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import Config, load_config
from asrkit.data.recordings import Joined
from asrkit.data.sampling import with_replay
from asrkit.errors import UserError
from asrkit.model_file import load_model, save_model
from asrkit.text import CharTokenizer
from asrkit.training.dataset import load_corpus
from asrkit.training.warm_start import load_training
from tests.conftest import speech, write_manifest, write_wav
from tests.laws.test_resume import same, stop_after, weights
from tests.test_model_file import a_file
from tests.training.test_fine_tuning import minimal


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_of_the_seconds_is_old_and_another_part_in_each_epoch(share: float) -> None:
    durations = np.random.default_rng(0).uniform(1.0, 9.0, 2000)
    drawn = [with_replay(durations, 200, share, 0, epoch) for epoch in (0, 1, 0)]
    for places in drawn:
        assert places[:200].tolist() == list(range(200))
        old = places[200:]
        assert old.min() >= 200
        assert len(set(old.tolist())) == len(old) or share == 0.9  # again, where too few
        seconds = durations[places].sum()
        assert abs(durations[old].sum() / seconds - share) < 0.01
    assert (drawn[0] == drawn[2]).all()
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], with_replay(durations, 200, share, 1, 0))


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A manifest of six utterances with the letters of "so"."""
    folder = tmp_path / "old"
    folder.mkdir()
    names = [write_wav(folder / f"o{i}.wav", speech(1.0, seed=50 + i)).name for i in range(6)]
    lines = [{"id": name, "audio": name, "text": "so so"} for name in names]
    return str(write_manifest(folder / "old.jsonl", *lines))


@pytest.fixture
def config(corpus: Path, tmp_path: Path) -> Path:
    return minimal(tmp_path, corpus, a_file(CharTokenizer(list("so "))))


def loaded(config: Path, *overrides: str) -> Config:
    return load_training(config, [*overrides])


def test_several_sets_are_one_after_another(config: Path, corpus: Path, old: str) -> None:
    both = load_corpus(loaded(config, f"data.train=[{corpus}/train.jsonl, {old}]"))
    one, two = (load_corpus(loaded(config, f"data.train={path}")).train
                for path in (corpus / "train.jsonl", old))  # fmt: skip
    assert isinstance(both.train, Joined)
    ids = [both.train[place].id for place in range(len(both.train))]
    assert ids == [cut.id for part in (one, two) for cut in part]  # type: ignore[union-attr]
    for wrong in (-1, len(both.train)):
        with pytest.raises(IndexError):
            both.train[wrong]
    assert len(both.train.durations) == both.num_new == 18
    assert both.seconds == pytest.approx(both.train.durations.sum())
    assert both.encode.tokenizer.encode("yes so")  # letters of both


def test_replay_is_a_share_of_the_epoch_and_part_of_a_trainings_identity(
    config: Path, old: str
) -> None:
    plain = load_corpus(loaded(config))
    options = loaded(config, "training.keep=replay", f"data.replay={old}", "data.replay_share=0.2")
    mixed = load_corpus(options)
    assert (mixed.num_new, len(mixed.train)) == (len(plain.train), len(plain.train) + 6)
    assert mixed.seconds == pytest.approx(plain.seconds / 0.8)
    before = mixed.identity
    lines = Path(old).read_text().splitlines()
    Path(old).write_text("\n".join(lines[1:]))
    after = load_corpus(options).identity
    changed = {name for name in before if before[name] != after[name]}
    assert "the replay utterances" in changed
    assert "the training utterances" not in changed


def test_old_data_are_those_of_the_first_model(config: Path, tmp_path: Path, old: str) -> None:
    with pytest.raises(UserError, match=r"was trained on a, which is not here: name recordings"):
        loaded(config, "training.keep=replay")
    file = load_model(tmp_path / "m.safetensors")

    def trained_on(path: str) -> None:
        data = file.config.data.model_copy(update={"train": [path]})
        changed = file._replace(config=file.config.model_copy(update={"data": data}))
        save_model(tmp_path / "m.safetensors", changed)

    trained_on(old)
    assert loaded(config, "training.keep=replay").data.replay == [old]
    assert loaded(config).data.replay == []
    trained_on("memory://store/train")
    with pytest.raises(UserError, match=r"trained on memory://store/train, which is not here"):
        loaded(config, "training.keep=replay")
    for overrides, told in (
        ([f"data.replay={old}"], "has no effect while training.keep is 'none'"),
        (["training.keep=adapters", "data.replay_share=0.1"], "has no effect while data.replay"),
        (["training.keep=replay", "data.replay=[]"], "training.keep replay needs data.replay"),
        (["data.replay_share=1"], "replay_share"),
        (["data.canary={Old One: x}"], "canary"),
        (["data.train=[]"], "data.train"),
        (["data.train=3"], "'data.train'.*3"),
    ):
        with pytest.raises(ConfigError, match=told):
            load_training(config, overrides)
    with pytest.raises(ConfigError, match=r"training\.keep.*no effect while training.start_from"):
        load_config(config, ["training.start_from=null", "training.keep=replay"])


def test_resumed_training_with_replay_equals_uninterrupted_training(
    config: Path, tmp_path: Path, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canaries are scored, the same after a stop, and change nothing."""
    plain = [
        "training.keep=replay", f"data.replay={old}", "context.chunk_sizes=[4]",
        "training.epochs=2", "training.validate_every_epochs=2",
    ]  # fmt: skip
    options = [*plain, f"data.canary={{old: {old}}}"]
    whole, alone, out = (tmp_path / name for name in ("whole", "alone", "out"))
    for folder, given in ((whole, options), (alone, plain)):
        given = [*given, f"training.output_dir={folder}"]
        assert train.main(["--config", str(config), *given]) == 0
    stop_after(3, config, monkeypatch, *options)
    assert train.main(["--config", str(config), *options, "--resume"]) == 0
    assert same(weights(whole), weights(out))
    logs = [(folder / "train.log").read_text() for folder in (whole, out, alone)]
    scored = [re.findall(r"canary old error rate(?:  \S+(?: ms)?: [\d.]+ %)+", log) for log in logs]
    assert scored[0]
    assert (scored[1][-1], scored[2]) == (scored[0][-1], [])
    rates, expected = (load_model(folder).training["dev_wer"] for folder in (whole, alone))
    assert all(line.count(": ") == len(rates) for line in scored[0])
    assert rates == expected
    assert same(weights(whole), weights(alone))

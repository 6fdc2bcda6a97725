"""`asrkit tune`: what it prints of a pair is what `asrkit evaluate` says of it."""

import json
import re
from pathlib import Path

import pytest
import soundfile
import torch

from asrkit import audio
from asrkit.commands.tune import Pair, climb, neighbours
from asrkit.config import parse_search
from asrkit.model_file import load_model, save_model
from tests.conftest import fitted, speech, write_wav
from tests.laws.test_export import file_of
from tests.running import LETTERS, UNSPACED, run, talkative_model


def test_climb_ends_where_no_neighbour_is_better() -> None:
    """A valley across both directions; what it ends at is the lowest of the finer grid."""

    def errors(pair: Pair) -> int:
        along, across = pair.weight - pair.bonus / 2 + 0.35, pair.weight + pair.bonus / 2 - 2.25
        return round(1000 * (10 * along**2 + across**2))

    assert climb(errors, Pair(0.5, 0.5)) == Pair(0.9, 2.5)
    assert climb(lambda pair: 0, Pair(0.5, 0.5)) == Pair(0.5, 0.5)


def test_neighbours_are_in_range() -> None:
    around = set(neighbours(Pair(0.2, 20.0), Pair(0.2, 0.5)))
    assert around == {Pair(0.2, 19.5), Pair(0.4, 19.5), Pair(0.4, 20.0)}


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> list[object]:
    """Options of a model, a language model and a manifest in which the latter is right."""
    model, arpa, dev = tmp_path / "m.safetensors", tmp_path / "lm.arpa", tmp_path / "dev.jsonl"
    labels = getattr(request, "param", LETTERS)
    talkative_model(model, labels=labels)
    soundfile.write(tmp_path / "x.wav", speech(2.0), 16000)
    search = ["--model", model, "--search", "prefix_beam", "--chunk-ms", "320"]
    texts = "ab ba\nba ab ba\nab\n".translate(str.maketrans(LETTERS, labels))
    (tmp_path / "texts.txt").write_text(texts, encoding="utf-8")
    assert run("ngram", "--model", model, "--output", arpa, tmp_path / "texts.txt") == 0
    strong = ["--lm", arpa, "--lm-weight", "3", "--word-bonus", "1"]
    assert run("decode", *search, *strong, tmp_path / "x.wav") == 0
    text = capsys.readouterr().out.strip().rpartition("\t")[2]
    dev.write_text(json.dumps({"id": "x", "audio": "x.wav", "text": text}) + "\n")
    return [*search, dev, "--lm", arpa]


@pytest.mark.parametrize(
    ("command", "name"), [(LETTERS, "WER"), (UNSPACED, "CER")], indirect=["command"]
)
def test_finds_a_pair_that_helps(
    command: list[object], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a script without spaces, by the units that the language model has."""
    assert run("tune", *command) == 0
    titles, *rows, best = capsys.readouterr().out.splitlines()
    assert titles.split()[2] == name
    rates = {row[:16].strip(): float(row[16:].split("%")[0]) for row in rows}
    found = re.fullmatch(r"best: --lm-weight (\S+) --word-bonus (\S+)", best)
    assert found is not None
    weight, bonus = found.groups()
    assert rates[f"{weight:<8} {bonus}"] == min(rates.values()) < rates["without"]
    assert "0.5      0.5" in rates
    *without, _, _ = command
    for options, name in (
        (without, "without"),
        ([*command, "--lm-weight", weight, "--word-bonus", bonus], f"{weight:<8} {bonus}"),
    ):
        assert run("evaluate", *options) == 0
        assert f"{rates[name]:.2f} %" in capsys.readouterr().out


def test_a_transducer_has_the_rates_of_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"kind": "transducer", "predictor_dim": 16, "joint_dim": 24, "max_symbols": 1}
    file, samples = file_of(head=head), torch.from_numpy(speech(2.0))[None]
    fitted(file.model, audio.Fbank()(samples, samples[:, :0])[0])
    model, arpa, dev = tmp_path / "m.safetensors", tmp_path / "lm.arpa", tmp_path / "dev.jsonl"
    save_model(model, file)
    write_wav(tmp_path / "x.wav", speech(2.0))
    (tmp_path / "texts.txt").write_text("ab ba\nba ab ba\nab\n")
    assert run("ngram", "--model", model, "--output", arpa, tmp_path / "texts.txt") == 0
    search = ["--model", model, "--search", "prefix_beam", "--beam", "2", "--chunk-ms", "320"]
    assert run("decode", *search, tmp_path / "x.wav") == 0
    text = capsys.readouterr().out.strip().rpartition("\t")[2]
    assert len(text) > 2
    dev.write_text(json.dumps({"id": "x", "audio": "x.wav", "text": text}) + "\n")
    assert run("tune", *search, dev, "--lm", arpa) == 0
    rates = dict(
        line.split("%")[0].rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:-1]
    )
    assert float(rates["without"]) == 0.0
    assert (
        run("evaluate", *search, dev, "--lm", arpa, "--lm-weight", "0.7", "--word-bonus", "0") == 0
    )
    assert f"{rates['0.7      0']} %" in capsys.readouterr().out


def test_the_models_own_search_is_kept(
    command: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --search a greedy model is searched with a beam, another as its file says."""
    model = tmp_path / "m.safetensors"
    own = parse_search({"kind": "prefix_beam", "beam": 1, "blank_penalty": 1.0})
    shown = []
    for search, asked in (
        (None, []),
        (None, ["--search", "prefix_beam"]),
        (own, []),
        (None, ["--search", "{kind: prefix_beam, beam: 1, blank_penalty: 1.0}"]),
    ):
        file = load_model(model)
        if search is not None:
            file = file._replace(config=file.config.model_copy(update={"search": search}))
        save_model(tmp_path / "other.safetensors", file)
        rest = command[command.index("--chunk-ms") :]  # no --search
        options = ["--model", tmp_path / "other.safetensors", *rest, *asked]
        assert run("tune", *options) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2] == shown[3]


def test_one_that_does_not_help_is_said(
    command: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reference is what is heard without it: nothing can be better."""
    *without, _, _ = command
    *plain, _ = without
    assert run("decode", *plain, tmp_path / "x.wav") == 0
    text = capsys.readouterr().out.strip().rpartition("\t")[2]
    line = json.dumps({"id": "x", "audio": "x.wav", "text": text})
    (tmp_path / "dev.jsonl").write_text(line + "\n")
    assert run("tune", *command) == 0
    assert capsys.readouterr().out.endswith(
        "no pair is better than recognition without a language model\n"
    )


def test_mistakes(
    command: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *without, _, _ = command
    empty = tmp_path / "empty.jsonl"
    empty.write_text(json.dumps({"id": "x", "audio": "none.wav", "text": "a"}) + "\n")
    for options, message in (
        (without, "tuning needs a language model: --lm FILE"),
        ([*command, "--search", "greedy"], "search greedy takes no language model"),
        ([empty if o == tmp_path / "dev.jsonl" else o for o in command], "no utterance could be"),
    ):
        assert run("tune", *options) == 2
        assert message in capsys.readouterr().err


def test_texts_without_words_are_nothing_to_tune_on(
    command: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.jsonl").write_text('{"id": "x", "audio": "x.wav", "text": ""}\n')
    assert run("tune", *command) == 2
    assert "the texts have no words" in capsys.readouterr().err

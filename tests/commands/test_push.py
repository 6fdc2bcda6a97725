"""asrkit push: the model file and its card, in one commit, and never over a card that is there."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from asrkit.commands.push import card_of
from asrkit.hub import Address
from asrkit.model_file import load_model, save_model
from asrkit.model_path import model_path
from asrkit.terms import Terms
from tests import hub_server
from tests.running import run, talkative_model
from tests.test_model_file import a_file

MODEL = "model.safetensors"
SCORES = {
    "epochs": 2, "steps": 80, "audio_hours_per_epoch": 0.25, "wall_seconds": 600,
    "dev_wer": {"full": 2.35, "320 ms": 3.5}, "dev_cer": {"full": 1.5},
    "dev_delay_ms": {"320 ms": {"median": 120, "mean": 1}},
}  # fmt: skip


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub without repositories, where this process may write; m.safetensors is here."""
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    monkeypatch.chdir(tmp_path)
    file = load_model(talkative_model(tmp_path / "m.safetensors"))
    save_model("m.safetensors", file._replace(training=SCORES))
    with hub_server.serving() as found:
        hub_server.use(monkeypatch, found.address, tmp_path / "cache")
        yield found


def pushed(*arguments: object) -> int:
    return run("push", "m.safetensors", "me/tiny", "--licence", "CC-BY-4.0", *arguments)


def files(remote: hub_server.Hub, branch: str = "main") -> dict[str, bytes]:
    repository = remote.repositories["me/tiny"]
    return repository.commits[repository.refs[branch]]


def properties(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_pushed_and_loaded(remote: hub_server.Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """The file goes as huggingface.co wants large ones, the card beside it, in one commit."""
    assert pushed() == 0
    told = capsys.readouterr().out
    commit = remote.repositories["me/tiny"].refs["main"]
    assert told.startswith(f"hf://me/tiny@{commit}: model.safetensors, 0.2 MB and README.md\n")
    assert files(remote)[MODEL] == Path("m.safetensors").read_bytes()
    assert not remote.repositories["me/tiny"].private
    assert load_model(f"hf://me/tiny@{commit}").training == SCORES


def test_the_card(remote: hub_server.Hub) -> None:
    assert pushed("--language", "en", "--language", "de") == 0
    text = files(remote)["README.md"].decode()
    assert properties(text) == {
        "license": "cc-by-4.0", "language": ["en", "de"], "library_name": "asrkit",
        "pipeline_tag": "automatic-speech-recognition",
        "tags": ["asrkit", "streaming", "conformer", "ctc"],
    }  # fmt: skip
    for part in (
        'asrkit.load("hf://me/tiny")',
        "    dev_wer: {full: 2.35, 320 ms: 3.5}\n",
        "    epochs: 2\n",
    ):
        assert part in text


def test_a_card_that_is_there_stays(
    remote: hub_server.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    remote.make("me/tiny").commit(README__md=b"mine")
    assert pushed() == 0
    assert files(remote)["README.md"] == b"mine"
    assert "its README.md stays (--overwrite-card)" in capsys.readouterr().out
    assert pushed("--overwrite-card") == 0
    assert b'asrkit.load("hf://me/tiny")' in files(remote)["README.md"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [("# mine\n\nIts words.\n", "# mine\n\nIts words.\n\n## Use\n"), ("---\na: 1\n---\nb\n", None)],
)
def test_the_models_own_card(own: str, expected: str | None) -> None:
    """Gets what it lacks; one that has properties is complete."""
    file = a_file()._replace(terms=Terms("MIT"))
    text = card_of(file, Address("me/tiny"), own)
    assert (
        text == own
        if expected is None
        else text.split("---\n", 2)[2].lstrip()[: len(expected)] == expected
    )
    assert "A streaming Conformer with CTC for asrkit" in card_of(file, Address("me/tiny"), None)


def test_a_dry_run_asks_nobody(remote: hub_server.Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert pushed("--dry-run") == 0
    told = capsys.readouterr().out
    assert "hf://me/tiny would get model.safetensors, 0.2 MB, and this README.md" in told
    assert (remote.requests, remote.repositories) == ([], {})
    assert pushed() == 0
    assert files(remote)["README.md"].decode() in told


def test_a_branch_and_a_name(remote: hub_server.Hub) -> None:
    remote.make("me/tiny").commit(README__md=b"mine")
    command = ("push", "m.safetensors", "me/tiny@next/small.safetensors", "--licence", "mit")
    assert run(*command) == run(*command) == 0
    assert files(remote).keys() == {"README.md"}
    assert files(remote, "next").keys() == {"README.md", "small.safetensors"}
    assert model_path("hf://me/tiny@next/small.safetensors").is_file()


def test_private(remote: hub_server.Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that must be private is written where all can read it."""
    assert pushed("--private") == 0
    repository = remote.repositories["me/tiny"]
    assert repository.private
    repository.private = False
    before = dict(repository.refs)
    assert pushed("--private") == 2
    assert "hf://me/tiny is public: --private is for" in capsys.readouterr().err
    assert repository.refs == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m.safetensors", "me/tiny"], "does not state its licence: add --licence, such as"),
        (["m.safetensors", "tiny", "--licence", "mit"], "a model on the hub must be hf://owner/name"),
        (["m.safetensors", "../tiny", "--licence", "mit"], "a model on the hub must be hf://owner/name"),
        (["none", "me/tiny", "--licence", "mit"], "no model file none"),
        (["m.safetensors", "me/tiny", "--licence", "a\nb"], "must be one printable line"),
        (["m.safetensors", "me/tiny", "--licence", "mit", "--language", "English"],
         "a language must be a code of two or three letters, such as en, got 'English'"),
    ],
)  # fmt: skip
def test_mistakes(
    arguments: list[str], message: str, remote: hub_server.Hub, refused: Callable[..., str]
) -> None:
    assert message in refused("push", *arguments)
    assert remote.requests == []


def test_what_the_hub_refuses(
    remote: hub_server.Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a token, and when somebody else wrote a commit meanwhile."""
    assert pushed() == 0
    repository = remote.repositories["me/tiny"]
    upload = hub_server.Handler.preupload

    def late(self: hub_server.Handler, body: bytes, name: str, revision: str) -> None:
        repository.commit(README__md=b"theirs")
        upload(self, body, name, revision)

    pattern = next(each for each, do in hub_server.ROUTES.items() if do is upload)
    monkeypatch.setitem(hub_server.ROUTES, pattern, late)
    capsys.readouterr()
    assert pushed("--overwrite-card") == 2
    assert files(remote)["README.md"] == b"theirs"
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert pushed() == 2
    err = capsys.readouterr().err
    moved, refused = (line for line in err.splitlines() if line.startswith("asrkit push: "))
    assert moved.startswith("asrkit push: hf://me/tiny: it has a new commit since: try again")
    assert refused.startswith("asrkit push: hf://me/tiny: not allowed: set HF_TOKEN to a token")
    assert "Traceback" not in err
    assert "hf_other" not in err


def test_the_training_of_a_stranger_is_code(remote: hub_server.Hub) -> None:
    odd = {"dev_wer": {"| <b>": 1.0}, "imported": {"licence": "---\nx: 1\n```\n# x"}}
    save_model("m.safetensors", load_model("m.safetensors")._replace(training=odd))
    assert pushed() == 0
    text = files(remote)["README.md"].decode().partition("## Training\n\n")[2]
    assert "<b>" in text
    assert all(line.startswith("    ") for line in text.splitlines() if line)
    assert run("push", "m.safetensors", "me/tiny") == 2  # nor is that a licence


SHARED = Terms("CC-BY-SA-4.0", ("de", "en"))


def test_the_licence_and_languages_of_the_file_are_pushed(
    remote: hub_server.Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    for terms, expected in (
        (SHARED, ("cc-by-sa-4.0", None, ["de", "en"])),
        (Terms("My Own"), ("other", "My Own", None)),
    ):
        save_model("m.safetensors", load_model("m.safetensors")._replace(terms=terms))
        assert run("push", "m.safetensors", "me/tiny", "--overwrite-card") == 0
        found = properties(files(remote)["README.md"].decode())
        assert (found["license"], found.get("license_name"), found.get("language")) == expected
    assert "asrkit push" not in capsys.readouterr().err

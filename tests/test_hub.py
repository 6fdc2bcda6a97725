"""Models of the hub: hf:// alone asks it, one file comes, and it is checked as any other."""

import hashlib
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import asrkit
from asrkit.commands.serve import name_of
from asrkit.errors import UserError
from asrkit.extras import missing
from asrkit.hub import catalogue, downloads
from asrkit.hub.catalogue import Entry, read_catalogue
from asrkit.model_contents import ModelFileError
from asrkit.model_file import load_model, read_header
from asrkit.model_path import model_path
from tests import hub_server
from tests.interop.test_import import checkpoint
from tests.interop.test_whisper import of_transformers, openai_weights
from tests.running import run, talkative_model

pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return talkative_model(tmp_path_factory.mktemp("model") / "m.safetensors").read_bytes()


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    """A hub without repositories, which the library asks in this test; nobody has a token."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    with hub_server.serving() as found:
        hub_server.use(monkeypatch, found.address, tmp_path / "cache")
        yield found


@pytest.fixture
def commit(remote: hub_server.Hub, model: bytes) -> str:
    """The commit of me/tiny, which holds a model."""
    return remote.make("me/tiny").commit(model__safetensors=model)


def refusal(text: str) -> str:
    """What is said of a model of the hub that cannot be had: one line, to be printed."""
    with pytest.raises(UserError) as caught:
        load_model(text)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 500
    return message


def sent(remote: hub_server.Hub) -> list[str]:
    """The requests of the contents of files."""
    return [each for each in remote.requests if each.startswith("GET") and "/resolve/" in each]


def test_a_model_is_loaded_and_kept(remote: hub_server.Hub, model: bytes) -> None:
    """Of the repository one file comes, once."""
    remote.make("me/tiny").commit(model__safetensors=model, README__md=b"#", model__bin=b"pickle")
    assert asrkit.load("hf://me/tiny").tokenizer.vocab_size == 12
    path = model_path("hf://me/tiny")
    assert path.read_bytes() == model
    assert [each.name for each in path.parent.iterdir()] == ["model.safetensors"]
    gets = [each for each in remote.requests if each.startswith("GET") and "me/tiny" in each]
    listing = "GET /api/models/me/tiny"
    assert gets == [listing, "GET /me/tiny/resolve/main/model.safetensors", listing]
    assert run("info", "hf://me/tiny") == 0


@pytest.mark.usefixtures("commit")
def test_a_plain_name_asks_nobody(remote: hub_server.Hub, tmp_path: Path) -> None:
    for name in ("me/tiny", "me/tiny@main", "HF://me/tiny", "hf:me/tiny", Path("hf://me/tiny")):
        with pytest.raises(ModelFileError):
            load_model(name)
    assert remote.requests == []
    with pytest.raises(ModelFileError, match=r"or hf://me/tiny of the hub$"):
        load_model("me/tiny")
    (tmp_path / "me").mkdir()  # then it is a path
    with pytest.raises(ModelFileError, match=r"or hf://owner/name of the hub$"):
        load_model("me/tiny")
    load_model("hf://me/tiny")
    assert remote.requests != []  # the control


def test_a_revision_is_pinned(remote: hub_server.Hub, model: bytes, commit: str) -> None:
    repository = remote.make("me/tiny")
    repository.refs["v1.0"] = repository.refs["feature/x"] = commit
    repository.commit(model__safetensors=b"another")
    for revision in ("v1.0", "feature/x", commit):
        assert model_path(f"hf://me/tiny@{revision}").read_bytes() == model
    assert model_path("hf://me/tiny").read_bytes() == b"another"
    count = len(remote.requests)
    assert model_path(f"hf://me/tiny@{commit}").read_bytes() == model
    assert len(remote.requests) == count  # a commit cannot change: nobody is asked


def test_which_file(remote: hub_server.Hub, model: bytes) -> None:
    repository = remote.make("me/tiny")
    repository.commit(README__md=b"#")
    said = "hf://me/tiny has no .safetensors or .nemo file: name another repository"
    assert refusal("hf://me/tiny") == said
    repository.commit(only__safetensors=model)
    assert model_path("hf://me/tiny").name == "only.safetensors"
    repository.commit(small__safetensors=b"small")
    said = "hf://me/tiny/FILE: only.safetensors, small.safetensors"
    assert refusal("hf://me/tiny").endswith(said)
    assert model_path("hf://me/tiny/small.safetensors").read_bytes() == b"small"
    assert model_path("hf://me/tiny@main/small.safetensors").read_bytes() == b"small"
    said = "hf://me/tiny/big.safetensors: no such file in this repository"
    assert refusal("hf://me/tiny/big.safetensors") == said


def test_a_file_that_was_named_is_not_taken_for_the_one_that_would_be_chosen(
    remote: hub_server.Hub, model: bytes, commit: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """The cache lacks the other files of the commit."""
    from huggingface_hub import hf_hub_download

    commit = remote.make("me/tiny").commit(small__safetensors=b"small")
    named, chosen = f"hf://me/tiny@{commit}/small.safetensors", f"hf://me/tiny@{commit}"
    for load in (
        lambda: model_path(named),
        lambda: hf_hub_download("me/tiny", "small.safetensors", revision=commit),
    ):
        load()
        assert model_path(chosen).read_bytes() == model
        shutil.rmtree(tmp_path / "cache")
    model_path(named)
    hub_server.use(monkeypatch, remote.address, tmp_path / "cache", offline=True)
    assert "not in the cache" in refusal(chosen)
    assert model_path(named).read_bytes() == b"small"


def test_offline(
    remote: hub_server.Hub, commit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = model_path("hf://me/tiny")
    hub_server.use(monkeypatch, remote.address, tmp_path / "cache", offline=True)
    count = len(remote.requests)
    assert model_path("hf://me/tiny") == path
    for unknown in ("hf://me/other", "hf://me/tiny@v2"):
        assert refusal(unknown) == f"{unknown}: not in the cache, and HF_HUB_OFFLINE is set"
    assert len(remote.requests) == count


def test_what_the_hub_refuses(
    remote: hub_server.Hub, model: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gated", "private", "public"):
        remote.make(f"me/{name}").commit(model__safetensors=model)
    remote.make("me/gated").gated = remote.make("me/private").private = True
    expected = {
        "hf://me/none": "no such repository, or a private one: set HF_TOKEN",
        "hf://me/private": "no such repository, or a private one: set HF_TOKEN",
        "hf://me/public@v9": "no such revision: give a branch, a tag or a commit",
        "hf://me/gated": "its owner grants access: ask at "
        f"{remote.address}/me/gated, then set HF_TOKEN",
    }
    assert {text: refusal(text) for text in expected} == {
        text: f"{text}: {why}" for text, why in expected.items()
    }
    monkeypatch.setenv("HF_TOKEN", hub_server.TOKEN)
    for name in ("gated", "private"):
        assert model_path(f"hf://me/{name}").read_bytes() == model


def test_no_answer(
    commit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the cache with a line, or an error; the control is the same with the hub there."""
    path = model_path("hf://me/tiny")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the library's attempts
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    hub_server.use(monkeypatch, f"http://127.0.0.1:{port}", tmp_path / "cache")
    assert "is read from the cache" not in caplog.text
    assert model_path("hf://me/tiny") == path
    assert "me/tiny: its commit" in caplog.text
    said = f"hf://me/other: not in the cache, and http://127.0.0.1:{port} cannot be"
    assert refusal("hf://me/other").startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "hf://", "hf://tiny", "hf://../tiny", "hf://me/tiny@../x", "hf://me/tiny/../x.safetensors",
        "hf://me/tiny/model.bin", "hf://me/tiny\n", "hf://me/t\u00efny", "hf://me/tiny?x=1",
        "hf://user:pass@me/tiny", "hf://me/a--b", "hf://me/" + "x" * 400, "hf://me/\x1b]0;title",
    ],
)  # fmt: skip
def test_odd_addresses_reach_nobody(
    text: str, remote: hub_server.Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # not even its library
    said = "a model on the hub must be hf://owner/name, hf://owner/name@revision or"
    assert said in refusal(text)
    assert refusal("hf://me/tiny") == missing(["huggingface_hub"])
    assert remote.requests == []


@pytest.mark.parametrize("key", ["sha", "rfilename"])
@pytest.mark.parametrize("value", ["../../../../../../out", "/OUT", "..", "a/b", "a\\b", ".git"])
def test_a_hostile_hub_has_no_file_written_elsewhere(
    remote: hub_server.Hub, model: bytes, commit: str, tmp_path: Path, key: str, value: str
) -> None:
    value = value.replace("/OUT", str(tmp_path / "out"))
    file = {"rfilename": "model.safetensors", "size": len(model), "blobId": "0" * 40}
    remote.answer = {"sha": value} if key == "sha" else {"siblings": [file | {key: value}]}
    said = "has no .safetensors or .nemo file" if key == "rfilename" else "the hub sends"
    assert said in refusal("hf://me/tiny")
    assert {path.name for path in tmp_path.iterdir()} <= {"cache", "model"}
    assert not any("out" in path.name for path in (tmp_path / "cache").rglob("*"))
    assert sent(remote) == []
    remote.answer = {}
    assert model_path("hf://me/tiny").read_bytes() == model  # the control


def test_other_contents_than_stated(
    remote: hub_server.Hub, model: bytes, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = "hf://me/tiny: the hub sends {} bytes as model.safetensors, and its listing states"
    for contents, answer, said in (
        (model, {"sha": "0" * 40}, "in place of"),
        (bytes(len(model)), {}, "hf://me/tiny: model.safetensors is damaged: its digest is"),
        (model + b"x", {}, stated.format(len(model) + 1)),
        (model[:-1], {}, stated.format(len(model) - 1)),
    ):
        remote.contents["model.safetensors"], remote.answer = contents, answer
        before = remote.bytes_sent
        assert said in refusal(f"hf://me/tiny@{commit}" if answer else "hf://me/tiny")
        assert remote.bytes_sent - before == ("damaged" in said) * len(model)
        assert not list(Path("cache").rglob("model.safetensors"))
    remote.contents.clear()
    remote.answer = {}
    with monkeypatch.context() as patch:
        patch.setattr(downloads, "MOST_BYTES", len(model) - 1)
        assert f"has {len(model)} bytes: a model has" in refusal("hf://me/tiny")
    assert model_path("hf://me/tiny").read_bytes() == model  # the control


@pytest.mark.parametrize("can_be_written", [True, False])
def test_a_file_of_the_cache_is_not_downloaded(
    remote: hub_server.Hub, model: bytes, commit: str, can_be_written: bool
) -> None:
    """Another program of the library may have put it there, into a cache that is only read."""
    from huggingface_hub import hf_hub_download

    path = Path(hf_hub_download("me/tiny", "model.safetensors"))
    if not can_be_written:
        Path("cache/asrkit").write_text("in the way of records")
    assert model_path("hf://me/tiny") == path
    assert len(sent(remote)) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_file_that_nobody_compared_is_compared(
    remote: hub_server.Hub, model: bytes, commit: str, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The process was killed after the download; the hub is asked for the digest, or was before."""
    address = f"hf://me/tiny@{commit}" if known else "hf://me/tiny"
    remote.contents["model.safetensors"] = bytes(len(model))
    with monkeypatch.context() as patch:
        patch.setattr(downloads, "compare", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            model_path(address)
    assert list(Path("cache").rglob("model.safetensors"))
    remote.contents.clear()
    count = len(remote.requests)
    assert "model.safetensors is damaged: its digest is" in refusal(address)
    assert (len(remote.requests) == count) == known
    assert not list(Path("cache").rglob("model.safetensors"))
    compared = list[str]()
    whole = downloads.compare
    monkeypatch.setattr(
        downloads, "compare", lambda *each: compared.append(each[1].name) or whole(*each)
    )
    for _ in range(2):
        assert model_path(address).read_bytes() == model
    assert compared == ["model.safetensors"]


@pytest.fixture(scope="module")
def nemo(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return checkpoint(tmp_path_factory.mktemp("nemo") / "m.nemo").read_bytes()


CARD = {"license": "other", "license_name": "open-weights", "language": ["en", "en-US"]}


def test_a_checkpoint_is_converted_once(
    remote: hub_server.Hub, nemo: bytes, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, tmp_path: Path,
) -> None:  # fmt: skip
    repository = remote.make("me/small")
    repository.card = CARD
    commit = repository.commit(m__nemo=nemo, README__md=b"#")
    file = load_model("hf://me/small")
    assert file.terms == (CARD["license_name"], ("en",))
    assert file.training["imported"]["sha256"] == {"m.nemo": hashlib.sha256(nemo).hexdigest()}
    first, second = caplog.messages
    assert first == "downloading hf://me/small: m.nemo, 0.1 MB; licence: open-weights"
    assert second.startswith("converting m.nemo to ")
    monkeypatch.setattr("asrkit.interop.import_checkpoint", None)
    assert load_model(f"hf://me/small@{commit}/m.nemo").path == file.path
    hub_server.use(monkeypatch, remote.address, tmp_path / "cache", offline=True)
    assert asrkit.load("hf://me/small").tokenizer.vocab_size == file.tokenizer.vocab_size
    assert len(sent(remote)) == 1


def test_a_checkpoint_that_cannot_be_converted(remote: hub_server.Hub, nemo: bytes) -> None:
    repository = remote.make("me/small")
    repository.commit(m__nemo=nemo)
    assert refusal("hf://me/small") == (
        "the licence of hf://me/small is not known, its card states none or the hub has no "
        "answer: asrkit import nemo hf://me/small --output FILE --licence NAME"
    )
    repository.card = CARD
    repository.commit(m__nemo=nemo[:3000])
    assert "m.nemo" in refusal("hf://me/small")
    assert not list(Path("cache").rglob("small.safetensors"))
    repository.commit(m__nemo=nemo)
    load_model("hf://me/small")  # the control


@pytest.fixture
def named(remote: hub_server.Hub, nemo: bytes, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A model of the catalogue, pinned to a commit."""
    commit = remote.make("me/small").commit(m__nemo=nemo)
    remote.make("me/small").commit(m__nemo=b"of another commit")
    entry = next(each for each in read_catalogue().models if each.format == "nemo")
    entry = entry.model_copy(update={
        "name": "small-1.0", "repository": "me/small", "revision": commit, "file": "m.nemo",
        "size": len(nemo), "sha256": hashlib.sha256(nemo).hexdigest(), "prompt": None,
    })  # fmt: skip
    found = read_catalogue().model_copy(update={"models": [entry]})
    monkeypatch.setattr(catalogue, "read_catalogue", lambda: found)
    return entry


def test_a_name_of_the_catalogue(named: Entry, remote: hub_server.Hub) -> None:
    assert remote.requests == []
    file = load_model("small-1.0")
    assert file.terms == (named.licence, tuple(named.languages))
    assert read_header("small-1.0").config == file.config
    assert name_of("small-1.0") == "small-1.0"
    count = len(remote.requests)
    assert model_path("small-1.0") == file.path
    assert len(remote.requests) == count
    assert refusal("smal-1.0").endswith("; did you mean small-1.0?")


def test_other_contents_than_the_catalogue_states(
    named: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = named.model_copy(update={"sha256": "0" * 64})
    found = catalogue.read_catalogue().model_copy(update={"models": [other]})
    monkeypatch.setattr(catalogue, "read_catalogue", lambda: found)
    assert "m.nemo is damaged: its digest is" in refusal("small-1.0")
    assert not list(Path("cache").rglob("m.nemo"))


def test_a_file_of_the_cache_is_compared_with_the_catalogue(named: Entry) -> None:
    """Also if another program of the library has put it there."""
    from huggingface_hub import hf_hub_download

    hf_hub_download("me/small", "m.nemo", revision=named.revision)
    (path,) = Path("cache").rglob("m.nemo")
    data = path.read_bytes()
    path.resolve().write_bytes(bytes(len(data)))
    assert "m.nemo is damaged: its digest is" in refusal("small-1.0")
    load_model("small-1.0")  # the control


@pytest.mark.parametrize(
    "name",
    ["parakeet-tdt-0.6b-v3", "nvidia/parakeet-unified-en-0.6b", "hf://nvidia/canary-1b",
     "whisper-base", "hf://openai/whisper-large-v3"],
)  # fmt: skip
def test_models_that_cannot_run(name: str, remote: hub_server.Hub) -> None:
    said = refusal(name)
    assert "is not a model that asrkit runs by name: " in said
    assert "; the nearest one is " in said
    assert remote.requests == []
    assert "no such repository" in refusal("hf://me/whisper-base")  # the control
    ngc = "stt_en_fastconformer_hybrid_large_streaming_80ms"
    assert f"from https://ngc.nvidia.com/catalog/models/nvidia:nemo:{ngc} for" in refusal(ngc)
    assert "no model file whisper.safetensors: " in refusal("whisper.safetensors")


def test_imports_from_the_hub(
    remote: hub_server.Hub, nemo: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the format come, and the card has the licence."""
    folder = of_transformers(tmp_path, openai_weights())
    repository = remote.make("openai/whisper-base")
    repository.card = {"license": "apache-2.0", "language": "de"}
    names = ("model.safetensors", "config.json")
    files = {name: (folder / name).read_bytes() for name in names} | {"pytorch_model.bin": b"x"}
    repository.commit(**{name.replace(".", "__"): data for name, data in files.items()})
    command = ("import", "whisper", "hf://openai/whisper-base", "--output", "w.safetensors")
    assert run(*command) == 0
    file = load_model("w.safetensors")
    assert file.terms == ("apache-2.0", ("de",))
    assert file.training["imported"]["name"] == "whisper-base"
    assert len(sent(remote)) == 2
    remote.make("me/small").commit(m__nemo=nemo)
    command = ("import", "nemo", "hf://me/small", "--output", "n.safetensors")
    assert run(*command) == 2
    said = (
        "hf://me/small is not known, its card states none or the hub has no answer: add --licence"
    )
    assert said in capsys.readouterr().err
    assert len(sent(remote)) == 2  # nothing is downloaded before
    assert run(*command, "--licence", "MIT") == 0
    for source, said in (
        ("hf://openai/whisper-base", "is not a model that asrkit runs"),
        ("hf://me/empty", "no such repository"),
    ):
        arguments = ("import", "nemo", source, "--output", "x.safetensors")
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1


def test_imports_without_a_network_know_the_licence(
    remote: hub_server.Hub, nemo: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """That of the download; a file that another program downloaded needs --licence."""
    from huggingface_hub import hf_hub_download

    for name in ("small", "other"):
        remote.make(f"me/{name}").card = CARD
        remote.make(f"me/{name}").commit(m__nemo=nemo)
    hf_hub_download("me/other", "m.nemo")
    command = ("import", "nemo", "hf://me/small", "--output", "n.safetensors")
    assert run(*command) == 0
    hub_server.use(monkeypatch, remote.address, tmp_path / "cache", offline=True)
    assert run(*command, "--head", "ctc") == 0
    assert load_model("n.safetensors").terms == (CARD["license_name"], ("en",))
    command = ("import", "nemo", "hf://me/other", "--output", "n.safetensors")
    assert run(*command) == 2
    assert "or the hub has no answer: add --licence" in capsys.readouterr().err
    assert run(*command, "--licence", "MIT") == 0

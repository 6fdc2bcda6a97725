"""A hub in a thread: the endpoints of huggingface.co that its library calls to load and upload."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_test"


@dataclass
class Repository:
    refs: dict[str, str] = field(default_factory=dict)  # commits of branches and tags
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # their files
    private: bool = False
    gated: bool = False
    card: dict[str, Any] | None = None  # properties of the card

    def commit(self, ref: str = "main", **files: bytes) -> str:
        """Add files, in whose names __ stands for a dot; the commit."""
        before = self.commits.get(self.refs.get(ref, ""), {})
        after = before | {name.replace("__", "."): data for name, data in files.items()}
        name = hashlib.sha1(f"{ref}{len(self.commits)}".encode()).hexdigest()
        self.refs[ref], self.commits[name] = name, after
        return name


@dataclass
class Hub:
    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)  # method and path
    objects: dict[str, bytes] = field(default_factory=dict)  # uploaded, by SHA-256
    answer: dict[str, Any] = field(default_factory=dict)  # in place of the values of a listing
    contents: dict[str, bytes] = field(default_factory=dict)  # in place of those of files
    bytes_sent: int = 0

    def make(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, data: object = b"", **headers: str) -> None:
        super().__init__(status)
        self.status, self.data, self.headers = status, data, headers


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def answer(self, status: int, data: object = b"", **headers: str) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def repository(self, name: str) -> Repository:
        found = self.hub.repositories.get(name)
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        if found is None or (found.private and not allowed):
            raise RefusedError(404 if allowed else 401, X_Error_Code="RepoNotFound")
        if found.gated and not allowed:
            raise RefusedError(403, X_Error_Code="GatedRepo")
        return found

    def files(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        """A commit and its files."""
        found = self.repository(name)
        commit = found.refs.get(revision, revision)
        if commit not in found.commits:
            raise RefusedError(404, X_Error_Code="RevisionNotFound")
        return commit, found.commits[commit]

    def handle_any(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        try:
            for pattern, handle in ROUTES.items():
                if found := re.fullmatch(pattern, f"{self.command} {path}"):
                    handle(self, body, *found.groups())
                    return
            raise RefusedError(404)
        except RefusedError as refusal:
            self.answer(refusal.status, refusal.data, **refusal.headers)

    do_HEAD = do_GET = do_POST = do_PUT = handle_any  # noqa: N815

    def resolve(self, body: bytes, name: str, revision: str, file: str) -> None:
        commit, files = self.files(name, revision)
        if file not in files:
            raise RefusedError(404, X_Error_Code="EntryNotFound")
        data = self.hub.contents.get(file, files[file])
        if self.command != "HEAD":
            self.hub.bytes_sent += len(data)  # before the client has all
        digest = hashlib.sha256(data).hexdigest()
        self.answer(200, data, X_Repo_Commit=commit, ETag=f'"{digest}"')
        self.close_connection = True

    def info(self, body: bytes, name: str, revision: str | None) -> None:
        commit, files = self.files(name, revision or "main")
        found = self.repository(name)
        siblings = [
            {"rfilename": file, "size": len(data), "blobId": git_digest(data)}
            | ({"lfs": {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                        "pointerSize": 130}} if is_large(file) else {})
            for file, data in files.items()
        ]  # fmt: skip
        answer = {"id": name, "sha": commit, "private": found.private, "siblings": siblings}
        self.answer(200, answer | {"cardData": found.card} | self.hub.answer)

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        answer = {"url": f"{self.hub.address}/{name}"}
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            raise RefusedError(401, {"error": "Invalid username or password."})
        if name in self.hub.repositories:
            raise RefusedError(409, answer | {"error": "You already created this model repo"})
        made = self.hub.make(name)
        made.private = asked.get("visibility") == "private" or bool(asked.get("private"))
        made.commit(__gitattributes=b"")
        self.answer(200, answer)

    def branch(self, body: bytes, name: str, branch: str) -> None:
        repository = self.repository(name)
        if branch in repository.refs:
            raise RefusedError(409, {"error": "it is there"})
        repository.refs[branch] = repository.refs["main"]
        self.answer(200)

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            raise RefusedError(403, {"error": "you may not write here"})
        self.answer(200, {"files": [
            {"path": each["path"], "shouldIgnore": False,
             "uploadMode": "lfs" if is_large(each["path"]) else "regular"}
            for each in json.loads(body)["files"]
        ]})  # fmt: skip

    def batch(self, body: bytes, name: str) -> None:
        self.answer(200, {"transfer": "basic", "objects": [
            each | {"actions": {"upload": {"href": f"{self.hub.address}/lfs/{each['oid']}"}}}
            for each in json.loads(body)["objects"]
        ]})  # fmt: skip

    def put(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self.answer(200)

    def commit(self, body: bytes, name: str, revision: str) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        repository, files = self.hub.repositories[name], {}
        for line in lines[1:]:
            value = line["value"]
            lfs = line["key"] == "lfsFile"
            data = self.hub.objects[value["oid"]] if lfs else base64.b64decode(value["content"])
            files[value["path"]] = data
        if lines[0]["value"].get("parentCommit") != repository.refs[revision]:
            raise RefusedError(412, {"error": "the branch has moved on"})
        oid = repository.commit(revision, **files)
        self.answer(200, {"commitUrl": f"{self.hub.address}/{name}/commit/{oid}", "commitOid": oid})


def is_large(file: str) -> bool:
    """Whether a file is stored outside git."""
    return file.endswith((".safetensors", ".nemo", ".pt"))


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = {
    rf"(?:GET|HEAD) /{NAME}/resolve/([^/]+)/(.+)": Handler.resolve,
    rf"GET /api/models/{NAME}(?:/revision/(.+))?": Handler.info,
    r"POST /api/repos/create": Handler.create,
    rf"POST /api/models/{NAME}/branch/(.+)": Handler.branch,
    r"POST /api/validate-yaml": lambda handler, body: handler.answer(200, {"errors": []}),
    rf"POST /api/models/{NAME}/preupload/(.+)": Handler.preupload,
    rf"POST /{NAME}\.git/info/lfs/objects/batch": Handler.batch,
    r"PUT /lfs/(\w+)": Handler.put,
    rf"POST /api/models/{NAME}/commit/(.+)": Handler.commit,
}


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub without repositories."""
    handler = type("OneHub", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.hub = Hub(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield handler.hub
        finally:
            server.shutdown()
            thread.join()


def use(
    monkeypatch: pytest.MonkeyPatch, address: str, cache: object, offline: bool = False
) -> None:
    """Have the library ask this address and keep its cache there, as its variables would."""
    constants: ModuleType = pytest.importorskip("huggingface_hub.constants")
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HOME", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", f"{cache}/hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", f"{cache}/token")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")

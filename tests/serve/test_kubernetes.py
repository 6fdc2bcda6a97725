"""deploy/kubernetes.yaml: its options, paths, ports, files and metric are those of the server."""

import copy
import re
from typing import Any

import pytest
import yaml

from asrkit.commands.serve import main
from asrkit.serve.app import app_of
from asrkit.serve.metrics import Figures
from asrkit.serve.server import Server
from tests.conftest import PROJECT

Objects = dict[tuple[str, str], Any]
SAVE_S = 20  # seconds to close connections and save calls, at most


def manifest() -> Objects:
    documents = yaml.safe_load_all((PROJECT / "deploy/kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents}


def faults(objects: Objects, options: set[str]) -> list[str]:
    """Return what does not fit the server, or another object."""
    found = []
    pod = objects["Deployment", "asrkit"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each.partition("=")[0] for each in container["args"]}
    found += [f"option {each}" for each in given - options]
    paths = {getattr(route, "path", "") for route in app_of(Server({})).routes}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        found += [] if asked["path"] in paths else [f"path {asked['path']}"]
        named = {each["name"] for each in container["ports"]}
        found += [] if asked["port"] in named else [f"port {asked['port']}"]
    if "readyz" not in container["readinessProbe"]["httpGet"]["path"]:
        found.append("readiness")
    drain = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    if pod["terminationGracePeriodSeconds"] < drain + SAVE_S:
        found.append("grace")
    (metric,) = objects["HorizontalPodAutoscaler", "asrkit"]["metrics"]
    exported = re.findall(r"^# TYPE (\S+)", Figures().exposition().decode(), re.M)
    found += [] if metric["pods"]["metric"]["name"] in exported else ["metric"]
    for (kind, name), spec in objects.items():
        if kind == "Service":
            labels = objects["Deployment", name]["template"]["metadata"]["labels"]
            found += [] if spec["selector"] == labels else [f"selector {name}"]
    return found


def test_the_manifest_fits_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    options = {*re.findall(r"--[a-z-]+", capsys.readouterr().out)}
    whole = manifest()
    assert faults(whole, options) == []
    broken = copy.deepcopy(whole)  # the control
    pod = broken["Deployment", "asrkit"]["template"]["spec"]
    pod["containers"][0]["args"].append("--shards=3")
    pod["containers"][0]["startupProbe"]["httpGet"] = {"path": "/health", "port": "web"}
    pod["terminationGracePeriodSeconds"] = 5
    broken["Service", "asrkit"]["selector"] = {"app": "asr"}
    metric = broken["HorizontalPodAutoscaler", "asrkit"]["metrics"][0]["pods"]
    metric["metric"]["name"] = "free_streams"
    assert faults(broken, options) == [
        "option --shards", "path /health", "port web", "grace", "metric", "selector asrkit",
    ]  # fmt: skip


def test_secrets_are_where_the_image_reads_them() -> None:
    (container,) = manifest()["Deployment", "asrkit"]["template"]["spec"]["containers"]
    folder = container["volumeMounts"][0]["mountPath"]
    assert f'"{folder}/asrkit_token"' in (PROJECT / "deploy/Dockerfile").read_text()
    assert f"--state-key-file={folder}/state_key" in container["args"]

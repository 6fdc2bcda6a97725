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
    scaler = objects["HorizontalPodAutoscaler", "asrkit"]
    (metric,) = (each["pods"] for each in scaler["metrics"])
    exported = re.findall(r"^# TYPE (\S+)", Figures().exposition().decode(), re.M)
    found += [] if metric["metric"]["name"] in exported else ["metric"]
    streams = dict(each.split("=", 1) for each in container["args"])["--streams"]
    if not int(metric["target"]["averageValue"]) < int(streams):
        found.append("target")
    for (kind, name), spec in objects.items():
        if kind == "Service":
            labels = objects["Deployment", name]["template"]["metadata"]["labels"]
            ports = objects["Deployment", name]["template"]["spec"]["containers"][0]["ports"]
            found += [] if spec["selector"] == labels else [f"selector {name}"]
            if spec["ports"][0]["targetPort"] not in {each["name"] for each in ports}:
                found.append(f"target of {name}")
    redis = dict(each.split("=", 1) for each in container["args"])["--redis"]
    host, port = redis.removeprefix("redis://").partition("/")[0].split(":")
    if objects["Service", host]["ports"][0]["port"] != int(port):
        found.append("redis")
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
    image = (PROJECT / "deploy/Dockerfile").read_text()
    assert f'"{folder}/asrkit_token"' in image
    assert f"--state-key-file={folder}/state_key" in container["args"]
    assert "'redis'" in image  # the extra
    assert (
        f"containerPort: {re.findall(r'EXPOSE ([0-9]+)', image)[0]}"
        in (PROJECT / "deploy/kubernetes.yaml").read_text()
    )

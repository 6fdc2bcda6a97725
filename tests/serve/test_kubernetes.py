"""deploy/kubernetes.yaml: its options, paths, files and metric are those of the server."""

import re
from typing import Any

import yaml

from asrkit.commands.serve import arguments_of
from asrkit.serve.app import app_of
from asrkit.serve.metrics import Figures
from asrkit.serve.server import Server
from tests.conftest import PROJECT

SAVE_S = 20  # seconds to close connections and save calls, at most


def test_the_manifest_fits_the_server() -> None:
    text = (PROJECT / "deploy/kubernetes.yaml").read_text()
    objects: dict[Any, Any] = {
        (each["kind"], each["metadata"]["name"]): each["spec"] for each in yaml.safe_load_all(text)
    }
    template = objects["Deployment", "asrkit"]["template"]
    (container,) = template["spec"]["containers"]
    options = arguments_of().parse_args(container["args"])
    folder = container["volumeMounts"][0]["mountPath"]
    assert str(options.state_key_file) == f"{folder}/state_key"
    assert f'"{folder}/asrkit_token"' in (PROJECT / "deploy/Dockerfile").read_text()
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}
    paths = {getattr(route, "path", "") for route in app_of(Server({})).routes}
    assert {each["path"] for each in probes.values()} <= paths
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz" in paths
    drain = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert template["spec"]["terminationGracePeriodSeconds"] >= drain + SAVE_S
    (metric,) = objects["HorizontalPodAutoscaler", "asrkit"]["metrics"]
    exported = re.findall(r"^# TYPE (\S+)", Figures().exposition().decode(), re.M)
    assert metric["pods"]["metric"]["name"] in exported
    assert objects["Service", "asrkit"]["selector"] == template["metadata"]["labels"]

"""Each extra brings the packages that asrkit says it does; the message names the extra."""

import re
import sys

import pytest

from asrkit.errors import UserError
from asrkit.extras import EXTRA_OF, PACKAGES, missing, need, pip_install
from tests.conftest import PROJECT


def test_the_extras_of_pyproject() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        found = (re.match(r"[\w-]+", each) for each in requirements)
        return {each[0].replace("-", "_").removesuffix("_py") for each in found if each}

    extras = {extra: names(of) for extra, of in project["optional-dependencies"].items()}
    assert extras.keys() - {"all", "dev"} == PACKAGES.keys()
    base = names(project["dependencies"])
    assert {extra: extras[extra] - base for extra in PACKAGES} == {
        extra: {*packages} for extra, packages in PACKAGES.items()
    }
    assert not base & EXTRA_OF.keys()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    need("asrkit", "numpy")
    monkeypatch.setitem(sys.modules, "lhotse", None)
    with pytest.raises(UserError) as caught:
        need("asrkit", "lhotse")
    assert str(caught.value) == f"lhotse not installed: {pip_install('lhotse')}"
    several = "redis and kenlm and onnx not installed: "
    several += "pip install 'asrkit-streaming[serve,train]' kenlm"
    assert missing(["redis", "kenlm", "onnx"]) == several

"""Write docs/configuration.md, every key of a configuration, from the schema that checks them:

python tools/configuration.py
"""

import ast
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from asrkit import search
from asrkit.cli.table import markdown
from asrkit.config import schema

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
INTRODUCTION = """# Configuration

Made by `python tools/configuration.py` from the schema that checks a configuration.

A configuration is one YAML file with the sections below; `conf/` has complete ones. A key that a
file does not set has the default of the table. A key without a default must be set.
`section.key=value` after a command changes one key, a value being YAML: `training.epochs=10
"context.chunk_sizes=[8, 16]"`. An unknown key, a wrong type or an impossible combination is refused
with the key's name and the nearest known key. An option that has no effect because another setting
is off is refused, too. An example is `augmentation.noise_snr_db` without `augmentation.noise`. Only
overrides may turn off a setting of a file.
"""


def page() -> str:
    whole = schema.Config.model_json_schema()
    parts = [INTRODUCTION]
    for name, section in whole["properties"].items():
        if "$ref" not in section:  # the search: a kind with options
            continue
        kind = section["$ref"].rpartition("/")[2]
        section = whole["$defs"][kind]
        rows = table(section["properties"], meanings(kind))
        parts.append(f"## {name}\n\n{described(section)}{rows}\n")
    parts.append(searches())
    return "\n".join(parts)


def described(section: dict[str, Any]) -> str:
    """Return what a section says of itself."""
    text = section.get("description", "")
    return f"{' '.join(text.split())}\n\n" if text else ""


def meanings(section: str) -> dict[str, str]:
    """The docstrings under the keys of a section, which Python itself does not keep."""
    file = inspect.getfile(getattr(schema, section))
    module = ast.parse(Path(file).read_text(encoding="utf-8"))
    (body,) = (each.body for each in module.body if getattr(each, "name", "") == section)
    return {
        key.target.id: " ".join(text.value.value.split())
        for key, text in pairwise(body)
        if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def table(keys: dict[str, Any], meanings: dict[str, str]) -> str:
    rows = []
    for name, key in keys.items():
        default = f"`{as_yaml(key['default'])}`" if "default" in key else "–"
        rows.append([f"`{name}`", default, taken(key), meanings[name]])
    return markdown(["key", "default", "takes", ""], rows)


def as_yaml(value: Any) -> str:
    if "kind" in (value if isinstance(value, dict) else ()):  # its class has the rest
        value = {"kind": value["kind"]}
    text = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def taken(key: dict[str, Any], several: bool = False) -> str:
    """The values that a key takes, in words."""
    if "discriminator" in key:
        return "a kind"
    if "anyOf" in key:
        return " or ".join(taken(each) for each in key["anyOf"])
    if "const" in key:
        return f"`{key['const']}`"
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"])
    if "prefixItems" in key:
        return f"a list of {len(key['prefixItems'])} numbers"
    if key["type"] == "object":
        return "names with texts"
    if key["type"] == "array":
        return f"a list of {taken(key['items'], several=True)}"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false",
             "null": "`null`"}  # fmt: skip
    return words[key["type"]] + "s" * several + limits(key)


def limits(key: dict[str, Any]) -> str:
    """The least and largest value; from a million on they only bound what a file may ask for."""
    lowest = {"≥": key.get("minimum"), ">": key.get("exclusiveMinimum")}
    if lowest[">"] is not None:
        del lowest["≥"]
    highest = {"≤": key.get("maximum"), "<": key.get("exclusiveMaximum")}
    signs = lowest | highest | {"a multiple of": key.get("multipleOf")}
    shown = {sign: limit for sign, limit in signs.items() if limit is not None and limit < 1e6}
    return "".join(f", {sign} {limit:g}" for sign, limit in shown.items())


def searches() -> str:
    lines = ["## search", "", "Default search of decoding: a kind, or a kind with options.", ""]
    for kind in search.KINDS:
        options = (
            f"{name}: {as_yaml(each.default)}" for name, each in search.KINDS.options(kind).items()
        )
        lines.append(f"- `{{kind: {kind}, {', '.join(options)}}}`")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

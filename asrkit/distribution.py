"""asrkit's distribution on the package index, where the name asrkit is another project's."""

import json
import shlex
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "asrkit-streaming"  # imported as asrkit, run as asrkit
SUMMARY = "Streaming Conformer speech recognition"  # how its description begins


def requirement(*extras: str) -> str:
    """Return the requirement with which pip adds extras to this installation, quoted for a shell.

    It is the folder that asrkit was installed from, if any, or else the distribution's name.
    """
    bracket = f"[{','.join(extras)}]"
    for each in distributions(name=DISTRIBUTION):  # a clone's own egg-info comes before pip's
        with suppress(ValueError, KeyError):
            origin = json.loads(each.read_text("direct_url.json") or "{}")
            folder = unquote(urlsplit(origin["url"]).path)
            editable = "--editable " if origin["dir_info"].get("editable") else ""
            return editable + shlex.quote(folder + bracket)
    return shlex.quote(DISTRIBUTION + bracket)


def warn_of_another() -> None:
    """Warn if the other project's distribution is installed too: both write the folder asrkit."""
    try:
        other = distribution("asrkit")
    except PackageNotFoundError:
        return
    if str(other.metadata["Summary"]).startswith(SUMMARY):  # this one, by its former name
        return
    warnings.warn(
        f"another project's package, asrkit {other.version}, is installed over {DISTRIBUTION}: "
        f"pip uninstall asrkit, then install {DISTRIBUTION} again",
        stacklevel=3,
    )

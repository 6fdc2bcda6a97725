"""Settings of a training that come from the model it starts from."""

from collections.abc import Mapping, Sequence
from typing import Any

from asrkit.config.schema import Config

SECTIONS = ("model", "context", "text")  # of which a model file has its own


def filled(
    values: Mapping[str, Any], first: Config, keep_labels: bool, replay: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values of a training with the settings of the first model that they do not write.

    Options of a kind are filled if both have this kind. Another `text.tokenizer` keeps nothing of
    the first model's section `text`.

    Args:
        keep_labels: value of `training.keep_labels` if neither it nor `text.tokenizer` is written.
        replay: value of `data.replay` if it is not written and `training.keep` is "replay".
    """
    known = first.model_dump(mode="json", include=set(SECTIONS))
    found = dict(values)
    text, training = values.get("text", {}), values.get("training")
    if isinstance(text, dict) and "tokenizer" in text:
        if text["tokenizer"] != known["text"]["tokenizer"]:
            del known["text"]
    elif isinstance(training, dict):
        found["training"] = {"keep_labels": keep_labels} | training
    data = values.get("data")
    if isinstance(training, dict) and training.get("keep") == "replay" and isinstance(data, dict):
        found["data"] = {"replay": [*replay]} | data
    for name, section in known.items():
        own = values.get(name, {})
        if isinstance(own, dict):  # else the schema rejects it
            found[name] = merged(own, section)
    return found


def merged(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return `other` with the values of `own`; a kind's options stay those of `other`."""
    found = dict(other)
    for key, value in own.items():
        options, chosen = other.get(key), {"kind": value} if isinstance(value, str) else value
        found[key] = value
        if not isinstance(options, dict) or not isinstance(chosen, dict):
            continue
        if chosen.get("kind", options["kind"]) == options["kind"]:
            found[key] = options | chosen
    return found

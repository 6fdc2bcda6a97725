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
    known, whole = first.model_dump(mode="json", include=set(SECTIONS)), dict(values)
    text, training, data = (values.get(name) for name in ("text", "training", "data"))
    if isinstance(text, dict) and "tokenizer" in text:
        if text["tokenizer"] != known["text"]["tokenizer"]:
            del known["text"]
    elif isinstance(training, dict):
        whole["training"] = {"keep_labels": keep_labels} | training
    if isinstance(training, dict) and training.get("keep") == "replay" and isinstance(data, dict):
        whole["data"] = {"replay": [*replay]} | data
    for name, section in known.items():
        written = values.get(name, {})
        if isinstance(written, dict):  # else the schema rejects it
            whole[name] = section | {
                key: with_options(value, section.get(key)) for key, value in written.items()
            }
    return whole


def with_options(value: Any, known: Any) -> Any:
    """Return the value with the options of a known section, if both have the same kind."""
    chosen = {"kind": value} if isinstance(value, str) else value
    if not isinstance(known, dict) or not isinstance(chosen, dict):
        return value
    return known | chosen if chosen.get("kind", known["kind"]) == known["kind"] else value

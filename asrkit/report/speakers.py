"""The speakers that a model was trained on."""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from asrkit.data.inputs import read_recordings
from asrkit.errors import UserError, shown
from asrkit.model_contents import UNNAMED
from asrkit.model_file import read_config_of


def heard_speakers(name: str, speakers: Collection[str]) -> str:
    """Return a line about which of these speakers a model was trained on.

    A model file names its manifests and the model that it started from, so the speakers are known
    only where these are.
    """
    heard: set[str] = set()
    missing: list[str] = []
    models: list[str] = []
    model: str | None = name
    while model is not None and model not in models:
        models.append(model)
        config = None
        with suppress(UserError):
            config = None if "://" in model else read_config_of(os.path.expanduser(model))
        for path in (*config.data.train, *config.data.replay) if config else (model,):
            named = speakers_of(path) if config else set()
            heard |= named
            missing += [] if named else [path]
        model = config.training.start_from if config else None
    if known := sorted(heard.intersection(speakers)):
        named_first = ", ".join(map(shown, known[:3])) + (", …" if len(known) > 3 else "")
        return (
            f"{name} was trained on {len(known)} of these {len(speakers)} speakers "
            f"({named_first}): new speakers will have more errors"
        )
    if missing:
        names_none = f"{shown(missing[0])} names none here"
        if missing[0] == UNNAMED:
            names_none = "an imported checkpoint does not name them"
        return f"the speakers that {name} was trained on are unknown: {names_none}"
    return f"{name} was trained on none of these {len(speakers)} speakers"


def speakers_of(manifest: str) -> set[str]:
    """Return the speakers that a manifest names; an empty set if it is not here."""
    if "://" in manifest or not Path(manifest).exists():  # a model file opens no URL
        return set()
    with suppress(UserError):
        return {each.speaker for each in read_recordings(manifest, []) if each.speaker}
    return set()

"""The path of a model that a user names: a file, a ready model, or one of a hub."""

import logging
from pathlib import Path, PurePath

from asrkit import hub
from asrkit.errors import shown
from asrkit.hub.catalogue import entry_of, near, require_usable
from asrkit.hub.downloads import Source, find, find_entry
from asrkit.model_contents import ModelFileError
from asrkit.pretrained import ready_models

logger = logging.getLogger("asrkit")


def model_path(model: str | Path) -> Path:
    """Return the path of a model file.

    Args:
        model: path of the file; folder with a model.safetensors; name of a ready model or of
            another one in the catalogue; or hf://owner/name. Models of the hub are downloaded, and
            converted if they are checkpoints of NeMo.
    """
    if not isinstance(model, str | PurePath):
        raise ModelFileError(f"a model must be a path or a ready one's name, got {shown(model)}")
    path, ready, text = Path(model), ready_models(), str(model)
    if isinstance(model, str) and text.startswith(hub.PREFIX):
        address = hub.address_of(text)
        require_usable(address.repository)
        return cached(find(address))
    if path.is_file():
        return path
    if text and (path / hub.MODEL).is_file():
        return path / hub.MODEL
    if text in ready:
        return ready[text]
    entry = entry_of(text) if isinstance(model, str) else None
    if entry is not None and entry.repository is not None:
        return cached(find_entry(entry), entry.prompt)
    if not path.exists() and path.suffix != ".safetensors":
        require_usable(text)
    is_address = hub.REPOSITORY.fullmatch(text) and not (path.suffix or path.parent.is_dir())
    raise ModelFileError(
        f"no model file {text and shown(path)}: give a file of asrkit train or asrkit "
        f"import, a ready model ({', '.join(ready) or 'none'}), another name of asrkit models, or "
        f"{hub.PREFIX}{model if is_address else 'owner/name'} of the hub{near(text)}"
    )


def cached(source: Source, prompt: str | None = None) -> Path:
    """Return the path of a model of the hub in the cache; a checkpoint is converted there."""
    checkpoint = Path(next(iter(source.files)))
    if checkpoint.suffix != ".nemo":
        return source.fetch() / checkpoint
    path = source.converted(prompt)
    if not path.is_file():
        from asrkit.interop import import_checkpoint, recorded
        from asrkit.model_tensors import save_model

        if (terms := source.known_terms()).licence is None:
            raise ModelFileError(
                f"the licence of {source.address} is not known, {hub.NO_LICENCE}: asrkit import "
                f"nemo {source.address} --output FILE --licence NAME"
            )
        downloaded = source.fetch() / checkpoint
        logger.warning("converting %s to %s", checkpoint, path)
        imported = import_checkpoint("nemo", downloaded, None, prompt)
        save_model(path, recorded(imported, source.name, prompt, terms))
    return path

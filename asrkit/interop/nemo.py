"""NVIDIA NeMo's checkpoints: a tar of a YAML configuration, weights by torch.save, a vocabulary."""

from pathlib import Path

from asrkit.interop.checkpoint import CheckpointError, open_archive, read_settings, read_weights
from asrkit.interop.imported import Imported

SETTINGS = "model_config.yaml"
WEIGHTS = "model_weights.ckpt"


def read_nemo(path: Path) -> Imported:
    """A .nemo file of a streaming Conformer or FastConformer with CTC.

    Raises:
        CheckpointError: for any other, and what cannot be computed exactly.
    """
    with open_archive(path) as archive:
        settings = read_settings(archive.read(SETTINGS), SETTINGS)
        with archive.open(WEIGHTS) as file:
            read_weights(file, WEIGHTS)
    raise CheckpointError(f"a {settings.get('target')} cannot be imported yet")

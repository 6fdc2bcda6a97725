"""Import of other toolkits' checkpoints as asrkit's models. No code in such a file is run."""

from asrkit.interop.formats import FORMATS, import_checkpoint
from asrkit.interop.imported import Imported

__all__ = ["FORMATS", "Imported", "import_checkpoint"]

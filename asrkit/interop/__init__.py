"""Other toolkits' checkpoints as asrkit's models. Such a file is data: nothing in it runs."""

from asrkit.interop.formats import FORMATS, import_checkpoint
from asrkit.interop.imported import Imported

__all__ = ["FORMATS", "Imported", "import_checkpoint"]

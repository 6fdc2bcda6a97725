"""asrkit: streaming Conformer speech recognition. Streaming equals offline.

recognizer = asrkit.load("exp/conformer/model.safetensors")
print(recognizer.transcribe("utterance.wav").text)

session = recognizer.start(sample_rate=16000)
partial = session.accept(samples)
final = session.finish()
"""

from typing import TYPE_CHECKING

from asrkit.errors import UserError
from asrkit.version import __version__

__all__ = [
    "Batcher",
    "Endpointer",
    "Recognizer",
    "Result",
    "Segment",
    "Session",
    "UserError",
    "Word",
    "__version__",
    "load",
    "model",
]

if TYPE_CHECKING:
    from asrkit import model
    from asrkit.runtime import Batcher, Endpointer, Recognizer, Result, Segment, Session, Word
    from asrkit.runtime.load import load
else:  # imported on first use: torch takes seconds, and `asrkit --help` does not need it

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'asrkit' has no attribute {name!r}")
        if name == "model":
            return import_module("asrkit.model")
        value = globals()[name] = getattr(import_module("asrkit.runtime"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

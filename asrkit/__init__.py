"""asrkit: streaming Conformer speech recognition. Streaming equals offline.

recognizer = asrkit.load("exp/conformer/model.safetensors")
print(recognizer.transcribe("utterance.wav").text)

session = recognizer.start(sample_rate=16000)
partial = session.accept(samples)
final = session.finish()
"""

from asrkit import model
from asrkit.errors import UserError
from asrkit.runtime import Batcher, Endpointer, Recognizer, Result, Segment, Session, Word, load
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

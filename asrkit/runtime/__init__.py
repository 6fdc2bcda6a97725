"""Recognising: engine, recogniser, sessions, results."""

from asrkit.runtime.batcher import BatchedSession, Batcher
from asrkit.runtime.endpoint import Endpointer
from asrkit.runtime.engine import Engine
from asrkit.runtime.load import load, recognizer_of
from asrkit.runtime.recognizer import Recognizer
from asrkit.runtime.results import Candidate, Result, Segment
from asrkit.runtime.serialization import SavedStreamError
from asrkit.runtime.session import Session
from asrkit.runtime.words import Word

__all__ = [
    "BatchedSession",
    "Batcher",
    "Candidate",
    "Endpointer",
    "Engine",
    "Recognizer",
    "Result",
    "SavedStreamError",
    "Segment",
    "Session",
    "Word",
    "load",
    "recognizer_of",
]

"""Recognising: recogniser, sessions, results."""

from asrkit.runtime.load import load, recognizer_of
from asrkit.runtime.recognizer import Recognizer, Session
from asrkit.runtime.results import Result, Word

__all__ = ["Recognizer", "Result", "Session", "Word", "load", "recognizer_of"]

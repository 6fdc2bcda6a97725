"""How right and how late recognisers are: one way to score whatever can recognise.

`recognize` makes outcomes of utterances and recognisers, `scores` makes scores of outcomes.
"""

from asrkit.evaluation.outcomes import Outcome, ReferenceRecording, recognize
from asrkit.evaluation.scoring import Score, scores

__all__ = ["Outcome", "ReferenceRecording", "Score", "recognize", "scores"]

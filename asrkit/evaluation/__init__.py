"""Scores of recognisers: error rates and delays.

`recognize` turns utterances and recognisers into outcomes, `scores` turns outcomes into scores.
"""

from asrkit.evaluation.outcomes import Outcome, ReferenceRecording, recognize
from asrkit.evaluation.scoring import Score, scores

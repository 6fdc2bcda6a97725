"""The network. Shapes are written with these letters everywhere:

B batch · N samples · T feature frames (inside the encoder: frames of this step) · E encoder
frames · F mel bins · D model dim · H heads · Dh = D/H · L layers · C chunk · M left-context frames
· W = M+C keys of a block · n blocks · K conv kernel · S subsampling channels · V vocabulary
· U labels
"""

from asrkit.context import FULL, FULL_CONTEXT, Context, FrameRate
from asrkit.model.conformer import ConformerEncoder, EncoderState, StepOutput
from asrkit.model.head import BLANK, CTCHead, Head
from asrkit.model.heads import build_head
from asrkit.model.step import Network, Step
from asrkit.model.transducer import JoinerStep, PredictorStep, TransducerHead

__all__ = [
    "BLANK",
    "FULL",
    "FULL_CONTEXT",
    "CTCHead",
    "ConformerEncoder",
    "Context",
    "EncoderState",
    "FrameRate",
    "Head",
    "JoinerStep",
    "Network",
    "PredictorStep",
    "Step",
    "StepOutput",
    "TransducerHead",
    "build_head",
]

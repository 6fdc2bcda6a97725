"""The text encoder of the corpus that the tests are about."""

from asrkit.config.model import ModelConfig
from asrkit.data.text_encoder import TextEncoder
from asrkit.model.head import ctc_frames
from asrkit.text import CharTokenizer, normalize

ENCODE = TextEncoder(
    CharTokenizer(list(" enosy")), normalize, ModelConfig().rate.num_frames, ctc_frames
)

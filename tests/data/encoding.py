"""The text encoder of the corpus that the tests are about."""

from asrkit.build import frames_needed
from asrkit.config import ModelConfig
from asrkit.data.dataset import TextEncoder
from asrkit.text import CharTokenizer, normalize

ENCODE = TextEncoder(
    CharTokenizer(list(" enosy")), normalize, ModelConfig().rate.num_frames, frames_needed
)

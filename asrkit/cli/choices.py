"""Names and limits for options, copied from the modules that own them.

The modules import torch, which takes seconds; --help must not. A test compares the copies.
"""

from asrkit.data import corpora

BACKENDS = ("eager", "compiled", "onnx", "onnx-int8")  # backends.BACKENDS
CHECKPOINTS = ("nemo", "wenet", "whisper")  # interop.FORMATS
CONTENTS = {  # backends.export_metadata.CONTENTS
    "encoder": "log mels to encoder frames",
    "ctc": "log mels to log-probabilities",
    "transducer": "log mels to encoder frames, with predictor and joiner in files of their own",
    "model": "samples to log-probabilities, or to a transducer's three parts",
}
CORPORA = corpora.KINDS  # that package imports nothing
EAGERNESS = ("low", "medium", "high")  # runtime.endpoint
ENGINES = ("processes", "ray")  # transcription.workers.STARTERS
EXPORTS = ("torchscript", "onnx", "onnx-int8", "sherpa-onnx", "sherpa-onnx-int8")
# runtime.formats
FORMATS = ("txt", "jsonl", "json", "srt", "vtt", "ctm", "rttm", "csv", "textgrid")
LEASE_SECONDS = 60.0  # transcription.shards
MAX_CHANNELS = 64  # audio.file
MAX_ORDER = 10  # lm.ngram
MOST_THREADS = 1024  # runtime.threads
PAUSE_MS = 1000  # runtime.endpoint
SAMPLE_RATE = 16000  # audio

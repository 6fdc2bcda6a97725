"""Names and limits for options, copied from the modules that own them.

The modules import torch, which takes seconds; --help must not. A test compares the copies.
"""

BACKENDS = ("eager", "compiled", "torchscript", "onnx", "onnx-int8")  # backends.BACKENDS
CHECKPOINTS = ("nemo", "wenet")  # interop.FORMATS
CONTENTS = {  # backends.export_metadata.CONTENTS
    "encoder": "log mels to encoder frames",
    "ctc": "log mels to log-probabilities",
    "transducer": "log mels to encoder frames, with predictor and joiner in files of their own",
    "model": "samples to log-probabilities, or to a transducer's three parts",
}
CORPORA = {  # data.corpora.registry.READERS
    "folder": "recordings with .txt, .lab, .srt, .vtt or .TextGrid beside each",
    "table": "CSV or TSV with a line of column names",
    "commonvoice": "folder of a language: its .tsv files and clips",
    "manifest": "manifest of asrkit, to divide it anew",
    "nemo": "manifest of NeMo: audio_filepath, text, duration, offset",
    "wenet": "list of WeNet: key, wav, txt",
    "kaldi": "folder with wav.scp and text, perhaps segments and utt2spk",
    "ljspeech": "folder with metadata.csv and wavs",
    "librispeech": "folders of speakers and chapters with .trans.txt",
    "huggingface": "parquet files, or a folder of save_to_disk",
    "lhotse": "recordings and supervisions of lhotse, or the folder of both",
}
EAGERNESS = ("low", "medium", "high")  # runtime.endpoint
ENGINES = ("processes", "ray")  # transcription.workers.STARTERS
EXPORTS = ("torchscript", "onnx", "onnx-int8", "sherpa-onnx", "sherpa-onnx-int8")
FORMATS = (
    "txt",
    "jsonl",
    "json",
    "srt",
    "vtt",
    "ctm",
    "rttm",
    "csv",
    "textgrid",
)  # runtime.formats
LEASE_SECONDS = 60.0  # transcription.shards
MAX_CHANNELS = 64  # audio.file
MAX_ORDER = 10  # lm.ngram
MOST_THREADS = 1024  # runtime.threads
PAUSE_MS = 1000  # runtime.endpoint
SAMPLE_RATE = 16000  # audio

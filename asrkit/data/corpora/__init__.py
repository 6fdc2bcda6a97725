"""Readers of corpora in other forms (`asrkit data import`).

A reader turns a folder or file into rows: keys of a manifest and their values. `rows` checks them
and reads the headers of the audio, and `asrkit.data.splits` divides them. `registry` has the
readers by kind.
"""

KINDS = {  # kinds of corpora, with their meanings for the help
    "folder": "recordings with .txt, .lab, .srt, .vtt or .TextGrid beside each",
    "table": "CSV or TSV, also of Common Voice, LJSpeech and Hugging Face's audiofolder",
    "manifest": "manifest of asrkit, to divide it anew",
    "jsonl": "JSON lines with other keys, such as path and sentence; lists of WeNet",
    "nemo": "manifest of NeMo: audio_filepath, text, duration, offset",
    "kaldi": "folder with wav.scp and text, perhaps segments and utt2spk",
    "librispeech": "folders of speakers and chapters with .trans.txt",
    "huggingface": "parquet files",
    "lhotse": "cuts of lhotse, or their folder",
}

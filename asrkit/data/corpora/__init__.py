"""Readers of corpora in other forms (`asrkit data import`).

A reader turns a folder or file into `Entry` objects. `measure` reads the headers of their audio.
`asrkit.data.splits` divides and writes them. `registry` has the readers by kind.
"""

KINDS = {  # kinds of corpora, with their meanings for the help
    "folder": "recordings with .txt, .lab, .srt, .vtt or .TextGrid (or .json, .tsv) beside each",
    "table": "CSV or TSV with a line of column names",
    "commonvoice": "folder of a language: its .tsv files and clips",
    "manifest": "manifest of asrkit, to divide it anew",
    "nemo": "manifest of NeMo: audio_filepath, text, duration, offset",
    "wenet": "list of WeNet: key, wav, txt",
    "jsonl": "JSON lines with other keys, such as path and sentence",
    "kaldi": "folder with wav.scp and text, perhaps segments and utt2spk",
    "ljspeech": "folder with metadata.csv and wavs",
    "librispeech": "folders of speakers and chapters with .trans.txt",
    "huggingface": "parquet files, or a folder of save_to_disk",
    "audiofolder": "Hugging Face's folders with metadata.jsonl or .csv and file_name",
    "webdataset": "tars of WebDataset, or a folder of them",
    "lhotse": "recordings and supervisions of lhotse, or the folder of both",
}

"""What hotwords win and what they cost: rare words heard, and words heard that nobody said.

The rare words are those of the manifest, but single letters, that the training texts have seldom or
never; the distractors those that the training texts have as seldom and the manifest never. A false
alarm is a word of the list in the result of an utterance that holds none of them.
"""

import argparse
from collections import Counter
from collections.abc import Iterable

import torch

import asrkit
from asrkit.data.cut_audio import load_samples
from asrkit.data.cuts import load_cuts, text_of
from asrkit.evaluation.wer import wer

BATCH = 20


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    arguments.add_argument("--model", default="small-en-alnum")
    arguments.add_argument("--train", default="data/an4/train.jsonl", help="manifest")
    arguments.add_argument("--seldom", type=int, default=20, help="times in training, at most")
    arguments.add_argument("--weights", type=float, nargs="+", default=[0, 1, 2, 3, 4, 6])
    arguments.add_argument("--chunk-sizes", nargs="+", default=["full", "16"], help="frames")
    arguments.add_argument("manifest", nargs="?", default="data/an4/dev.jsonl")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    cuts = sorted(load_cuts(options.manifest, []), key=lambda cut: cut.duration)
    samples = [load_samples(cut) for cut in cuts]
    print("| chunk | list | weight | heard | WER | false alarms |\n" + "|---" * 6 + "|")
    for chunk in options.chunk_sizes:
        chunk_size = chunk if chunk == "full" else int(chunk)
        recognizer = asrkit.load(options.model, chunk_size, search="prefix_beam")
        texts = [recognizer.normalizer(text_of(cut)) for cut in cuts]
        trained = (recognizer.normalizer(text_of(cut)) for cut in load_cuts(options.train, []))
        for name, words in lists(texts, trained, options.seldom).items():
            for weight in options.weights:
                biased = recognizer.with_hotwords(dict.fromkeys(words, weight))
                found = [
                    result.text
                    for i in range(0, len(samples), BATCH)
                    for result in biased.transcribe_batch(samples[i : i + BATCH])
                ]
                cells = [chunk, f"{len(words)} {name}", f"{weight:g}", *counts(texts, found, words)]
                print(f"| {' | '.join(cells)} |", flush=True)


def lists(texts: list[str], trained: Iterable[str], seldom: int) -> dict[str, set[str]]:
    """Words that occur and words that do not, of those that were trained, but seldom."""
    times = Counter(word for text in trained for word in text.split())
    said = {word for text in texts for word in text.split()}
    rare = {word for word, count in times.items() if count <= seldom and len(word) > 1}
    return {"rare words": rare & said, "distractors": rare - said}


def counts(texts: list[str], found: list[str], words: set[str]) -> tuple[str, str, str]:
    """Words of the list heard, the word error rate, and false alarms, of how many each."""
    said = heard = without = false = 0
    for text, result in zip(texts, found, strict=True):
        in_text, in_result = (
            Counter(word for word in line.split() if word in words) for line in (text, result)
        )
        said += in_text.total()
        heard += (in_text & in_result).total()
        if not in_text:
            without += 1
            false += in_result.total()
    return f"{heard} of {said}", wer(texts, found).percent, f"{false} in {without}"


if __name__ == "__main__":
    main()

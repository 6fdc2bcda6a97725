"""Write a manifest as lhotse cuts: python docs/examples/to_lhotse.py train.jsonl cuts.jsonl.gz"""

import sys

from lhotse import CutSet, Recording, SupervisionSegment
from lhotse.cut import Cut

from asrkit.data import manifest, recording


def cut_of(line: recording.Recording) -> Cut:
    file = Recording.from_file(line.audio, recording_id=line.id)
    cut = file.to_cut().truncate(offset=line.start or 0.0, duration=line.duration)
    if line.channel is not None and file.num_channels > 1:
        cut = cut.to_mono()[line.channel]
    said = SupervisionSegment(
        line.id, line.id, 0.0, cut.duration, cut.channel, line.text, speaker=line.speaker
    )
    cut.supervisions = [said]
    return cut.with_id(line.id)


if __name__ == "__main__":
    CutSet.from_cuts(map(cut_of, manifest.read_manifest(sys.argv[1]))).to_file(sys.argv[2])

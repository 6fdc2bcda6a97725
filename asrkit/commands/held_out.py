"""Recordings with their texts, to score: what evaluate, tune, report and export read."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asrkit import audio
from asrkit.commands.arguments import complain
from asrkit.commands.recordings import PIECE_SECONDS, Job, by_length
from asrkit.data.manifest import LeftOut, ManifestError, is_lhotse, read_manifest
from asrkit.errors import UserError
from asrkit.evaluation import Utterance


class Labelled(NamedTuple):
    """A recording of a manifest with its text; its samples are read when they are asked for."""

    id: str
    text: str | None
    speaker: str | None
    load: Callable[[], np.ndarray]  # (n,) float32 at 16 kHz; raises AudioError


def read_labelled(path: str, left_out: list[LeftOut]) -> Iterator[Labelled]:
    """The recordings of a manifest: a plain one, or anything lhotse reads.

    Args:
        path: of the manifest.
        left_out: gets the utterances that cannot be used.

    Raises:
        ManifestError: if it is missing or not a manifest, or an id occurs twice in a plain one.
    """
    if is_lhotse(Path(path)):
        yield from _of_cuts(path, left_out)
        return
    ids: set[str] = set()
    for each in read_manifest(path, left_out):
        if each.id in ids:
            raise ManifestError(f"{path}: id {each.id!r} occurs twice")
        ids.add(each.id)
        job = Job(each.id, each.audio, each.text, each.start or 0.0, each.duration, each.channel)
        yield Labelled(each.id, each.text, each.speaker, partial(samples_of, job))


def _of_cuts(path: str, left_out: list[LeftOut]) -> Iterator[Labelled]:
    """Those of a manifest that lhotse reads."""
    from asrkit.data.cuts import has_text, load_cuts, text_of
    from asrkit.data.dataset import load_samples

    for cut in load_cuts(path, left_out):
        text = text_of(cut) if has_text(cut) else None
        speaker = cut.supervisions[0].speaker if cut.supervisions else None
        yield Labelled(cut.id, text, speaker, partial(load_samples, cut))


def samples_of(job: Job) -> np.ndarray:
    """(n,) float32 at 16 kHz.

    Raises:
        AudioError: if the audio cannot be read, or is too long to be in memory at once.
    """
    return audio.load(job.path, job.start, job.duration, job.channel)


def utterances(
    recordings: Iterable[Labelled],
    normalize: Callable[[str], str],
    left_out: list[LeftOut],
) -> Iterator[Utterance]:
    """The recordings that can be scored, read one after another; the others go to `left_out`.

    With an empty text, whatever is recognised is wrong; without a text, nothing can be.
    """
    for each in recordings:
        try:
            if each.text is None:
                raise UserError("no text")
            yield Utterance(each.id, each.load(), normalize(each.text))
        except UserError as error:
            left_out.append(LeftOut(each.id, str(error)))


def batches_of(utterances: Iterable[Utterance], batch_seconds: float) -> Iterator[list[Utterance]]:
    """Utterances of similar length together, eight batches read ahead; long ones alone."""

    def seconds(utterance: Utterance) -> float:
        return utterance.seconds

    waiting: list[Utterance] = []
    for each in utterances:
        if each.seconds > PIECE_SECONDS:
            yield [each]
            continue
        waiting.append(each)
        if sum(map(seconds, waiting)) > 8 * batch_seconds:
            yield from by_length(waiting, seconds, batch_seconds)
            waiting = []
    yield from by_length(waiting, seconds, batch_seconds)


def read_batches(
    manifest: str,
    normalize: Callable[[str], str],
    batch_seconds: float,
    left_out: list[LeftOut],
) -> Iterator[list[Utterance]]:
    """What of a manifest can be scored, in batches; the rest goes to `left_out` on the way."""
    found = utterances(read_labelled(manifest, left_out), normalize, left_out)
    return batches_of(found, batch_seconds)


def name_left_out(command: str, left_out: list[LeftOut]) -> int:
    """Say on standard error what was not scored; the exit status."""
    for each in left_out:
        complain(command, f"not scored {each}")
    return 1 if left_out else 0

"""Recordings with their texts, to score: what evaluate, tune, report and export read."""

from collections.abc import Callable, Iterable, Iterator

from asrkit.data.labelled import PIECE_SECONDS, Labelled, read_labelled
from asrkit.data.manifest import LeftOut, ManifestError
from asrkit.data.sampling import by_length
from asrkit.errors import UserError
from asrkit.evaluation import ReferenceRecording


def read_scored(path: str, left_out: list[LeftOut]) -> Iterator[Labelled]:
    """Yield the recordings of a manifest of any kind, whose results go by their ids.

    Args:
        path: manifest.
        left_out: utterances that cannot be used are appended to it.

    Raises:
        ManifestError: if it is missing or not a manifest, or an id occurs twice.
    """
    ids: set[str] = set()
    for each in read_labelled(path, left_out):
        if each.id in ids:
            raise ManifestError(f"{path}: id {each.id!r} occurs twice")
        ids.add(each.id)
        yield each


def utterances(
    recordings: Iterable[Labelled],
    normalize: Callable[[str], str],
    left_out: list[LeftOut],
) -> Iterator[ReferenceRecording]:
    """The recordings that can be scored, read one after another; the others go to `left_out`.

    With an empty text, whatever is recognised is wrong; without a text, nothing can be.
    """
    for each in recordings:
        try:
            if each.text is None:
                raise UserError("no text")
            yield ReferenceRecording(each.id, each.load(), normalize(each.text))
        except UserError as error:
            left_out.append(LeftOut(each.id, str(error)))


def batches_of(
    utterances: Iterable[ReferenceRecording], batch_seconds: float
) -> Iterator[list[ReferenceRecording]]:
    """Utterances of similar length together, eight batches read ahead; long ones alone."""

    def seconds(utterance: ReferenceRecording) -> float:
        return utterance.seconds

    waiting: list[ReferenceRecording] = []
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
) -> Iterator[list[ReferenceRecording]]:
    """What of a manifest can be scored, in batches; the rest goes to `left_out` on the way."""
    found = utterances(read_scored(manifest, left_out), normalize, left_out)
    return batches_of(found, batch_seconds)

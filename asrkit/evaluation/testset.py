"""Reader of recordings with texts for evaluate, tune, report and export."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from asrkit.data.inputs import read_distinct
from asrkit.data.manifest import LeftOut
from asrkit.data.recording import PIECE_SECONDS, Recording
from asrkit.data.sampling import by_length
from asrkit.errors import UserError
from asrkit.evaluation import ReferenceRecording


def utterances(
    recordings: Iterable[Recording], normalize: Callable[[str], str], left_out: list[LeftOut]
) -> Iterator[ReferenceRecording]:
    """Read the recordings that can be scored, one at a time; append the others to `left_out`.

    A recording with an empty text is scored: every recognised word is an error. A recording without
    a text is not scored.
    """
    for each in recordings:
        try:
            if each.text is None:
                raise UserError("no text")
            yield ReferenceRecording(each.id, each.load(), normalize(each.text))
        except UserError as error:
            left_out.append(LeftOut(each.id, str(error)))


def read_batches(
    manifest: str, normalize: Callable[[str], str], batch_seconds: float, left_out: list[LeftOut]
) -> Iterator[list[ReferenceRecording]]:
    """Yield a manifest's recordings that can be scored, in batches; append others to `left_out`.

    Batches are of similar length, from eight batches read ahead; long utterances are alone.
    """
    waiting: list[ReferenceRecording] = []
    seconds = attrgetter("seconds")
    for each in utterances(read_distinct(manifest), normalize, left_out):
        if each.seconds > PIECE_SECONDS:
            yield [each]
            continue
        waiting.append(each)
        if sum(map(seconds, waiting)) > 8 * batch_seconds:
            yield from by_length(waiting, seconds, batch_seconds)
            waiting = []
    yield from by_length(waiting, seconds, batch_seconds)

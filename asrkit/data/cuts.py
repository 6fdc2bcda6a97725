"""Utterances as lhotse cuts, from plain manifests or lhotse's manifests."""

import logging
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pydantic
from lhotse import AudioSource, CutSet, MonoCut, MultiCut, Recording, SupervisionSegment
from lhotse.cut import Cut, MixedCut, PaddingCut
from lhotse.serialization import decode_json_line, deserialize_item
from lhotse.utils import fastcopy

from asrkit import audio
from asrkit.audio.samples import MAX_RATE, MAX_SECONDS, MIN_RATE, no_channel
from asrkit.data.foreign import advice
from asrkit.data.manifest import (
    LeftOut,
    ManifestError,
    Utterance,
    is_lhotse,
    leaves_out,
    lines_of,
    read_manifest,
    refuse_foreign,
    what_is_wrong,
)
from asrkit.errors import no_file, reason, shown

logger = logging.getLogger(__name__)

SOURCES = ("file", "memory")  # allowed types of audio sources; Shar's become "memory"
BOUNDS = {  # bounds of numbers anywhere in a lhotse manifest
    "duration": (0, MAX_SECONDS),
    "start": (-MAX_SECONDS, MAX_SECONDS),
    "offset": (-MAX_SECONDS, MAX_SECONDS),
    "num_samples": (0, MAX_SECONDS * MAX_RATE),
    "sampling_rate": (MIN_RATE, MAX_RATE),
    "source_sampling_rate": (MIN_RATE, MAX_RATE),
    "target_sampling_rate": (MIN_RATE, MAX_RATE),
    "factor": (0.01, 100),  # speed, tempo and volume
}
CHANNELS = ("channel", "channels", "channel_ids")  # a number from 0, or several


def load_cuts(path: str | Path, left_out: list[LeftOut]) -> CutSet:
    """Load the utterances of a manifest; append unusable ones to `left_out`.

    A plain manifest is read at once, lhotse's cuts and folders of Shar shards lazily.
    """
    path = Path(path)
    if not path.exists():
        raise ManifestError(f"{path} {no_file(path)}")
    refuse_foreign(path)
    if is_lhotse(path):
        place = path.absolute()  # lhotse would run a relative path "pipe:…" in a shell
        try:
            if path.is_dir():
                cuts = CutSet.from_shar(in_dir=place)
            elif ".jsonl" in path.suffixes:
                cuts = CutSet(CutLines(place))
                next(iter(cuts), None)  # fails for a manifest of another format
            else:
                cuts = CutSet.from_file(place)
        except Exception as error:  # lhotse raises many types for other folders and files
            if remedy := advice(path):
                raise ManifestError(f"{path} is not a manifest: {remedy}") from error
            raise ManifestError(
                f"{path} cannot be read as lhotse's cuts (folders and .gz files must be lhotse's): "
                f"{reason(error)}"
            ) from error
        inert = InertCuts(cuts, path)
        return CutSet(inert if cuts.is_lazy else list(inert))
    by_id: dict[str, Cut] = {}
    for utterance in read_manifest(path, left_out):
        if utterance.id in by_id:
            raise ManifestError(f"{path}: id {utterance.id!r} occurs twice")
        try:
            by_id[utterance.id] = _cut(utterance)
        except audio.AudioError as error:
            left_out.append(LeftOut(utterance.id, str(error)))
    return CutSet(list(by_id.values()))


class CutLines:
    """The cuts of a lhotse manifest in JSON lines, read with the limits of `lines_of`."""

    def __init__(self, manifest: Path) -> None:
        self.manifest = manifest

    def __len__(self) -> int:
        return sum(1 for _ in lines_of(self.manifest))

    def __iter__(self) -> Iterator[Cut]:
        for _, line in lines_of(self.manifest):
            yield deserialize_item(decode_json_line(line.decode()))


class InertCuts:
    """The cuts of a lhotse manifest, each made safe by `inert`.

    Cuts that `inert` rejects, or that lhotse cannot read, raise a ManifestError. A cut with
    impossible values is skipped with a warning.
    """

    def __init__(self, cuts: CutSet, manifest: Path) -> None:
        self.cuts, self.manifest = cuts, manifest
        self.warned: set[int] = set()  # numbers of the cuts that were skipped with a warning

    def __len__(self) -> int:
        try:
            return len(self.cuts)
        except ManifestError:
            raise
        except Exception as error:  # gzip, zlib and lhotse raise many types for a damaged file
            raise ManifestError(f"{self.manifest} cannot be read: {reason(error)}") from error

    def __iter__(self) -> Iterator[Cut]:
        cuts = iter(self.cuts)
        for number in count(1):
            where = f"{self.manifest}: cut {number}"
            try:
                cut = next(cuts)
                where += f", {shown(cut.id)}"
                cut = inert(cut, self.manifest)
            except StopIteration:
                return
            except ManifestError as error:
                raise ManifestError(f"{where}: {error}") from None
            except pydantic.ValidationError as error:
                if not leaves_out(error):
                    raise ManifestError(f"{where}: {what_is_wrong(error)}") from None
                if number not in self.warned:  # once, not in every epoch
                    logger.warning("%s is left out: %s", where, what_is_wrong(error))
                    self.warned.add(number)
                continue
            except Exception as error:  # lhotse raises many types for a damaged manifest
                raise ManifestError(f"{where} cannot be read: {reason(error)}") from error
            yield cut


def inert(cut: Cut, manifest: str | Path) -> Cut:
    """Make a cut of lhotse's safe, so that it only reads local files and audio in memory.

    lhotse runs a source of type "command" in a shell, downloads a "url", and unpickles some arrays.
    Features and custom fields, which asrkit does not use, are removed.

    Raises:
        ManifestError: for sources other than SOURCES, and numbers outside BOUNDS.
        pydantic.ValidationError: for impossible values.
    """
    cut = _without_extras(cut)
    utterance_of(cut, manifest)
    for part in objects(cut.to_dict()):
        check_object(part)
    return cut


def _without_extras(cut: Cut) -> Cut:
    """Return the cut without features and custom fields."""
    if isinstance(cut, MixedCut):
        tracks = [fastcopy(track, cut=_without_extras(track.cut)) for track in cut.tracks]
        return fastcopy(cut, tracks=tracks)
    if isinstance(cut, PaddingCut):
        return fastcopy(cut, num_frames=None, num_features=None, frame_shift=None, custom=None)
    supervisions = [fastcopy(each, custom=None, alignment=None) for each in cut.supervisions]
    return fastcopy(cut, supervisions=supervisions, features=None, custom=None)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from objects(each)


def check_object(part: dict[str, Any]) -> None:
    """Raise ManifestError for a source not in SOURCES, a number outside BOUNDS, or a channel."""
    for source in part.get("sources", ()):
        if source["type"] not in SOURCES or "video" in source:
            raise ManifestError(
                f"the source of a recording must be of type {' or '.join(SOURCES)}, got "
                f"{shown(source['type'])}: manifests must not run commands or download files"
            )
    for name, (least, most) in BOUNDS.items():
        value = part.get(name, most)
        if isinstance(value, bool) or not least <= value <= most:
            raise ManifestError(f"{name} must be {least} to {most}, got {shown(value)}")
    for name in CHANNELS:
        value = part.get(name)
        if value is None and (name != "channel" or "supervisions" not in part):  # a cut has one
            continue
        each_of = value if isinstance(value, (list, tuple)) else [value]
        if any(type(each) is not int or each < 0 for each in each_of):
            raise ManifestError(f"{name} must be whole numbers from 0, got {shown(value)}")


def utterance_of(cut: Cut, manifest: str | Path) -> Utterance:
    """Return a cut as a line of a plain manifest; `audio` is only a name and cannot be read.

    The audio may be in memory, mixed or transformed: only the cut itself can read it.
    """
    return Utterance(
        id=cut.id, audio=f"{manifest}#{cut.id}", text=text_of(cut), duration=cut.duration,
        speaker=next((s.speaker for s in cut.supervisions if s.speaker), None),
        sample_rate=cut.sampling_rate, num_channels=cut.num_channels,
    )  # fmt: skip


def part_of_file(cut: Cut) -> tuple[str, int | None] | None:
    """Return the file and the channel of a cut that is a part of one file, or None.

    The channel is None for the mean of all channels. The result is None for a cut that is mixed,
    transformed or in memory, or that has some of several channels.
    """
    if not isinstance(cut, (MonoCut, MultiCut)) or not cut.has_recording:
        return None
    recording = cut.recording
    if recording.transforms or [source.type for source in recording.sources] != ["file"]:
        return None
    path = str(recording.sources[0].source)
    channels = [cut.channel] if isinstance(cut.channel, int) else list(cut.channel)
    if channels == recording.channel_ids:
        return path, None
    return (path, channels[0]) if len(channels) == 1 else None


def _cut(utterance: Utterance) -> Cut:
    """Return an utterance as a lhotse cut; read the audio's header if the manifest lacks values."""
    start, duration, rate = utterance.start or 0.0, utterance.duration, utterance.sample_rate
    if duration and rate and not start and not utterance.channel:
        num_samples, num_channels = round(duration * rate), utterance.num_channels
    else:
        rate, num_samples, num_channels = audio.info(utterance.audio)
    rest = num_samples / rate - start
    duration = min(duration or rest, rest)
    if duration <= 0:
        seconds = num_samples / rate
        raise audio.AudioError(
            f"start must be below {seconds:.2f} s, the length of {utterance.audio}, got {start} s"
        )
    channels = list(range(num_channels))
    recording = Recording(
        id=utterance.id,
        sources=[AudioSource(type="file", channels=channels, source=utterance.audio)],
        sampling_rate=rate,
        num_samples=num_samples,
        duration=num_samples / rate,
        channel_ids=channels,
    )
    supervision = SupervisionSegment(
        id=utterance.id, recording_id=utterance.id, start=0.0, duration=duration,
        text=utterance.text, speaker=utterance.speaker,
    )  # fmt: skip
    kind, channel = (MonoCut, 0) if num_channels == 1 else (MultiCut, channels)
    if utterance.channel is not None:
        kind, channel = MonoCut, utterance.channel
        if channel >= num_channels:
            raise no_channel(utterance.audio, channel, num_channels)
    return kind(
        id=utterance.id, start=start, duration=duration, channel=channel,
        recording=recording, supervisions=[supervision],
    )  # fmt: skip


def has_text(cut: Cut) -> bool:
    """Return whether an utterance has a transcript, which may be empty."""
    return any(s.text is not None for s in cut.supervisions)


def text_of(cut: Cut) -> str:
    """Return the transcript of an utterance."""
    return " ".join(s.text for s in cut.supervisions if s.text)


def usable(cuts: CutSet, why_not: Callable[[Cut], str | None], left_out: list[LeftOut]) -> CutSet:
    """Return the cuts for which `why_not` returns None; append the others to `left_out`."""
    kept: list[Cut] = []
    for cut in cuts:
        reason = why_not(cut)
        if reason is None:
            kept.append(cut)
        else:
            left_out.append(LeftOut(cut.id, reason))
    return CutSet(kept)


def perturb_speed(cuts: CutSet, factors: list[float]) -> CutSet:
    """Return every utterance once at each of these speeds, one after another."""
    copies = [cuts if factor == 1.0 else cuts.perturb_speed(factor) for factor in factors]
    return CutSet([cut for speeds in zip(*copies, strict=True) for cut in speeds])

"""Utterances as lhotse cuts, from plain manifests or anything lhotse reads."""

import json
from collections.abc import Callable
from pathlib import Path

from lhotse import AudioSource, CutSet, MonoCut, MultiCut, Recording, SupervisionSegment
from lhotse.cut import Cut

from asrkit import audio
from asrkit.data.manifest import LeftOut, ManifestError, Utterance, read_manifest


def load_cuts(path: str | Path, left_out: list[LeftOut]) -> CutSet:
    """The utterances of a manifest.

    Args:
        path: a plain JSONL manifest, a lhotse cut manifest, or a folder of Shar shards. Plain
            ones are read at once, the others lazily.
        left_out: gets the utterances that cannot be read, or whose audio cannot.

    Raises:
        ManifestError: if it is missing or not a manifest.
    """
    path = Path(path)
    if not path.exists():
        raise ManifestError(f"no manifest {path}")
    if is_lhotse(path):
        try:
            return CutSet.from_shar(in_dir=path) if path.is_dir() else CutSet.from_file(path)
        except Exception as error:  # whatever lhotse makes of a folder or file that is not its own
            raise ManifestError(
                f"{path} cannot be read as lhotse's, as folders and .gz files are: {error}"
            ) from error
    cuts: dict[str, Cut] = {}
    for utterance in read_manifest(path, left_out):
        if utterance.id in cuts:
            raise ManifestError(f"{path}: id {utterance.id!r} occurs twice")
        try:
            cuts[utterance.id] = _cut(utterance)
        except audio.AudioError as error:
            left_out.append(LeftOut(utterance.id, str(error)))
    return CutSet(list(cuts.values()))


def is_lhotse(path: Path) -> bool:
    """Whether lhotse reads this: Shar shards, or cuts, whose first line names their type."""
    if path.is_dir() or path.name.endswith(".gz"):
        return True
    try:
        with path.open("rb") as lines:
            return str(json.loads(lines.readline()).get("type", "")).endswith("Cut")
    except (ValueError, AttributeError, RecursionError):
        return False


def _cut(utterance: Utterance) -> Cut:
    """One utterance as a lhotse cut; the header is read unless the manifest says all."""
    start, duration, rate = utterance.start or 0.0, utterance.duration, utterance.sample_rate
    if duration and rate and not start:
        num_samples, num_channels = round(duration * rate), utterance.num_channels
    else:
        rate, num_samples, num_channels = audio.info(utterance.audio)
    rest = num_samples / rate - start
    duration = min(duration or rest, rest)
    if duration <= 0:
        seconds = num_samples / rate
        raise audio.AudioError(f"{utterance.audio} has {seconds:.2f} s; start {start} s is past it")
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
        text=utterance.text or "", speaker=utterance.speaker,
    )  # fmt: skip
    kind, channel = (MonoCut, 0) if num_channels == 1 else (MultiCut, channels)
    return kind(
        id=utterance.id, start=start, duration=duration, channel=channel,
        recording=recording, supervisions=[supervision],
    )  # fmt: skip


def text_of(cut: Cut) -> str:
    """The transcript of an utterance."""
    return " ".join(s.text for s in cut.supervisions if s.text)


def usable(cuts: CutSet, why_not: Callable[[Cut], str | None], left_out: list[LeftOut]) -> CutSet:
    """The cuts for which `why_not` gives no reason; the others go to `left_out`, in one pass."""
    kept: list[Cut] = []
    for cut in cuts:
        reason = why_not(cut)
        if reason is not None:
            left_out.append(LeftOut(cut.id, reason))
        elif not cuts.is_lazy:  # lazy cuts may hold their audio: they are not kept
            kept.append(cut)

    def is_usable(cut: Cut) -> bool:  # lhotse warns of lambdas
        return why_not(cut) is None

    return cuts.filter(is_usable) if cuts.is_lazy else CutSet(kept)


def perturb_speed(cuts: CutSet, factors: list[float]) -> CutSet:
    """Each utterance once at each speed, one after the other."""
    copies = [cuts if factor == 1.0 else cuts.perturb_speed(factor) for factor in factors]
    if len(copies) == 1:
        return copies[0]
    if cuts.is_lazy:
        return CutSet.mux(*copies, seed=0)
    return CutSet([cut for speeds in zip(*copies, strict=True) for cut in speeds])

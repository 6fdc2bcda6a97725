"""Hashes of a training's utterances, which show whether a resumed training has the same ones."""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from lhotse.cut import Cut

from asrkit.data.cuts import text_of
from asrkit.data.indexed_cuts import Cuts, IndexedCuts


class Fingerprint(NamedTuple):
    """Hashes of a set of utterances, in order. For an index, `utterances` covers everything."""

    utterances: str  # ids and durations
    ids: str
    texts: str
    audio: str  # paths relative to the manifest's folder, starts and channels


def fingerprints_of(parts: Sequence[Cuts], manifests: Sequence[str]) -> Fingerprint:
    """Hash the utterances of several manifests; for one, as `fingerprint` does."""
    each = [fingerprint(*part) for part in zip(parts, manifests, strict=True)]
    if len(each) == 1:
        return each[0]
    return Fingerprint(
        *(
            hashlib.sha256("".join(hashes).encode()).hexdigest()
            for hashes in zip(*each, strict=True)
        )
    )


def fingerprint(cuts: Cuts, manifest: str) -> Fingerprint:
    """Hash the utterances of a manifest."""
    utterances, ids, texts, audio = (hashlib.sha256() for _ in range(4))
    if isinstance(cuts, IndexedCuts):
        nothing = ids.hexdigest()
        return Fingerprint(cuts.fingerprint(), nothing, nothing, nothing)
    folder = os.path.abspath(os.path.dirname(manifest))
    for number, cut in enumerate(cuts):
        line = f"{cut.id} {cut.duration}"
        utterances.update((f"\n{line}" if number else line).encode(errors="surrogatepass"))
        for digest, value in ((ids, cut.id), (texts, text_of(cut)), (audio, audio_of(cut, folder))):
            digest.update(f"{value!r}\n".encode(errors="surrogatepass"))
    return Fingerprint(*(each.hexdigest() for each in (utterances, ids, texts, audio)))


def audio_of(cut: Cut, folder: str) -> list[Any]:
    """Return the place of an utterance's audio: paths relative to `folder`, starts, channels."""
    if hasattr(cut, "tracks"):
        return [(track.offset, audio_of(track.cut, folder)) for track in cut.tracks]
    if not cut.has_recording:
        return []
    sources = [
        source.type if source.type == "memory" else os.path.relpath(source.source, folder)
        for source in cut.recording.sources
    ]
    return [cut.start, cut.channel, *sources]

"""Keys of other toolkits for the keys of a manifest."""

import re
from collections.abc import Mapping
from typing import Any

from asrkit.errors import shown

# Keys without case and signs, by the key of a manifest; "end" is the end of a part.
NAMES = {
    "audio": "audiofilepath audiopath audiofile audiofilename wav wavpath wavfile wavfilename path "
    "file filename filepath",
    "id": "uttid utteranceid utt uid key",
    "text": "transcript transcription sentence txt reference ref",
    "speaker": "speakerid spk spkid speakername clientid",
    "start": "offset begin begintime starttime startsec startseconds onset",
    "duration": "dur length durationsec durationseconds",
    "end": "endtime endsec endseconds stop",
    "channel": "",
    "track": "",
    "first_byte": "firstbyte",
    "num_bytes": "numbytes",
    "sample_rate": "samplerate samplingrate sr",
    "num_channels": "numchannels channels nchannels",
}
KEYS = {key: name for name, keys in NAMES.items() for key in (name, *keys.split())}


def field_of(key: str) -> str:
    """Return the key of a manifest for another toolkit's key, or "" for an unknown one."""
    return KEYS.get(re.sub(r"[\W_]", "", key).lower(), "")


def wrong_keys(values: Mapping[str, Any]) -> str | None:
    """Describe keys of a line that stand for a key which the line lacks, or return None."""
    wrong = []
    for key in values:
        name = field_of(key).replace("end", "duration")
        if name and key != name and values[key] is not None and values.get(name) is None:
            minus = " (end minus start)" if field_of(key) == "end" else ""
            wrong.append(f"{shown(key)} is not a key here: write {name}{minus}")
    return ", ".join(wrong[:5]) or None

"""Write subtitles beside every recording of a folder: python subtitles.py FOLDER [MODEL]"""

import sys
from pathlib import Path

import asrkit

recognizer = asrkit.load(sys.argv[2] if len(sys.argv) > 2 else "small-en-alnum")
for path in sorted(Path(sys.argv[1]).iterdir()):
    if path.suffix.lower() not in (".wav", ".flac", ".mp3", ".ogg", ".opus"):
        continue
    try:
        result = recognizer.transcribe(path)
    except asrkit.UserError as error:  # report it and continue with the others
        print(error, file=sys.stderr)
        continue
    path.with_suffix(".srt").write_text(result.to("srt"), encoding="utf-8")
    print(f"{path.name}: {result.text}")

"""Audio files of the kinds that people have, written by ffmpeg, sox and lame.

Used by tools/check_inputs.py. KINDS has a shell command for each file, in the order in which they
run: `$i` is the speech, `$o` the new file, and the folder of the files is the working directory.
"""

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

FFMPEG = "ffmpeg -nostdin -v error -y"
VIDEO = "-f lavfi -i color=c=black:s=64x64:r=10:d=6"  # shorter than the speech
STEREO = "-af pan=stereo|c0=c0|c1=c0"
KINDS = {
    "plain.wav": "ffmpeg -i $i -fflags +bitexact $o",
    # length not in the header, or one for larger files
    "pipe.wav": "cat $i | ffmpeg -v error -i - -f wav - > $o",
    "sox_pipe.wav": "sox $i -t wav - | cat > $o",
    "rf64.wav": "ffmpeg -i $i -rf64 always $o",
    "w64.w64": "ffmpeg -i $i $o",
    "pipe.flac": "ffmpeg -i $i -f flac - | cat > $o",
    "extensible.wav": "ffmpeg -i $i -c:a pcm_s24le -ac 3 $o",
    "float.wav": "ffmpeg -i $i -c:a pcm_f32le $o",
    "int24.wav": "ffmpeg -i $i -c:a pcm_s24le $o",
    "int32.wav": "ffmpeg -i $i -c:a pcm_s32le $o",
    "u8.wav": "ffmpeg -i $i -c:a pcm_u8 $o",
    "alaw.wav": "ffmpeg -i $i -ar 8000 -c:a pcm_alaw $o",
    "mulaw.wav": "ffmpeg -i $i -ar 8000 -c:a pcm_mulaw $o",
    "mulaw.au": "sox $i -r 8000 -e mu-law $o",
    "ima.wav": "ffmpeg -i $i -c:a adpcm_ima_wav $o",
    "ms.wav": "ffmpeg -i $i -c:a adpcm_ms $o",
    "mp3_in.wav": "ffmpeg -i $i -c:a libmp3lame $o",
    "tagged.wav": "ffmpeg -i $i -metadata title=Call -metadata comment=RIFF $o",
    "g726.wav": "ffmpeg -i $i -ar 8000 -c:a g726 -b:a 32k $o",
    "gsm.wav": "sox $i -r 8000 -e gsm-full-rate $o",
    "ffmpeg_gsm.wav": "ffmpeg -i $i -ar 8000 -c:a libgsm_ms $o",
    "truespeech.wav": "ffmpeg -i $i -ar 8000 -c:a truespeech $o",
    "gsm.gsm": "sox $i -r 8000 $o",
    "vox.vox": "sox $i -r 8000 $o",
    "amr_nb.amr": "sox $i -r 8000 -t amr-nb $o",
    "amr_wb.amr": "sox $i -t amr-wb $o",
    "aiff.aiff": "sox $i $o",
    "aifc.aifc": "ffmpeg -i $i -c:a pcm_mulaw -f aiff $o",
    "float.aifc": "ffmpeg -i $i -c:a pcm_f32be -f aiff $o",
    "pcm.caf": "ffmpeg -i $i $o",
    "pipe.caf": "ffmpeg -i $i -f caf - | cat > $o",
    "alac.caf": "ffmpeg -i $i -c:a alac $o",
    "opus.caf": "ffmpeg -i $i -c:a libopus $o",
    "pipe.au": "ffmpeg -i $i -f au - | cat > $o",
    "sph.sph": "sox $i $o",
    "voc.voc": "sox $i -r 8000 $o",
    "sln.8svx": "sox $i -r 8000 -t 8svx $o",
    "wv.wv": "ffmpeg -i $i $o",
    "tta.tta": "ffmpeg -i $i $o",
    # MP3, MP2, AAC, AC3: frames
    "vbr_pipe.mp3": "lame --quiet -V 4 $i - | cat > $o",
    "ffmpeg_pipe.mp3": "ffmpeg -i $i -q:a 2 -f mp3 - | cat > $o",
    "vbr_no_xing.mp3": "ffmpeg -i $i -q:a 2 -write_xing 0 $o",
    "abr.mp3": "lame --quiet --abr 56 $i $o",
    "abr_no_xing.mp3": "ffmpeg -i $i -abr 1 -b:a 56k -write_xing 0 -id3v2_version 0 $o",
    "cbr.mp3": "lame --quiet -b 64 --cbr $i $o",
    "free.mp3": "lame --quiet --freeformat -b 64 $i $o",
    "mp3_8000.mp3": "lame --quiet --resample 8 $i $o",
    "mp3_44100.mp3": "lame --quiet --resample 44.1 -m j $i $o",
    "tagged.mp3": "ffmpeg -i $i $VIDEO -map 0 -map 1 -frames:v 1 -c:v png -id3v2_version 3"
    " -write_id3v1 1 -metadata title=x $o",
    "joined.mp3": "cat cbr.mp3 cbr.mp3 > $o",
    "joined_rates.mp3": "cat cbr.mp3 mp3_44100.mp3 > $o",
    "joined_rates_pipe.mp3": "cat mp3_8000.mp3 vbr_pipe.mp3 > $o",
    "joined_tagged.mp3": "cat tagged.mp3 tagged.mp3 > $o",
    "mp2.mp2": "ffmpeg -i $i $o",
    "adts.aac": "ffmpeg -i $i $o",
    "joined.aac": "cat adts.aac adts.aac > $o",
    "ac3.ac3": "ffmpeg -i $i -ar 48000 $o",
    # Ogg
    "vorbis.ogg": "ffmpeg -i $i -c:a libvorbis $o",
    "opus.opus": "ffmpeg -i $i -c:a libopus -b:a 24k $o",
    "flac.oga": "ffmpeg -i $i -c:a flac -f ogg $o",
    "speex.spx": "ffmpeg -i $i -c:a libspeex $o",
    "joined.ogg": "cat vorbis.ogg vorbis.ogg > $o",
    "joined.opus": "cat opus.opus opus.opus > $o",
    "joined_kinds.ogg": "cat vorbis.ogg opus.opus > $o",
    "late.ogg": "ffmpeg -itsoffset 2 -i $i -c:a libopus $o",
    "joined.flac": "ffmpeg -i $i a.flac; cat a.flac a.flac > $o; rm a.flac",
    # MP4
    "faststart.m4a": "ffmpeg -i $i -movflags +faststart $o",
    "moov_at_end.m4a": "ffmpeg -i $i $o",
    "alac.m4a": "ffmpeg -i $i -c:a alac $o",
    "edit_list.m4a": "ffmpeg -ss 2 -i moov_at_end.m4a -c copy $o",
    "fragmented.mp4": "ffmpeg -i $i -movflags frag_keyframe+empty_moov+default_base_moof"
    " -frag_duration 500000 $o",
    "late.mp4": "ffmpeg $VIDEO -itsoffset 2 -i $i -map 0 -map 1 -c:v mpeg4 $o",
    "late_audio_only.m4a": "ffmpeg -itsoffset 2 -i $i $o",
    "video_51.mp4": "ffmpeg -i $i $VIDEO -ac 6 -ar 48000 -c:a aac -c:v mpeg4 $o",
    "qt.mov": "ffmpeg -i $i $VIDEO -c:a pcm_s16le -c:v mpeg4 $o",
    "phone.3gp": "ffmpeg -i $i $VIDEO -c:a aac -c:v mpeg4 $o",
    # Matroska and WebM
    "late.mkv": "ffmpeg $VIDEO -itsoffset 2 -i $i -map 0 -map 1 -c:v mpeg4 -c:a pcm_s16le $o",
    "late_audio_only.mka": "ffmpeg -itsoffset 2 -i $i -c:a libopus $o",
    "opus.webm": "ffmpeg -i $i -c:a libopus $o",
    "live.webm": "ffmpeg -i $i -c:a libopus -f webm -live 1 - | cat > $o",
    "hole.mkv": "ffmpeg -i $i -af \"aselect='not(between(t,4,6))'\" -c:a flac $o",
    "hole.mka": "ffmpeg -i $i -af \"aselect='not(between(t,4,6))'\" -c:a libopus $o",
    "two_tracks.mkv": "ffmpeg -f lavfi -i anullsrc=r=48000:d=12 -i $i -map 0 -map 1"
    " -c:a flac -disposition:a:0 0 -disposition:a:1 default $o",
    "no_default.mkv": "ffmpeg -i $i -f lavfi -i anullsrc=r=16000:cl=mono:d=12 -map 0 -map 1"
    " -c:a flac -disposition:a:0 0 -disposition:a:1 0 $o",
    "two_languages.mp4": "ffmpeg -i $i -i $i -map 0 -map 1 -c:a aac $o",
    # other containers
    "wma.wma": "ffmpeg -i $i -c:a wmav2 $o",
    "video.asf": "ffmpeg -i $i $VIDEO -c:a wmav2 -c:v msmpeg4 $o",
    "mp3.avi": "ffmpeg -i $i $VIDEO -c:a libmp3lame -c:v mpeg4 $o",
    "pcm.avi": "ffmpeg -i $i $VIDEO -c:a pcm_s16le -c:v mpeg4 $o",
    "late.avi": "ffmpeg $VIDEO -itsoffset 2 -i $i -map 0 -map 1 -c:a libmp3lame -c:v mpeg4 $o",
    "mp3.flv": "ffmpeg -i $i $VIDEO -ar 44100 -c:a libmp3lame -c:v flv1 $o",
    "aac.flv": "ffmpeg -i $i $VIDEO -c:a aac -c:v flv1 $o",
    "speex.flv": "ffmpeg -i $i -c:a libspeex $o",
    "ra.rm": "ffmpeg -i $i -ar 8000 -c:a real_144 $o",
    "vob.mpg": "ffmpeg -i $i $VIDEO -c:a mp2 -c:v mpeg2video -r 25 $o",
    "plain.ts": "ffmpeg -i $i $VIDEO -c:a aac -c:v mpeg2video -r 25 $o",
    "late.ts": "ffmpeg $VIDEO -itsoffset 2 -i $i -map 0 -map 1 -c:a mp2 -c:v mpeg2video -r 25 $o",
    "changed_pid.ts": "ffmpeg -i $i -c:a aac -streamid 0:300 a.ts; ffmpeg -i $i -c:a aac"
    " -streamid 0:400 b.ts; cat a.ts b.ts > $o; rm a.ts b.ts",
    "changed_rate.ts": "ffmpeg -i $i -ar 48000 -ac 2 -c:a aac a.ts; ffmpeg -i $i -ar 32000"
    " -c:a aac b.ts; cat a.ts b.ts > $o; rm a.ts b.ts",
    "changed_rate.aac": "ffmpeg -i $i -ar 48000 -ac 2 b.aac; cat adts.aac b.aac > $o; rm b.aac",
    "pcm.mxf": "ffmpeg -i $i $VIDEO -ar 48000 -c:a pcm_s16le -c:v mpeg2video -r 25 $o",
    "pcm.nut": "ffmpeg -i $i -c:a pcm_s16le $o",
    # channels
    "film_51.mka": "ffmpeg -i $i -af pan=5.1|c2=c0 -c:a ac3 -ar 48000 $o",
    "inverted.wav": "ffmpeg -i $i -af pan=stereo|c0=c0|c1=-1*c0 $o",
    "inverted.m4a": "ffmpeg -i $i -af pan=stereo|c0=c0|c1=-1*c0 $o",
    "left_only.wav": "ffmpeg -i $i -af pan=stereo|c0=c0|c1=0*c0 $o",
    # what is not audio
    "no_sound.mp4": "ffmpeg $VIDEO -c:v mpeg4 $o",
    "empty.wav": ": > $o",
    "text.wav": "echo Dear Sir > $o",
    "text.mp3": "seq 1000 > $o",
    "header_only.wav": "head -c 44 plain.wav > $o",
    "zeros.wav": "head -c 50000 /dev/zero > $o",
    "renamed.mp3": "cat plain.wav > $o",
    "renamed.wav": "cat cbr.mp3 > $o",
    "m4a_named.mp3": "cat moov_at_end.m4a > $o",
}
# files of which one is cut and one is damaged
SPOILT = [
    "plain.wav",
    "float.wav",
    "rf64.wav",
    "w64.w64",
    "aiff.aiff",
    "pcm.caf",
    "pipe.caf",
    "sph.sph",
    "pipe.flac",
    "gsm.wav",
    "ima.wav",
    "gsm.gsm",
    "mulaw.au",
    "cbr.mp3",
    "vbr_pipe.mp3",
    "abr.mp3",
    "adts.aac",
    "mp2.mp2",
    "ac3.ac3",
    "vorbis.ogg",
    "opus.opus",
    "speex.spx",
    "faststart.m4a",
    "moov_at_end.m4a",
    "fragmented.mp4",
    "alac.m4a",
    "opus.webm",
    "live.webm",
    "late.mkv",
    "wma.wma",
    "mp3.avi",
    "aac.flv",
    "plain.ts",
    "vob.mpg",
    "wv.wv",
    "tta.tta",
    "pcm.nut",
    "alac.caf",
]


def cut(data: bytes) -> bytes:
    """The file up to 60 % of its length."""
    return data[: len(data) * 6 // 10]


def hurt(data: bytes) -> bytes:
    """The file with some changed bytes in each of three places."""
    changed = bytearray(data)
    for at in (len(data) * 3 // 10, len(data) // 2, len(data) * 7 // 10):
        for place in range(at, min(at + 60, len(data)), 7):
            changed[place] ^= 0x55
    return bytes(changed)


def hole(data: bytes) -> bytes:
    """The file without a twentieth in its middle."""
    return data[: len(data) // 2] + data[len(data) * 11 // 20 :]


def zeroed(data: bytes) -> bytes:
    """The file with zeros in a twentieth in its middle, as a copy that failed leaves them."""
    size = len(data) // 20
    return data[: len(data) // 2] + bytes(size) + data[len(data) // 2 + size :]


def with_sizes(size: int) -> Callable[[bytes], bytes]:
    """Change the sizes in the header of a wav file to that of a recorder that was killed."""

    def changed(data: bytes) -> bytes:
        stated = struct.pack("<I", size)
        at = data.index(b"data")
        return data[:4] + stated + data[8 : at + 4] + stated + data[at + 8 :]

    return changed


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "cut": cut, "hurt": hurt, "hole": hole, "zeroed": zeroed,
}  # fmt: skip


def make(speech: str, folder: Path) -> list[Path]:
    """Write all files; print a line for each that the local programs cannot write."""
    folder.mkdir(parents=True, exist_ok=True)
    source = str(Path(speech).resolve())
    for name, command in KINDS.items():
        line = command.replace("ffmpeg ", f"{FFMPEG} ").replace("$VIDEO", VIDEO)
        line = line.replace("|c", "\\|c").replace("$i", f"'{source}'").replace("$o", name)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=folder, capture_output=True, text=True
        )
        path = folder / name
        if done.returncode or not path.is_file():
            path.unlink(missing_ok=True)
            print(f"not made: {name} ({(done.stderr.strip().splitlines() or ['?'])[-1][:100]})")
    plain = (folder / "plain.wav").read_bytes()
    for size in (0, 0xFFFFFFFF):
        (folder / f"size_{size:x}.wav").write_bytes(with_sizes(size)(plain))
    for name in SPOILT:
        if (folder / name).is_file():
            for edit, change in EDITS.items():
                (folder / f"{edit}_{name}").write_bytes(change((folder / name).read_bytes()))
    return sorted(each for each in folder.iterdir() if each.is_file())

"""Contexts (the frames of a stream that a frame sees), and the rate of encoder frames.

The first chunk of a stream, with lead_frames 2, factor 4, lookahead 3, C = 2 and R = 1:

    samples    │ marker │before│ first sample …           last sample │ after │
    feature frames      │ 0  1  2  3 │ 4  5  6  7 │ 8  9 10 11 │12 13 14 │
                        ├ lead ┤     │            │            │lookahead│
                        ├─────── chunk: 4·C ──────┼ahead: 4·R + lookahead┤
    encoder frames      │     0      │     1      │     2      │
                        ├─────────── C ───────────┼──── R ─────┤

The encoder keeps the pasts after the chunk, and the next step reads what is ahead again.

    marker     samples that tell an initial past from a later one, so that its start is mirrored
    before     samples of padding before the first sample; those of the lead frames are part of it
    after      samples of padding after the last sample
    lead       feature frames before the frame of the first sample
    lookahead  feature frames that an encoder frame sees beyond its own: frame 0 sees 0 … 6
    ahead      feature frames that a step reads beyond its chunks: 8 … 14

`audio.Frontend` has the first three, `FrameRate` the others. The functions at the end of this file
are scripted; the methods call them.
"""

from typing import Literal, NamedTuple

from asrkit.errors import UserError, shown, whole_number

FULL_CONTEXT = 1 << 30  # a chunk_size that no utterance reaches
FEATURE_FRAME_MS = 10
LONGEST_CONTEXT_MS = 3_600_000  # an hour: a longer context would exhaust the memory


class Context(NamedTuple):
    """The encoder frames that a frame sees: its chunk, and those before and after the chunk."""

    chunk_size: int  # C; FULL_CONTEXT: all frames are one chunk
    left: int = 0  # M
    right: int = 0  # R

    @property
    def full(self) -> bool:
        """Whether all frames are one chunk."""
        return self.chunk_size >= FULL_CONTEXT


FULL = Context(FULL_CONTEXT)


class FrameRate(NamedTuple):
    """The relation of feature frames to encoder frames.

    Encoder frame e stands for the feature frames before (e+1)·factor and sees `lookahead` frames
    more. Feature frame number `lead_frames` is that of the first sample. See the picture above.
    """

    factor: int  # feature frames from one encoder frame to the next
    lookahead: int = 0
    lead_frames: int = 0

    @property
    def frame_ms(self) -> int:
        """Duration of an encoder frame in milliseconds."""
        return self.factor * FEATURE_FRAME_MS

    def num_frames(self, feature_frames: int) -> int:
        """Return E for T feature frames."""
        return num_frames(feature_frames, self)

    def chunk_frames(self, context: Context) -> int:
        """Return the number of feature frames of a chunk."""
        return self.factor * context.chunk_size

    def ahead_frames(self, context: Context) -> int:
        """Return the number of feature frames that a step reads beyond its chunks."""
        return self.factor * context.right + self.lookahead

    def step_frames(self, context: Context, num_chunks: int = 1) -> int:
        """Return the number of feature frames that a step of n chunks reads."""
        return num_chunks * self.chunk_frames(context) + self.ahead_frames(context)

    def name(self, context: Context) -> str:
        """Return "full", a chunk such as "640 ms", or with right context such as "320+160 ms"."""
        if context.full:
            return "full"
        ahead = f"+{context.right * self.frame_ms}" if context.right else ""
        return f"{context.chunk_size * self.frame_ms}{ahead} ms"

    def name_with_left(self, context: Context) -> str:
        """Return "full", or the name with the left context: "320+160 ms, left 2560 ms"."""
        left = "" if context.full else f", left {context.left * self.frame_ms} ms"
        return f"{self.name(context)}{left}"

    def options(self, context: Context, default: Context) -> str:
        """Return the command's options for a context, each after a space."""
        if context.full:
            return "" if default.full else " --chunk-ms full"
        names = ("--chunk-ms", "--left-ms", "--right-ms")
        pairs = zip(names, context, default, strict=True)
        return "".join(f" {name} {n * self.frame_ms}" for name, n, usual in pairs if n != usual)

    def context(
        self,
        default: Context,
        chunk_size: int | str | None = None,
        left: int | None = None,
        right: int | None = None,
    ) -> Context:
        """Return a context of the given numbers of encoder frames; None is the number of `default`.

        A chunk size may be "full".
        """
        chunk_size = default.chunk_size if chunk_size is None else chunk_size
        chunk_size = self.chunk_size("chunk_size", chunk_size)
        left = self.checked("left_context", default.left if left is None else left, 0)
        right = self.checked("right_context", default.right if right is None else right, 0)
        return FULL if chunk_size == FULL_CONTEXT else Context(chunk_size, left, right)

    def chunk_size(self, name: str, value: int | str) -> int:
        """Return a chunk size; "full" becomes FULL_CONTEXT. An error begins with `name`."""
        full = value in ("full", FULL_CONTEXT)
        return FULL_CONTEXT if full else self.checked(name, value, 1)

    def checked(self, name: str, value: object, lowest: int) -> int:
        """Return the number of frames of a context, checked. An error begins with `name`."""
        longest = LONGEST_CONTEXT_MS // self.frame_ms
        frames = whole_number(value, lowest, longest)
        if frames is None:
            allowed = f"{lowest} to {longest} frames" + (" or 'full'" if lowest else "")
            raise UserError(f"{name} must be {allowed}, got {shown(value)}")
        return frames

    def frames(self, name: str, milliseconds: str, lowest: int = 0) -> int:
        """Return the number of encoder frames in a time that a user wrote.

        The time must be a multiple of a frame, of at least `lowest` frames. An error begins with
        `name`.
        """
        count, rest = -1, 0
        if milliseconds.isdecimal() and len(milliseconds) <= len(str(LONGEST_CONTEXT_MS)):
            count, rest = divmod(int(milliseconds), self.frame_ms)
        if rest or not lowest <= count <= LONGEST_CONTEXT_MS // self.frame_ms:
            raise UserError(
                f"{name} must be a multiple of {self.frame_ms} ms from {lowest * self.frame_ms} to "
                f"{LONGEST_CONTEXT_MS}, got {shown(milliseconds)}"
            )
        return count


Subsampled = Literal["conv4", "conv8", "conv4_valid", "conv6_valid", "conv8_valid", "whisper"]
LOOKAHEADS = {"conv4_valid": 3, "conv6_valid": 5, "conv8_valid": 7, "whisper": 1}


def rate_of(
    kind: Subsampled, pad_stages: bool = False, stride: int = 2, **others: object
) -> FrameRate:
    """Return the rate of a kind of subsampling with its options; no others change it."""
    factor = stride if kind == "whisper" else int(kind[4])  # of conv4, conv8, …
    return FrameRate(factor, LOOKAHEADS.get(kind, 0), factor - 1 if pad_stages else 0)


def fitted(context: Context, frames: int) -> Context:
    """Return the context for a step of `frames` encoder frames.

    A chunk is at most as long as the step. If the chunk is the whole step, the right context is 0.
    """
    right = context.right if frames > context.chunk_size else 0
    return Context(min(context.chunk_size, max(1, frames)), context.left, right)


def rounding(rate: FrameRate) -> int:
    """Return the number of feature frames to add before the division by `factor`.

    Without look-ahead, zeros complete the last encoder frame. With look-ahead, an encoder frame
    needs every feature frame that it sees.
    """
    return rate.factor - 1 if rate.lookahead == 0 else -rate.lookahead


def num_frames(feature_frames: int, rate: FrameRate) -> int:
    """Return E for T feature frames."""
    return max(0, feature_frames + rounding(rate)) // rate.factor

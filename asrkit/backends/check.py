"""The comparison of two backends over streams, and a probe: numbers that an export must compute."""

from base64 import b64decode
from collections.abc import Iterable, Sequence
from itertools import starmap, zip_longest
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from asrkit.audio import SAMPLE_RATE, Frontend, features
from asrkit.backends.backend import Backend, State, padded, restored, stored
from asrkit.errors import UserError
from asrkit.search import Transducer

TOLERANCE = 1e-4
MOST_ROUNDING = 0.5  # for int8; correct files have 0.04 to 0.1, with two labels exchanged 0.95
HOUR_MS = 3_600_000
NUM_LABELS = 20  # labels that predictor and joiner are compared on
WHOLE_FRAMES = 20  # encoder frames of the recordings of a probe in full context
COLUMNS = 64  # labels or channels of a frame that a probe keeps

Pair = tuple[np.ndarray, np.ndarray]


def run(
    backend: Backend, feats: np.ndarray, sizes: Sequence[int]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return a backend's frames of each step over streams; and its lengths and last states.

    The rows began now, an hour ago and a day ago, and have fewer valid frames from row to row. In
    full context, every step is a recording that begins at the first frame.

    Args:
        feats: (B, T, F), padded with zeros if the steps need more.
        sizes: encoder frames of each step, whole chunks.
    """
    spec, state = backend.spec, backend.init_state(len(feats))
    if not spec.context.full:
        state = aged(state, spec.rate.frame_ms)
    shares, start = 1 + np.arange(len(feats)), 0
    frames: list[np.ndarray] = []
    others: list[np.ndarray] = []
    for size in sizes:
        whole = spec.rate.factor * size + spec.ahead_frames
        part = feats[:, start : start + whole]
        lengths = part.shape[1] // shares
        part = padded(part, whole - part.shape[1])
        output = backend.step(part.astype(spec.dtype), lengths, state)
        frames.append(output.frames)
        others.append(output.lengths)
        if not spec.context.full:
            state, start = output.state, start + spec.rate.factor * size
    return frames, others if spec.context.full else [*others, *stored(state)]


def compare(
    backend: Backend, reference: Backend, feats: np.ndarray, sizes: Sequence[int]
) -> tuple[list[Pair], list[Pair]]:
    """Compute `run` for two backends: pairs of frames, and of lengths and last states."""
    both = (run(each, feats, sizes) for each in (backend, reference))
    frames, others = zip(*both, strict=True)
    return list(zip(*frames, strict=True)), list(zip(*others, strict=True))


def run_parts(parts: Transducer, width: int) -> list[np.ndarray]:
    """Return outputs and states of predictor and joiner, alone and in a batch.

    Args:
        width: D, channels of an encoder frame.
    """
    draw, outputs = np.random.RandomState(0), []
    for rows in (1, 3):
        state = parts.start(rows)
        for _ in range(NUM_LABELS):
            tokens = draw.randint(parts.vocab_size, size=rows)
            frames = draw.normal(size=(rows, 4, width)).astype(np.float32)
            output, state = parts.predict(tokens, state)
            outputs += [output, parts.join(parts.project(frames), output[:, None]), *state]
    return outputs


class Probe(NamedTuple):
    """The numbers of a network for noise, of which an export states those of eager."""

    frames: list[np.ndarray]  # (3, E, V or D) of two steps, of the first COLUMNS
    others: list[np.ndarray]  # their lengths; outputs of predictor and joiner

    def to_bytes(self) -> bytes:
        """Return the probe as .safetensors."""
        named = [(f"{name}{i:03}", array) for name, arrays in self._asdict().items()
                 for i, array in enumerate(arrays)]  # fmt: skip
        return save({name: np.ascontiguousarray(array) for name, array in named})

    @classmethod
    def from_text(cls, text: str) -> "Probe":
        """Read a probe from base64.

        Raises:
            ValueError: for other text.
        """
        try:
            arrays = sorted(load(b64decode(text)).items())
        except (SafetensorError, KeyError, TypeError) as error:  # other types of numbers
            raise ValueError(f"its probe is damaged: {error}") from None
        return cls(
            *([array for name, array in arrays if name.startswith(kind)] for kind in cls._fields)
        )


def probe(backend: Backend, frontend: Frontend) -> Probe:
    """Return a backend's numbers for two steps of three rows: of a chunk, and a later one of more.

    In full context, both steps have their own recordings.
    """
    spec = backend.spec
    chunk = WHOLE_FRAMES if spec.context.full else spec.context.chunk_size
    # At least 33 frames: on some processors, ONNX Runtime's kernel for 32 rows was wrong.
    many = 2 if spec.context.full else max(2, -(-11 // chunk))
    number = spec.rate.factor * (1 + many) * chunk + spec.ahead_frames
    frames, others = run(backend, noise(frontend, number), (chunk, many * chunk))
    others = others[:2]  # the second step's frames depend on the states
    if backend.transducer is not None:
        others += run_parts(backend.transducer, frames[0].shape[2])
    return Probe([each[..., :COLUMNS] for each in frames], [each[..., :COLUMNS] for each in others])


def check(backend: Backend, expected: Probe, frontend: Frontend) -> None:
    """Raise UserError for a backend that does not compute the numbers of a probe."""
    computed = probe(backend, frontend)
    frames, others = (
        list(zip_longest(*pair, fillvalue=np.empty(0)))
        for pair in zip(computed, expected, strict=True)
    )
    exact = backend.kind != "onnx-int8"
    worst = largest_of([*others, *(frames if exact else [])])
    if not worst <= TOLERANCE:
        raise UserError(
            f"backend {backend.kind} differs from eager by {worst:.1e}, over {TOLERANCE:.0e}: "
            "export it again"
        )
    if not exact and not (worst := rounding(frames)) <= MOST_ROUNDING:
        raise UserError(
            f"backend {backend.kind} differs from eager by {worst:.0%} of a label's standard "
            f"deviation, over {MOST_ROUNDING:.0%}: export it again"
        )


def noise(frontend: Frontend, frames: int) -> np.ndarray:
    """Return (3, T, F) features of noise at 0 to -80 dB in each tenth of a second."""
    draw = np.random.RandomState(1)  # its numbers are those of any version of NumPy
    tenths = frames // 10 + 2
    loudness = 10.0 ** (-4.0 * draw.random_sample((3, tenths, 1)))
    samples = (draw.normal(size=(3, tenths, SAMPLE_RATE // 10)) * loudness).reshape(3, -1)
    samples = samples.clip(-1, 1).astype(np.float32)
    feats, _ = features(frontend, samples, np.full(3, samples.shape[1]))
    return feats[:, -frames:]


def aged(state: State, frame_ms: int) -> State:
    """Age the rows of a state (B, …) at the same frame: now, an hour later, a day later, …

    Rounding of quantities that depend on a frame's number only shows there.
    """
    if not state:
        return state
    *others, position = stored(state)
    hours = np.resize([0, 1, 24], len(position))
    return restored([*others, position + hours * (HOUR_MS // frame_ms)], state)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest absolute difference; infinite for other shapes or infinite numbers."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or not np.isfinite(a - b).all():
        return float("inf")
    return float(abs(a - b).max()) if a.size else 0.0


def largest_of(pairs: Iterable[Pair]) -> float:
    """Return the largest difference of all pairs."""
    return max(starmap(difference, pairs))


def rounding(frames: Sequence[Pair]) -> float:
    """Return the largest error of a label: root mean square, relative to its standard deviation.

    Args:
        frames: (B, E, V) of a backend and of eager, for each step. The result is infinite for
            other shapes, or numbers that are not finite.
    """
    if largest_of(frames) == float("inf"):
        return float("inf")
    rounded, exact = (np.concatenate(each, axis=1) for each in zip(*frames, strict=True))
    errors = np.square(rounded - exact).mean(axis=(0, 1))  # (V,)
    return float(np.sqrt(errors.max() / exact.var(axis=(0, 1)).mean()))

"""The interface of a backend, which runs a network in one context."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from asrkit.arrays import array_namespace
from asrkit.context import Context, FrameRate
from asrkit.search import Transducer

State = tuple[Any, ...]  # the network's past: arrays of the runtime, batch first


def joined(states: Sequence[State]) -> State:
    """Return the states of some streams as the state of a batch: a copy, also of a single one."""
    return tuple(
        array_namespace(parts[0]).concat(parts, axis=0) for parts in zip(*states, strict=True)
    )


def divided(state: State) -> list[State]:
    """Return views of the rows of a state."""
    return [tuple(part[i : i + 1] for part in state) for i in range(len(state[0]))] if state else []


def stored(state: State) -> tuple[np.ndarray, ...]:
    """Return a state as arrays of NumPy."""
    return tuple(part if isinstance(part, np.ndarray) else part.numpy(force=True) for part in state)


def restored(arrays: Sequence[np.ndarray], like: State) -> State:
    """Return stored arrays as a state on the runtime of another state."""
    pairs = zip(arrays, like, strict=True)
    return tuple(array_namespace(kin).asarray(part, device=kin.device) for part, kin in pairs)


class Spec(NamedTuple):
    """Sizes and context of a network, which its users need."""

    num_mels: int  # F
    rate: FrameRate
    vocab_size: int  # V
    device: str  # such as cpu or cuda:0
    dtype: str  # usually float32
    context: Context

    @property
    def context_name(self) -> str:
        """Name of the context: "full", "640 ms", or with right context "320+160 ms"."""
        return self.rate.name(self.context)

    @property
    def chunk_frames(self) -> int:
        """Number of feature frames of a chunk."""
        return self.rate.chunk_frames(self.context)

    @property
    def ahead_frames(self) -> int:
        """Number of feature frames that a step reads beyond its chunks."""
        return self.rate.ahead_frames(self.context)

    @property
    def step_frames(self) -> int:
        """Number of feature frames that a step of one chunk reads."""
        return self.rate.step_frames(self.context)

    def whole_chunks(self, feats: np.ndarray) -> np.ndarray:
        """Append zeros to (B, T, F), so that a step of it has whole chunks and what they see."""
        frames = feats.shape[1]
        missing = max(self.step_frames - frames, (self.ahead_frames - frames) % self.chunk_frames)
        return padded(feats, missing)


def padded(feats: np.ndarray, frames: int) -> np.ndarray:
    """Append frames of zeros to (B, T, F)."""
    return np.pad(feats, ((0, 0), (0, frames), (0, 0))) if frames else feats


class Output(NamedTuple):
    """The output of a step."""

    frames: np.ndarray  # (B, E, V), or (B, E, D) for a transducer
    lengths: np.ndarray  # (B,), valid encoder frames
    state: State


InitState = Callable[[int], State]
Run = Callable[[np.ndarray, np.ndarray, State], Output]  # (B, T, F), (B,), state


class Backend(NamedTuple):
    """A network in one context, on any runtime.

        state = backend.init_state(batch_size)
        frames, lengths, state = backend.step(feats, lengths, state)

    Each step of a stream but the last has T = n·factor·C + ahead_frames feature frames: n whole
    chunks and their right context, which is passed again in the next step. A stream ends when the
    remaining frames make no encoder frame.
    """

    kind: str
    spec: Spec
    init_state: InitState
    step: Run
    weights: Callable[[], str]  # SHA-256 of the network's weights
    transducer: Transducer | None = None  # predictor and joiner for a search; None for CTC
    # The head's loss in nats of emissions (E, V or D) and tokens (U,), None if these do not fit;
    # and (E, D) -> (E, V), the CTC layer of a transducer. None where exports lack them.
    loss: Callable[[np.ndarray, Sequence[int]], float | None] | None = None
    ctc: Callable[[np.ndarray], np.ndarray] | None = None


def of_step(step: Any, spec: Spec) -> tuple[InitState, Run]:
    """Return `init_state` and `step` of a backend, which pads the inputs of a module.

    The module takes only whole chunks. In full context it has no state: rows of no numbers.

    Args:
        step: module whose arrays are NumPy's.
        spec: sizes of the network, in the module's context.
    """

    def run(feats: np.ndarray, lengths: np.ndarray, state: State) -> Output:
        frames = spec.rate.num_frames(feats.shape[1])
        emissions, lengths, state = step(spec.whole_chunks(feats), lengths, state)
        return Output(emissions[:, :frames], lengths, state)

    def run_whole(feats: np.ndarray, lengths: np.ndarray, state: State) -> Output:
        frames = spec.rate.num_frames(feats.shape[1])
        size = spec.rate.factor * max(1, frames) + spec.rate.lookahead
        feats = feats[:, :size]  # those after the last encoder frame are dropped
        emissions, lengths = step(padded(feats, size - feats.shape[1]), lengths)
        return Output(emissions[:, :frames], lengths, state)

    if spec.context.full:
        return lambda batch_size: (np.zeros((batch_size, 0), np.float32),), run_whole
    return step.init_state, run

"""asrkit: a whole recording as one row of a batch, and a session that gets random packets."""

import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

import asrkit
from asrkit.build import build_model
from asrkit.config import load_config
from asrkit.evaluation.recording_search import Trace
from asrkit.model import Context, EncoderState, StepOutput
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Recognizer, recognizer_of
from asrkit.runtime.engine import Engine
from asrkit.text import CharTokenizer
from pairs import RANDOM, SEED, Pair, Run, Settings

MODEL = "small-en-alnum"
CONTEXTS = Context(16, 64, 0), Context(8, 64, 4), Context(4, 64, 0)
CALLS = "`transcribe_batch([samples])`; `session.accept(packet)`, `session.finish()`"
EXACT = "rounding: a step of several chunks adds up in another order than a step of one"
CLEARED = "the past of the depthwise convolutions is set to zero after every chunk, on purpose"


def pairs(settings: Settings) -> Iterator[Pair]:
    """Yield the trained model in three contexts, a model with random weights, and two controls."""
    trained = load_model(MODEL)
    for context in CONTEXTS:
        yield pair(trained, MODEL, recognizer_of(trained, context))
    random_file = random_model(settings.layers)
    for context in CONTEXTS[:2]:
        yield pair(random_file, RANDOM, recognizer_of(random_file, context))
    recognizer = recognizer_of(trained, CONTEXTS[0])
    same = pair(trained, MODEL, recognizer)
    yield same._replace(
        toolkit="control: one path twice", streaming=same.offline, cause="no difference", calls=""
    )
    yield same._replace(
        toolkit="control: asrkit without a past", streaming=streaming(forgetful(recognizer)),
        cause=CLEARED, calls="",
    )  # fmt: skip


def random_model(layers: int) -> ModelFile:
    """The default configuration with random weights and 31 characters."""
    config = load_config(
        "conformer", [f"model.num_layers={layers}", "training.intermediate_layers=[]"]
    )
    tokenizer = CharTokenizer([chr(ord("A") + i) for i in range(31)])
    torch.manual_seed(SEED)
    model = build_model(config.model, tokenizer.vocab_size).eval()
    return ModelFile(model, tokenizer, config, {"note": "random weights"})


def pair(file: ModelFile, weights: str, recognizer: Recognizer) -> Pair:
    """Compare a recogniser's batch with its sessions, from samples to log-probabilities."""
    chunk, left, right = recognizer.engine.spec.context
    ms = file.model.encoder.rate.frame_ms
    return Pair(
        f"asrkit {asrkit.__version__}", weights, "samples",
        f"chunk {chunk * ms}, left {left * ms}, right {right * ms}",
        lambda samples: recognizer.emissions([samples])[0], streaming(recognizer), CALLS, EXACT,
    )  # fmt: skip


def streaming(recognizer: Recognizer) -> Run:
    """A session's log-probabilities, whatever the packets."""

    def run(samples: np.ndarray) -> Tensor:
        trace = Trace(recognizer.search)
        session = recognizer.with_search(trace).start()
        for packet in packets(samples):
            session.accept(packet)
        session.finish()
        return trace.frames

    return run


def packets(samples: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the samples in packets of random sizes, from one sample to half a second."""
    draw, start = random.Random(SEED), 0
    while start < len(samples):
        size = draw.choice([1, 160, draw.randrange(1, 8000)])
        yield samples[start : start + size]
        start += size


def forgetful(recognizer: Recognizer) -> Recognizer:
    """Return a copy whose steps set the past of the depthwise convolutions to zero."""
    engine = recognizer.engine
    backend = engine.backend

    def step(feats: Tensor, lengths: Tensor, state: EncoderState) -> StepOutput:
        return backend.step(feats, lengths, state._replace(conv=torch.zeros_like(state.conv)))

    other = recognizer.with_search(recognizer.search)
    other.engine = Engine(backend._replace(step=step), engine.frontend, engine.detector)
    return other

"""Check what needs a GPU, in ten minutes on a machine that has one: make gpu-check

Prints a line a check. Exit status: 0 all passed, 1 one failed, 2 there is no GPU.
"""

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import asrkit
from asrkit.backends.pytorch import eager, known_device
from asrkit.errors import UserError
from asrkit.model import FULL, ConformerEncoder, Context, CTCHead, Network
from asrkit.model_file import load_model
from asrkit.training.loss import Loss, View
from tools.kernels import device_of_kernels, verify_kernels

MODEL = "small-en-alnum"
VOCABULARY = 30
ROWS, FRAMES = 8, 1000  # of the batch of a training step
CTC_LOSSES = 4  # of two views, each on the last layer and on one before it


def streams(device: str) -> tuple[bool, str]:
    """The ready model's network on the card: chunk by chunk against one step, in two precisions."""
    context, worst = asrkit.load(MODEL).engine.spec.context, {}
    for dtype, limit in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        backend = eager(load_model(MODEL).model.to(device, dtype), context)
        spec, draw = backend.spec, np.random.default_rng(0)
        frames = 20 * spec.chunk_frames + spec.ahead_frames
        feats = (10 + 3 * draw.normal(size=(3, frames, spec.num_mels))).astype(spec.dtype)
        whole = backend.step(feats, np.full(3, frames), backend.init_state(3)).frames
        state, parts = backend.init_state(3), []
        for start in range(0, frames - spec.ahead_frames, spec.chunk_frames):
            part = feats[:, start : start + spec.step_frames]
            output = backend.step(part, np.full(3, part.shape[1]), state)
            parts.append(output.frames)
            state = output.state
        worst[dtype] = float(abs(np.concatenate(parts, axis=1) - whole).max()), limit
    passed = all(found <= limit for found, limit in worst.values())
    return passed, ", ".join(
        f"{found:.1e} (at most {limit:.0e})" for found, limit in worst.values()
    )


def texts(device: str) -> tuple[bool, str]:
    """The ready model's text of tones: at once on the CPU; on the card at once, in packets of a
    session that is saved and resumed, as rows of a batch, and in a batcher."""
    time_s = np.arange(5 * 16000) / 16000
    samples = 0.2 * np.sin(2 * np.pi * 300 * time_s * (1 + 0.3 * np.sin(3 * time_s)))
    samples = samples.astype(np.float32)
    expected = asrkit.load(MODEL).transcribe(samples).text
    recognizer = asrkit.load(MODEL, device=device, backend="eager")
    session = recognizer.start()
    for packet in np.array_split(samples, 23):
        session = recognizer.restore(session.save())
        session.accept(packet)
    found = [recognizer.transcribe(samples).text, session.finish().text]
    found += [each.text for each in recognizer.transcribe_batch([samples, samples[:30000]])[:1]]
    batcher = asrkit.Batcher(recognizer)
    callers = [batcher.start() for _ in range(3)]
    for caller in callers:
        caller.accept(samples)
        caller.finish()
    while batcher.step():
        pass
    found += [caller.result.text for caller in callers]
    return all(text == expected for text in found), f"{len(found)} × {expected!r}"


def losses(device: str) -> tuple[bool, str]:
    """A training step's loss and gradient norm: float32 and bfloat16 on the card, and the CPU's."""
    (loss, norm, _), (here, its_norm, _) = step("cpu", False), step(device, False)
    bf16, _, _ = step(device, True)
    apart = max(abs(here / loss - 1), abs(its_norm / norm - 1))
    return apart < 1e-3 and abs(bf16 / loss - 1) < 0.05, (
        f"float32 {apart:.1e} apart, bfloat16 {abs(bf16 / loss - 1):.1e}"
    )


def waits(device: str) -> tuple[bool, str]:
    """Count where a training step makes the CPU wait for the card.

    torch's CTC loss waits eight times: it copies the lengths to the card, forward and backward.
    """
    _, _, places = step(device, False)
    named = "".join(f"\n  {count} × {place}" for place, count in places.most_common())
    return places.total() <= 8 * CTC_LOSSES, f"{places.total()} waits{named}"


def network() -> Network:
    torch.manual_seed(0)
    encoder = ConformerEncoder(dim=144, num_layers=4, ffn_dim=576)
    return Network(encoder, CTCHead(encoder.dim, VOCABULARY))


def step(device: str, bfloat16: bool) -> tuple[float, float, Counter[str]]:
    """Loss, gradient norm, and the places where the CPU waited; lengths are on the CPU."""
    model = network().to(device)
    draw = torch.Generator().manual_seed(0)
    feats = torch.randn(ROWS, FRAMES, 80, generator=draw).to(device)
    tokens = torch.randint(1, VOCABULARY, (ROWS, 40), generator=draw).to(device)
    lengths, counts = torch.full((ROWS,), FRAMES), torch.full((ROWS,), 40)
    views = [View(feats, FULL), View(feats, Context(16, 64))]
    on_card = device != "cpu"
    if on_card:
        torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss = Loss(model, [2], 0.3)(views, lengths, tokens, counts, 0.1).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    if on_card:
        torch.cuda.set_sync_debug_mode("default")
    places = (
        f"{'/'.join(Path(each.filename).parts[-2:])}:{each.lineno}"
        for each in caught
        if "called a synchronizing" in str(each.message)
    )
    return float(loss.detach()), float(norm), Counter(places)


CHECKS: dict[str, Callable[[str], tuple[bool, str]]] = {
    "streaming equals offline": streams,
    "text as on the CPU": texts,
    "a training step as on the CPU": losses,
    "the CPU does not wait": waits,
}


def main(argv: list[str] | None = None) -> int:
    arguments = argparse.ArgumentParser("gpu_check", description=__doc__)
    arguments.add_argument("--device", help="cpu tries the checks themselves (default: the GPU)")
    options = arguments.parse_args(argv)
    try:
        device = options.device or device_of_kernels()
        known_device(device)  # as `load` and training do: it makes convolutions exact
    except UserError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    failed = verify_kernels(device) if device != "cpu" else 0
    for name, check in CHECKS.items():
        try:
            passed, found = check(device)
        except Exception as error:  # the other checks are worth their lines
            passed, found = False, f"{type(error).__name__}: {error}"
        failed += not passed
        print(f"{'passed' if passed else 'FAILED'}  {name}: {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

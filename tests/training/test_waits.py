"""A training step waits for a GPU once, and for the other ranks once besides their gradients.

There is no GPU here: what would be on one is followed through all operations, from the weights and
from what `Tensor.to` puts beside them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from asrkit.training.loss import Gradients
from asrkit.training.trainer import Trainer
from tests.conftest import write_config
from tests.training.ranks import train_with
from tests.training.test_trainer import trainer

aten = torch.ops.aten
# Operations whose result, or its shape, the CPU has to know.
READING = {
    aten._local_scalar_dense.default, aten.is_nonzero.default, aten.equal.default,
    aten.nonzero.default, aten.masked_select.default, aten.repeat_interleave.Tensor,
}  # fmt: skip


class OnGPU(TorchDispatchMode):
    """Follows tensors as if they were on a GPU; `waits` names what would make the CPU wait."""

    def __init__(self, change: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.there: dict[int, Tensor] = {}  # by their memory, which they keep
        self.waits: list[str] = []
        for name in ("tolist", "cpu", "numpy"):
            change.setattr(Tensor, name, self.watched(name, getattr(Tensor, name)))
        change.setattr(Tensor, "to", self.copied(Tensor.to))
        change.setattr(functional, "ctc_loss", self.of_lengths(functional.ctc_loss))

    def put(self, tensor: Tensor) -> Tensor:
        self.there[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    def has(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.untyped_storage().data_ptr() in self.there

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tree_leaves((args, kwargs))
        if not any(map(self.has, given)):
            return func(*args, **kwargs)
        by_mask = func is aten.index.Tensor and any(
            isinstance(each, Tensor) and each.dtype == torch.bool for each in tree_leaves(args[1])
        )
        if func in READING or by_mask:
            self.waits.append(str(func))
        found = func(*args, **kwargs)
        for each in tree_leaves(found):
            if isinstance(each, Tensor) and each.numel():
                self.put(each)
        return found

    def watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: Tensor, *args: Any) -> Any:
            if self.has(tensor):
                self.waits.append(name)
            return method(tensor, *args)

        return call

    def copied(self, method: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """A copy that nobody waits for is one to the GPU."""

        def call(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
            found = method(tensor, *args, **options)
            return self.put(found.clone()) if options.get("non_blocking") else found

        return call

    def of_lengths(self, loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """torch reads the lengths of its CTC loss on the CPU."""

        def call(log_probs: Tensor, tokens: Tensor, *rest: Any, **options: Any) -> Tensor:
            self.waits += ["ctc_loss" for each in rest if self.has(each)]
            assert self.has(log_probs)
            assert self.has(tokens)
            return loss(log_probs, tokens, *rest, **options)

        return call


def waits_of_a_step(subject: Trainer, change: pytest.MonkeyPatch) -> list[str]:
    change.setattr(Trainer, "share", lambda self: 0.5)  # masks at their full probability
    step = next(subject.steps())
    with change.context() as inside:
        mode = OnGPU(inside)
        for tensor in [*subject.model.state_dict().values(), *subject.gradients.frontend.buffers()]:
            if tensor.numel():
                mode.put(tensor)
        with mode:
            subject.train_step(step)
    assert len(mode.there) > 1000
    return mode.waits


OVERRIDES: dict[str, Any] = {"accumulate_batches": 2, "views": "same", "average": 1}


def test_a_step_reads_once(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = trainer(corpus, tmp_path, **OVERRIDES)
    augmentation = subject.config.augmentation.model_copy(
        update={"frequency_warp": 0.1, "gain_db": 6.0, "spec_max_time_share": 0.5}
    )
    config = subject.config.model_copy(update={"augmentation": augmentation})
    subject.gradients.config = config
    assert waits_of_a_step(subject, monkeypatch) == ["tolist"]


@pytest.mark.parametrize("what", ["item", "index"])
def test_control_another_read_is_seen(
    what: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = trainer(corpus, tmp_path, **OVERRIDES)
    backward = Gradients.backward

    def tampered(self: Gradients, *args: Any) -> Any:
        losses = backward(self, *args)
        if what == "item":
            float(losses[0][1].sum())
        if what == "index":
            losses[0][1][torch.isfinite(losses[0][1])]
        return losses

    monkeypatch.setattr(Gradients, "backward", tampered)
    assert len(waits_of_a_step(subject, monkeypatch)) > 1


# Each rank counts the collective operations of its steps, those that torch itself begins too. The
# second training sums once more a step.
COUNTED = """
import os
from torch.profiler import ProfilerActivity, profile
from asrkit.training.trainer import Trainer
trainings = 0

def counted(self, train_epoch=Trainer.train_epoch):
    global trainings
    trainings += 1
    with profile(activities=[ProfilerActivity.CPU]) as events:
        train_epoch(self)
    named = {each.key: each.count for each in events.key_averages() if "c10d::" in each.key}
    if os.environ["RANK"] == "0":
        print("training", trainings, "steps", self.progress.step, *sorted(named.items()))

def careless(self, step, train_step=Trainer.train_step):
    if trainings == 2:
        self.ranks.sum(1.0)
    train_step(self, step)
Trainer.train_epoch, Trainer.train_step = counted, careless
"""


@pytest.mark.slow
def test_a_step_sums_once_besides_the_gradients(
    corpus: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    trainings = []
    for name in ("one", "careless"):
        options = {"epochs": 1, "average": 1, "accumulate_batches": 2}
        path = write_config(tmp_path / f"{name}.yaml", corpus, tmp_path / name, **options)
        trainings.append(["--config", str(path), "data.max_batch_seconds=1.5"])
    told = train_with(2, environment, *trainings, before=COUNTED)
    found = [
        (int(steps), dict(re.findall(r"c10d::(\w+?)_', (\d+)", named)))
        for steps, named in re.findall(r"training \d steps (\d+) (.*)", told)
    ]
    (steps, operations), (_, others) = found
    assert steps > 1
    # The gradients of so small a model are one sum; the end of the epoch takes one more.
    assert int(operations["allreduce"]) == 2 * steps + 1
    # Once, torch agrees on how gradients are joined, and whether all weights are finite is asked.
    assert int(operations.pop("broadcast", 0)) <= 2 < steps
    assert int(operations.pop("allgather", 0)) <= 2
    assert operations.keys() == {"allreduce"}
    assert int(others["allreduce"]) == int(operations["allreduce"]) + steps  # the control

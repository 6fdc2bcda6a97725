"""The training loop.

Every random draw (dropout, masks, chunk sizes, noise) depends only on the seed, the epoch and the
number of the batch. A checkpoint therefore needs no state of random generators, and a resumed
training has the same weights bit for bit. Two ranks train like one rank with twice the
accumulation.
"""

import logging
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from asrkit.backends.pytorch import set_threads
from asrkit.backends.threads import threads_for
from asrkit.config.schema import Config
from asrkit.errors import UserError
from asrkit.evaluation import Score
from asrkit.evaluation.scoring import unit_rates
from asrkit.model import Network
from asrkit.training.batches import TrainingBatches, filler
from asrkit.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    EpochWeights,
    Progress,
    TrainingCheckpointError,
    check_fit,
)
from asrkit.training.dataset import Corpus
from asrkit.training.distributed import Ranks
from asrkit.training.loss import Gradients, not_finite
from asrkit.training.optimizer import build_optimizers, learning_rate, set_learning_rate
from asrkit.training.progress import EpochLog
from asrkit.training.resume_checks import check_same
from asrkit.training.utterances import Batch
from asrkit.training.validation import curves_on_dev, log_rates, scores_on

logger = logging.getLogger(__name__)

NAMED = 100  # left-out utterances that the log names per epoch; all are counted


class TrainingError(UserError):
    """An error that ends the training."""


class Step(NamedTuple):
    """An optimiser step: this rank's batches, and sums over the batches of all ranks."""

    batches: list[Batch]  # may include fillers
    tokens: float
    seconds: float
    num_left_out: int
    num_bad: int


class Done(NamedTuple):
    """Statistics of a finished step on this rank. The losses of other ranks are added later."""

    loss: float  # sum over this rank's utterances
    tokens: float  # sum over all ranks
    learning_rate: float
    gradient_norm: float
    taken: bool  # False if a loss or gradient is not finite, or the batches have no tokens


NOTHING = Done(0.0, 0.0, 0.0, 0.0, False)  # before an epoch's first step


class Trainer:
    """The training loop of a model on a corpus, which can resume from checkpoints.

    Args:
        model: model to train, in place.
        config: the whole configuration, without "auto" in its schedule.
    """

    def __init__(
        self,
        model: Network,
        corpus: Corpus,
        config: Config,
        checkpoints: Checkpoints,
        epochs: EpochWeights,
        ranks: Ranks,
    ) -> None:
        self.model, self.corpus, self.config, self.options = model, corpus, config, config.training
        self.checkpoints, self.epochs, self.ranks = checkpoints, epochs, ranks
        self.num_epochs = int(self.options.epochs)
        parameters = sum(each.numel() for each in model.parameters())
        set_threads(threads_for(self.options.num_threads or None, parameters))
        self.gradients = Gradients(model, config, ranks)
        # Weight decay would move the frozen rows of a head whose new labels learn.
        decay = 0.0 if self.options.keep == "adapters" else self.options.weight_decay
        self.optimizers = build_optimizers(
            model, self.options.optimizer, decay, self.options.rate_factors
        )
        self.batches = TrainingBatches(corpus, config, ranks)
        # Counts of the epoch since this process started, over all ranks.
        self.num_left_out = self.num_bad = self.num_tokens = 0
        self.total_loss = 0.0
        self.last = NOTHING  # the previous step, until the ranks have summed its loss
        self.writers: list[Any] = []  # set by the caller: TensorBoard's, and trackers
        self.stop = False  # set by the caller: save and end after the current step
        self.stopped = False  # whether the ranks have agreed to
        self.progress = Progress()
        self.started = time.monotonic()  # start time, minus the time of earlier runs
        self.history: dict[int, dict[str, float]] = {}  # epoch -> error rate by chunk size

    def run(self) -> bool:
        """Train to the last epoch or until dev errors no longer fall; return False if stopped."""
        while self.progress.epoch < self.num_epochs and not self.has_converged():
            self.train_epoch()
            if self.stopped:
                self.save()
                return False
            epoch = self.progress.epoch
            validates = (epoch + 1) % self.options.validate_every_epochs == 0
            if epoch + 1 == self.num_epochs:
                # Without averaging, the last epoch is scored at the end, with the model file.
                validates = epoch > 0 and self.epochs.keep > 1
            if validates:
                self.validate_epoch()
            if self.ranks.is_first:
                self.epochs.save(epoch, self.model.state_dict())
            self.progress = Progress(epoch + 1, 0, self.progress.step, 0.0)
            self.save()
        if self.progress.epoch < self.num_epochs:
            logger.info(
                "dev errors did not fall in %d validations (training.patience): the training ends",
                self.options.patience,
            )
        return True

    def train_epoch(self) -> None:
        """Train the rest of the current epoch."""
        start, before = time.monotonic(), self.progress
        self.num_left_out = self.num_bad = self.num_tokens = 0
        self.total_loss = 0.0
        log = EpochLog(before.epoch, self.num_epochs, self.corpus.seconds, before.seconds)
        for step in self.steps():
            self.train_step(step)
            loss = self.ranks.size * self.last.loss / max(1.0, self.last.tokens)
            log.update(self.progress.seconds, loss)
            if self.progress.step % self.options.checkpoint_every_steps == 0:
                self.save()
        self.check_finite()
        if self.progress.step == before.step:  # the previous run was stopped after the last step
            return
        if not self.num_tokens and not before.batch and not self.stopped:
            raise TrainingError(
                f"epoch {before.epoch + 1} skipped all its steps, see the warnings above: "
                "check that the recordings can be read, or lower training.learning_rate "
                f"{self.options.learning_rate:g}"
            )
        elapsed = time.monotonic() - start
        logger.info(
            "epoch %d/%d  step %d  loss %.3f  learning rate %.2e  %.0f s, %.0f s of audio a second",
            self.progress.epoch + 1, self.num_epochs, self.progress.step,
            self.total_loss / max(1, self.num_tokens), self.rate(),
            elapsed, (self.progress.seconds - before.seconds) / max(1e-9, elapsed),
        )  # fmt: skip
        if self.num_left_out:
            logger.warning(
                "%d of %d utterances were left out; %d of them could not be read",
                self.num_left_out, self.batches.num_utterances, self.num_bad,
            )  # fmt: skip

    def steps(self) -> Iterator[Step]:
        """Yield the optimiser steps in the rest of the epoch, until a rank must stop.

        Before each step the ranks sum all shared numbers, including the loss of the previous step.
        A step thus has one small sum, and does not wait for other ranks at its end.
        """
        for group in self.batches.groups(self.progress):
            more, stop, loss, tokens, seconds, num_left_out, num_bad = self.ranks.sum(
                bool(group),
                self.stop,
                self.last.loss,
                sum(int(batch.token_lengths.sum()) for batch in group if batch.ids),
                sum(batch.seconds for batch in group),
                sum(len(batch.left_out) for batch in group),
                sum(batch.num_bad for batch in group),
            )
            self.log_last(loss)
            # A rank that is told to stop during the sum stops with the others at the next step.
            self.stopped = stop > 0
            if self.stopped or not more:
                return
            # Ranks step together: a rank without batches left gets fillers with weight 0.
            group += [filler()] * (self.options.accumulate_batches - len(group))
            yield Step(group, tokens, seconds, int(num_left_out), int(num_bad))

    def train_step(self, step: Step) -> None:
        """Do an optimiser step, or skip it if a loss or gradient is not finite."""
        self.count_left_out(step)
        rate = self.rate()
        set_learning_rate(self.optimizers, rate)
        self.model.train()
        losses = self.gradients.backward(step.batches, step.tokens, self.share())
        clipped = nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        nats = [each.sum().double() for _, each in losses]
        # Outside the loss, the step waits for the GPU only here.
        norm, *totals = torch.stack([clipped.double(), *nats]).tolist()
        # Without tokens, the momentum alone would change the weights.
        taken = math.isfinite(norm) and step.tokens > 0
        if taken:
            for optimizer in self.optimizers:
                optimizer.step()
        elif step.tokens:
            names = ", ".join(self.ranks.gather(not_finite(losses))) or "not of a single utterance"
            logger.warning(
                "skipped step %d: loss or gradient not finite (%s)", self.progress.step, names
            )
        self.model.zero_grad(set_to_none=True)
        epoch, number, count, consumed = self.progress
        number += len(step.batches) * self.ranks.size
        self.progress = Progress(epoch, number, count + 1, consumed + step.seconds)
        self.last = Done(sum(totals), step.tokens, rate, norm, taken)

    def log_last(self, loss: float) -> None:
        """Log the previous step; `loss` is its sum over all ranks."""
        if self.last is NOTHING:
            return
        _, tokens, rate, norm, taken = self.last
        self.last = NOTHING
        self.log({"loss": loss / max(1.0, tokens), "learning_rate": rate, "gradient_norm": norm})
        if taken:
            self.total_loss += loss
            self.num_tokens += int(tokens)

    def count_left_out(self, step: Step) -> None:
        """Name and count the utterances left out of a step.

        Raises:
            TrainingError: if more than data.max_bad_share of an epoch cannot be read.
        """
        names = [utterance for batch in step.batches for utterance in batch.left_out]
        for utterance in names[: max(0, NAMED - self.num_left_out)]:
            logger.warning("left out %s", utterance)
        self.num_left_out += step.num_left_out
        self.num_bad += step.num_bad
        share, count = self.config.data.max_bad_share, self.batches.num_utterances
        if self.num_bad > share * count:
            raise TrainingError(
                f"{self.num_bad} of an epoch's {count} utterances could not be read, more than "
                f"data.max_bad_share {share:g}, see the warnings above; repair the files, then "
                "continue from the last checkpoint with --resume"
            )

    def validate_epoch(self) -> None:
        """Score the model on dev and each canary; add the error rates on dev to `history`."""
        scores = self.validation()
        self.history[self.progress.epoch] = unit_rates(scores)
        self.log_scores(scores, self.canary_rates())

    def validation(self, align: bool = False) -> dict[str, Score]:
        """Return the scores on dev, see `scores_on`. All ranks must call this."""
        encode = self.corpus.encode
        return scores_on(self.corpus.dev, self.model, encode, self.config, self.ranks, align)

    def canary_rates(self) -> dict[str, dict[str, float]]:
        """Return and log the error rate on each canary by chunk size. All ranks must call this."""
        rates = {}
        for name, cuts in self.corpus.canary.items():
            scores = scores_on(cuts, self.model, self.corpus.encode, self.config, self.ranks)
            rates[f"canary_{name}"] = unit_rates(scores)
            log_rates(f"canary {name} error rate", rates[f"canary_{name}"])
        return rates

    def log_scores(self, scores: dict[str, Score], canary: dict[str, dict[str, float]]) -> None:
        """Log error rates and loss on dev in every validated context, and draw all curves."""
        curves = curves_on_dev(scores) | canary
        for tag, by_chunk in curves.items():
            self.log({f"{tag}/{of}": value for of, value in by_chunk.items()})

    def log(self, values: dict[str, float]) -> None:
        for writer in self.writers:
            for name, value in values.items():
                writer.add_scalar(name, value, self.progress.step)

    def has_converged(self) -> bool:
        """Return whether the last `training.patience` validations had no lower mean error rate."""
        patience = self.options.patience
        scores = [sum(rates.values()) / len(rates) for rates in self.history.values() if rates]
        if patience is None or len(scores) <= patience:
            return False
        return min(scores[-patience:]) >= min(scores[:-patience])

    def share(self) -> float:
        """Return the share of all training that is done, 0 to 1."""
        epochs = self.progress.epoch + self.progress.seconds / self.corpus.seconds
        return epochs / self.num_epochs

    def rate(self) -> float:
        """Return the learning rate of the next step, of parts whose factor is 1."""
        options = self.options
        return learning_rate(self.share(), options.learning_rate, options.warmup_share)

    def wall_seconds(self) -> float:
        """Return the seconds that all runs of this training took."""
        return time.monotonic() - self.started

    def check_finite(self) -> None:
        """Raise TrainingError if a weight is NaN or infinite, which no step can repair."""
        weights = self.model.state_dict().items()
        names = [name for name, weight in weights if not torch.isfinite(weight).all()]
        if names := self.ranks.gather(names):
            raise TrainingError(
                f"training diverged: {names[0]} is not finite at step {self.progress.step}; "
                "continue from the last checkpoint with --resume and a lower "
                "training.learning_rate"
            )

    def save(self) -> None:
        """Write a checkpoint, on the first rank."""
        self.check_finite()
        if not self.ranks.is_first:
            return
        state = {
            "weights": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": self.progress._asdict(),
            "history": self.history,
            "wall_seconds": self.wall_seconds(),
            "config": self.config.model_dump(mode="json"),
            "identity": self.corpus.identity,
            "ranks": self.ranks.size,
        }
        self.checkpoints.save(self.progress.step, state)

    def resume(self) -> bool:
        """Continue from the newest usable checkpoint; return False without any checkpoint.

        Raises:
            ConfigError: if the checkpoint is of another training.
            TrainingCheckpointError: if no checkpoint is usable; the trainer is unchanged then.
        """

        def checked(stored: Checkpoint) -> Checkpoint:
            check_same(stored, self.corpus.identity, self.config, self.ranks.size)
            check_fit(stored, self.model, self.optimizers)
            return stored

        stored = self.checkpoints.newest(checked)
        if len(set(self.ranks.gather([stored and stored.progress]))) > 1:
            raise TrainingCheckpointError(
                "--resume: the processes find different checkpoints in training.output_dir "
                f"{self.options.output_dir}; use a folder that all processes share"
            )
        if stored is None:
            return False
        self.model.load_state_dict(stored.weights)
        for optimizer, state in zip(self.optimizers, stored.optimizers, strict=True):
            # The settings of the optimisers come from the configuration.
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({**state, "param_groups": groups})
        self.progress, self.history = stored.progress, stored.history
        self.started -= stored.wall_seconds
        return True

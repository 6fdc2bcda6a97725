"""Train a recogniser: asrkit train --config conf/conformer.yaml [section.key=value]"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from asrkit.atomic_write import refuse_file, replacing, write_text
from asrkit.cli.parser import Parser
from asrkit.extras import need
from asrkit.terms import Terms

if TYPE_CHECKING:
    from asrkit.config.schema import Config
    from asrkit.config.training import DataConfig
    from asrkit.context import Context
    from asrkit.data.manifest import LeftOut
    from asrkit.training.distributed import Ranks
    from asrkit.training.trainer import Trainer


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit train", __doc__,
        "asrkit train --config conformer training.epochs=10\n"
        "  asrkit train --config conformer --resume\n"
        "  torchrun --nproc-per-node 2 -m asrkit train --config my/config.yaml",
    )  # fmt: skip
    arguments.add_argument("--config", required=True, help="YAML file, or a name of conf/")
    arguments.add_argument("--resume", action="store_true", help="continue where training stopped")
    arguments.add_argument("overrides", nargs="*", metavar="section.key=value")
    return arguments.run(train, argv)


logger = logging.getLogger("asrkit")

# Files in training.output_dir. The labels are those of a training that keeps the labels of
# training.start_from, which it needs no more when it is resumed.
MODEL, LABELS = "model.safetensors", "tokenizer"


def train(options: argparse.Namespace) -> int:
    from asrkit.training.distributed import Ranks
    from asrkit.training.warm_start import CONFIG, load_training

    config = load_training(options.config, options.overrides, options.resume)
    # Now, not when the corpus has been made and read.
    need("tensorboard", *config.training.trackers)
    ranks = Ranks(config.training.device)
    try:
        folder = Path(config.training.output_dir)
        ranks.from_first(lambda: prepare(config, folder, options.resume, options.overrides))
        start_log(folder, ranks.is_first)
        logger.info("training on %s", ranks.where)
        config = with_terms(config, folder / CONFIG if options.resume else None)
        return run(config, folder, options, ranks)
    finally:
        ranks.close()


def with_terms(config: Config, former: Path | None) -> Config:
    """Fill the configuration's missing terms with those of `training.start_from`.

    Args:
        former: configuration file of the same training before it was resumed. A resumed training
            keeps its terms, even if the first model no longer exists.
    """
    from asrkit.config.read_yaml import parse_yaml
    from asrkit.model_file import read_header

    terms = Terms(config.data.licence, tuple(config.data.languages))
    if former is not None and former.is_file():
        data = parse_yaml(former.read_text(encoding="utf-8"))["data"]
        terms = terms.or_else(Terms(data.get("licence"), tuple(data.get("languages", []))))
    elif start := config.training.start_from:
        terms = terms.or_else(read_header(start).terms)
    stated = {"licence": terms.licence, "languages": [*terms.languages]}
    return config.model_copy(update={"data": config.data.model_copy(update=stated)})


def prepare(config: Config, folder: Path, resume: bool, overrides: list[str]) -> None:
    """Make missing manifests and the output folder; reject a folder with a training."""
    from asrkit.config.read_yaml import ConfigError
    from asrkit.training.checkpoints import Checkpoints

    refuse_file("training.output_dir", folder)
    checkpoints = Checkpoints(folder / "checkpoints").paths()
    if not resume and (checkpoints or any(folder.glob("**/*.safetensors"))):
        raise ConfigError(
            f"training.output_dir {folder} already has a training; "
            "--resume continues it, another training.output_dir starts a new one"
        )
    if resume and not checkpoints and (folder / MODEL).exists():
        raise ConfigError(
            f"--resume: {folder} has a {MODEL} but no checkpoint; use training.start_from to "
            "continue from a model, in another training.output_dir"
        )
    make_manifests(config.data, overrides)
    folder.mkdir(parents=True, exist_ok=True)


def make_manifests(data: DataConfig, overrides: list[str]) -> None:
    """Run the configuration's recipe if its manifests are missing.

    A recipe overwrites manifests of its names, so it does not run for a user's own manifests. These
    are overridden on the command line, or in a folder that is not named after the recipe, as in a
    copied configuration.
    """
    from asrkit.config.locate import recipes
    from asrkit.config.read_yaml import ConfigError

    named = [*(("data.train", path) for path in data.train), ("data.dev", data.dev)]
    missing = [
        f"{key}: no manifest {Path(path)}" for key, path in named
        if "://" not in path and not Path(path).exists()
    ]  # fmt: skip
    if not missing:
        return
    output = Path(data.train[0]).parent
    is_own = any(each.startswith(("data.train=", "data.dev=")) for each in overrides)
    if data.recipe not in recipes() or output.name != data.recipe or is_own:
        raise ConfigError(missing[0])
    script = recipes()[data.recipe]
    if subprocess.run([sys.executable, script, "--output-dir", output], check=False).returncode:
        raise ConfigError(f"data.recipe: {script} failed")


def start_log(folder: Path, first: bool) -> None:
    """Log to the terminal and train.log on the first rank; warnings to the terminal on others."""
    logger.setLevel(logging.INFO if first else logging.WARNING)
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if first:
        # Ids and messages may have lone surrogates, which UTF-8 cannot encode.
        log = (folder / "train.log").open("a", encoding="utf-8", errors="backslashreplace")
        claim(folder, log)
        handlers.append(logging.StreamHandler(log))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.handlers = handlers


def claim(folder: Path, log: TextIO) -> None:
    """Lock a training's log while this process lives, so that no other training uses the folder."""
    from asrkit.config.read_yaml import ConfigError

    try:
        import fcntl  # POSIX

        fcntl.lockf(log, fcntl.LOCK_EX | fcntl.LOCK_NB)  # child processes do not inherit it
    except (BlockingIOError, PermissionError):
        raise ConfigError(f"training.output_dir {folder}: another training runs there") from None
    except (ImportError, OSError):  # another system, or a file system without locks
        return


def run(asked: Config, folder: Path, command: argparse.Namespace, ranks: Ranks) -> int:
    import torch
    import yaml
    from torch.utils.tensorboard import SummaryWriter

    from asrkit.build_network import build_model
    from asrkit.config.read_yaml import ConfigError
    from asrkit.training.adapters import restrict
    from asrkit.training.checkpoints import Checkpoints, EpochWeights
    from asrkit.training.dataset import shared_corpus
    from asrkit.training.labels import keeps_labels
    from asrkit.training.resume_checks import fixed
    from asrkit.training.schedule import resolved
    from asrkit.training.trackers import Tracker
    from asrkit.training.trainer import Trainer
    from asrkit.training.warm_start import CONFIG

    corpus = shared_corpus(asked, ranks, folder / LABELS if command.resume else None)
    report(corpus.left_out, folder / "left_out.jsonl", ranks)
    config = resolved(asked, corpus.seconds)
    options = config.training
    torch.manual_seed(options.seed)
    model = build_model(config.model, corpus.encode.tokenizer.vocab_size)
    restrict(model, config)
    trainer = Trainer(
        model, corpus, config,
        Checkpoints(folder / "checkpoints"), EpochWeights(folder / "epochs", int(options.average)),
        ranks,
    )  # fmt: skip
    if len(set(ranks.gather([str((fixed(config), corpus.identity))]))) > 1:
        raise ConfigError("the processes have different configurations: start all with the same")
    begin(trainer, command, folder)
    if ranks.is_first:  # from now on the folder belongs to this training
        write_text(folder / CONFIG, yaml.safe_dump(asked.model_dump(mode="json"), sort_keys=False))
        if keeps_labels(config):
            with replacing(folder / LABELS) as path:
                path.write_bytes(corpus.encode.tokenizer.to_bytes())
        trainer.writers = [SummaryWriter(str(folder / "tensorboard"))]
        trainer.writers += [Tracker(kind, config) for kind in config.training.trackers]
    parameters = sum(p.numel() for p in model.parameters())
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    logger.info(
        "%.2f M parameters%s%s, %d tokens, an epoch of %.2f h",
        parameters / 1e6, f", {learning / 1e6:.2f} M of them learn" * (learning < parameters),
        ", in bfloat16" * trainer.gradients.bfloat16,
        corpus.encode.tokenizer.vocab_size, corpus.seconds / 3600,
    )  # fmt: skip
    try:
        with stopping_on_interrupt(trainer):
            done = trainer.run()
        if done:
            finish(trainer, config, folder)
    finally:
        for writer in trainer.writers:
            writer.close()
    if not done:
        logger.info("stopped; --resume continues")
    return 0 if done else 130


def begin(trainer: Trainer, command: argparse.Namespace, folder: Path) -> None:
    """Initialise the trainer from a checkpoint, a model, or the statistics of the features."""
    from asrkit.build import build_frontend
    from asrkit.model_file import read_header
    from asrkit.training.dataset import feature_statistics, unwritable
    from asrkit.training.warm_start import start_from

    if command.resume:
        if trainer.resume():
            progress = trainer.progress
            if progress.epoch == trainer.num_epochs:
                logger.info("the training is complete: its model is scored and written again")
            else:
                logger.info("resuming at epoch %d, step %d", progress.epoch + 1, progress.step)
            return
        logger.info("no checkpoint in %s: training begins", folder)
    corpus, name = trainer.corpus, trainer.options.start_from
    warning = unwritable(corpus, trainer.config.data.dev)
    if warning and trainer.ranks.is_first:
        logger.warning(warning)
    if name is not None:
        known = start_from(name, trainer.model, corpus.encode.tokenizer, trainer.config)
        logger.info("starting from %s, which has %d of the labels%s", name, *known)
    if name is None or read_header(name).config.model.frontend != trainer.config.model.frontend:
        frontend = build_frontend(trainer.config.model)
        mean, scale = trainer.ranks.from_first(lambda: feature_statistics(corpus.train, frontend))
        trainer.model.encoder.set_statistics(mean, scale)


@contextmanager
def stopping_on_interrupt(trainer: Trainer) -> Iterator[None]:
    """Make Ctrl-C stop the training after the current step, when a checkpoint can be written."""

    def stop(signal_number: int, frame: object) -> None:
        trainer.stop = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second one stops at once

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def report(left_out: list[LeftOut], path: Path, ranks: Ranks) -> None:
    """Log which utterances are left out, and why: the first five, and all of them in a file."""
    if not ranks.is_first or not left_out:
        return
    lines = [json.dumps(u._asdict(), ensure_ascii=False) for u in left_out]
    # A lone surrogate, which UTF-8 cannot encode, becomes JSON's \udxxx.
    write_text(path, "\n".join(lines) + "\n", "backslashreplace")
    logger.warning("%d utterances left out, see %s", len(left_out), path)
    for utterance in left_out[:5]:
        logger.warning("  %s", utterance)


def finish(trainer: Trainer, config: Config, folder: Path) -> None:
    """Average the last epochs and score the average, on all ranks; the first writes the model."""
    from asrkit.evaluation.scoring import rates
    from asrkit.model_file import ModelFile, save_model
    from asrkit.training.adapters import merge
    from asrkit.training.progress import duration

    average, epochs = trainer.ranks.from_first(lambda: trainer.epochs.average(trainer.model))
    trainer.model.load_state_dict(average)
    merge(trainer.model)
    averaged = [epoch + 1 for epoch in epochs]
    results = trainer.validation(align=True)
    canary = trainer.canary_rates()
    if not trainer.ranks.is_first:
        return
    if trainer.progress.epoch - 1 not in trainer.history:  # these are the scores of its weights
        trainer.log_scores(results, canary)
    seconds = round(trainer.wall_seconds())
    training = {
        "epochs": trainer.progress.epoch,
        "averaged_epochs": averaged,
        "steps": trainer.progress.step,
        "audio_hours_per_epoch": round(trainer.corpus.seconds / 3600, 3),
        "wall_seconds": seconds,
        **{
            f"dev_{unit}": {name: round(rate, 2) for name, rate in by_chunk.items()}
            for unit, by_chunk in rates(results).items()
        },
    }
    path = folder / MODEL
    tokenizer = trainer.corpus.encode.tokenizer
    terms = Terms(config.data.licence, tuple(config.data.languages))
    save_model(path, ModelFile(trainer.model, tokenizer, config, training, terms=terms))
    logger.info("average of epochs %s", ", ".join(map(str, averaged)))
    for name, score in results.items():
        logger.info("  dev %s %8s  %s", score.words.name, name, score)
    logger.info("%s written after %s", path, duration(seconds))
    if config.training.export:
        write_exports(path, config.context.live)
    logger.info("curves: tensorboard --logdir %s; errors: asrkit report %s", folder.parent, folder)


def write_exports(model: Path, context: Context) -> None:
    """Export a model to ONNX for its context and for full context, each in its own process."""
    command = ["export", "--model", str(model), "--format", "onnx"]
    commands = [command, *[[*command, "--chunk-ms", "full"]] * (not context.full)]
    for arguments in commands:
        logger.info("writing an export: asrkit %s", " ".join(arguments))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "asrkit", *each], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) for each in commands
    ]  # fmt: skip
    for process, arguments in zip(processes, commands, strict=True):
        output, errors = process.communicate()
        if process.returncode:
            problem = errors.strip().rpartition("\n")[2] or f"exit status {process.returncode}"
            logger.warning("not written by asrkit %s: %s", " ".join(arguments), problem)
        else:
            logger.info(output.partition("\n")[0])

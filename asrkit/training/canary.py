"""Scores of other domains during a training: how much of them the model forgets."""

import logging

from asrkit.audio import Frontend
from asrkit.config import Config
from asrkit.evaluation.scoring import unit_rates
from asrkit.evaluation.wer import rate_shown
from asrkit.model import Network
from asrkit.model_file import load_model
from asrkit.training.dataset import Corpus, text_encoder
from asrkit.training.distributed import Ranks
from asrkit.training.validation import scores_on_dev

logger = logging.getLogger(__name__)

Rates = dict[str, dict[str, float]]  # name of a canary -> error rate in percent by chunk size


def canary_rates(
    model: Network, corpus: Corpus, config: Config, ranks: Ranks, frontend: Frontend
) -> Rates:
    """Return the error rate on each canary, by units. All ranks must call this."""
    return {
        name: unit_rates(scores_on_dev(model, corpus._replace(dev=cuts), config, ranks, frontend))
        for name, cuts in corpus.canary.items()
    }


def start_rates(
    name: str, corpus: Corpus, config: Config, ranks: Ranks, frontend: Frontend
) -> Rates:
    """Return the error rate of a model on each canary and on "dev", with its own labels.

    Args:
        name: model that the training starts from, with the network of the training.
    """
    first = load_model(name)
    encode = text_encoder(first.config, first.tokenizer)
    corpus = corpus._replace(encode=encode, canary={"dev": corpus.dev, **corpus.canary})
    return canary_rates(first.model.to(ranks.device), corpus, config, ranks, frontend)


def log_rates(found: Rates, before: Rates, what: str = "canary") -> None:
    """Log the error rate of each set, after that of the first model if it is known."""
    for name, by_chunk in found.items():
        start = before.get(name, {})
        shown = "  ".join(
            f"{chunk}: {f'{start[chunk]:.2f} → ' if chunk in start else ''}{rate_shown(rate)}"
            for chunk, rate in by_chunk.items()
        )
        logger.info("  %s %s error rate  %s", what, name, shown or "no reference words")

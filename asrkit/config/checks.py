"""Checks of settings whose types and ranges are valid, but not their combination."""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationInfo

from asrkit.config.read_yaml import ConfigError
from asrkit.errors import shown

# A validation context. A model file's record of its training is not checked for settings without an
# effect on the model, so that files of older versions load.
RECORD = {"record": True}


def distinct(values: list[Any], info: ValidationInfo) -> list[Any]:
    """Return the values; raise ValueError for a repeated value, unless they are a record."""
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None and info.context != RECORD:
        raise ValueError(f"each value must be given once, got {shown(twice)} more than once")
    return values


def not_dev(name: str) -> str:
    """Return the name of a canary; raise ValueError for that of `data.dev`."""
    if name == "dev":
        raise ValueError("'dev' is data.dev: choose another name")
    return name


def ascending(pair: tuple[float, float], info: ValidationInfo) -> tuple[float, float]:
    """Return the pair; raise ValueError if it is descending, unless it is a record."""
    low, high = pair
    if low > high and info.context != RECORD:
        raise ValueError(f"the lower value must be the first, got [{low:g}, {high:g}]")
    return pair


def device_name(name: str) -> str:
    """Return the name; raise ValueError if it is not a device for training."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name, re.ASCII):
        raise ValueError(f"must be auto, cpu, cuda, or cuda:N as in cuda:0, got {shown(name)}")
    return name


class Need(NamedTuple):
    """The options of a section that only have an effect with another setting."""

    options: str  # dotted names, separated by spaces
    switch: str  # dotted name
    wanted: str  # value of the switch with which the options have an effect
    is_on: Callable[[Any], bool]  # the configuration -> whether the options have an effect


NEEDS = (
    Need("augmentation.noise_probability augmentation.noise_snr_db",
         "augmentation.noise", "a manifest of noise", lambda c: c.augmentation.noise is not None),
    Need("augmentation.noise", "augmentation.noise_probability", "above 0",
         lambda c: c.augmentation.noise_probability > 0.0),
    Need("augmentation.silence_seconds", "augmentation.silence_probability", "above 0",
         lambda c: c.augmentation.silence_probability > 0.0),
    Need("augmentation.pause_seconds", "augmentation.pause_probability", "above 0",
         lambda c: c.augmentation.pause_probability > 0.0),
    Need("augmentation.spec_ramp augmentation.spec_frequency_masks augmentation.spec_frequency_bins"
         " augmentation.spec_time_masks augmentation.spec_time_frames"
         " augmentation.spec_max_time_share",
         "augmentation.spec_probability", "above 0",
         lambda c: c.augmentation.spec_probability > 0.0),
    Need("text.vocab_size", "text.tokenizer", "unigram or bpe",
         lambda c: c.text.tokenizer in ("unigram", "bpe")),
    Need("model.kernel_size model.conv_norm model.conv_padding", "model.layer", "conformer",
         lambda c: c.model.layer == "conformer"),
    Need("context.left_contexts context.right_contexts", "context.full_share", "below 1",
         lambda c: c.context.full_share < 1.0 or c.training.views == "full_and_chunks"),
    Need("context.full_share", "training.views", "one or same",
         lambda c: c.training.views != "full_and_chunks"),
    Need("training.keep_labels training.keep training.freeze", "training.start_from", "a model",
         lambda c: c.training.start_from is not None),
    Need("data.replay", "training.keep", "replay or adapters", lambda c: c.training.keep != "none"),
    Need("data.replay_share", "data.replay", "a manifest", lambda c: bool(c.data.replay)),
    Need("training.adapter_rank", "training.keep", "adapters",
         lambda c: c.training.keep == "adapters"),
    Need("training.freeze training.weight_decay", "training.keep", "none or replay",
         lambda c: c.training.keep != "adapters"),
    Need("training.intermediate_weight", "training.intermediate_layers", "a list of layers",
         lambda c: bool(c.training.intermediate_layers)),
    Need("training.consistency_weight training.consistency_ramp",
         "training.views", "same or full_and_chunks", lambda c: c.training.views != "one"),
)  # fmt: skip


def has_effect(config: BaseModel, option: str) -> bool:
    """Return whether the setting is on that an option `section.key` needs."""
    return all(need.is_on(config) for need in NEEDS if option in need.options.split())


def refuse_idle(config: BaseModel, written: set[str], overridden: set[str]) -> None:
    """Reject options that are set and have no effect.

    Args:
        overridden: dotted keys given on the command line. A switch among these keys may turn off
            options that the file sets.
    """
    for options, switch, wanted, is_on in NEEDS:
        if is_on(config):
            continue
        for option in options.split():
            name, key = option.split(".")
            default = type(getattr(config, name)).model_fields[key].default
            value = attrgetter(option)(config)
            set_off = option in overridden or switch not in overridden
            if option in written and value != default and set_off:
                off = shown(attrgetter(switch)(config))
                raise ConfigError(
                    f"'{option}': {shown(value)} has no effect while {switch} is {off}; set it to "
                    f"{wanted}, or leave {key} at its default {shown(default)}"
                )

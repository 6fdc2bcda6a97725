"""Configuration: one complete YAML, strict, with `section.key=value` overrides.

Frozen pydantic models, so that types and limits are checked by a library. An unknown key, a wrong
type or an impossible combination is a ConfigError that names the key, what was expected and the
nearest key. Every default of a setting stands here and nowhere else; the options of a position
encoding and of a search stand with their classes.
"""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from asrkit import search
from asrkit.config_file import ConfigError, read_values
from asrkit.config_kinds import Number, any_of, sections_of
from asrkit.model import positions

Share = Annotated[float, Field(strict=False, ge=0.0, le=1.0)]
ShareAboveZero = Annotated[Share, Field(gt=0.0)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
PositiveNumber = Annotated[float, Field(strict=False, gt=0.0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataConfig(Section):
    train: str  # JSONL manifest, lhotse manifest (.jsonl.gz), or a folder of Shar shards
    dev: str
    # Name of a folder of recipes/ whose prepare.py makes the manifests when they are missing.
    recipe: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None
    max_batch_seconds: PositiveNumber = 32.0
    num_buckets: Positive = 20
    min_seconds: Number = 0.1
    max_seconds: Number = 30.0
    num_workers: Count = 1


class AugmentationConfig(Section):
    speed_factors: Annotated[list[PositiveNumber], Field(min_length=1)] = [0.9, 1.0, 1.1]
    noise: str | None = None  # manifest of noises
    noise_probability: Share = 0.5
    noise_snr_db: tuple[Number, Number] = Field(default=(10.0, 20.0), strict=False)
    reverb_probability: Share = 0.0
    silence_probability: Share = 0.0  # before and after an utterance, from digital to faint noise
    silence_seconds: PositiveNumber = 3.0  # at most, on each side
    telephone_probability: Share = 0.0  # 8 kHz, in the 8 bits of a call
    frequency_warp: Annotated[float, Field(strict=False, ge=0.0, le=0.5)] = 0.0  # at most, by VTLP
    gain_db: Annotated[float, Field(strict=False, ge=0.0, le=60.0)] = (
        0.0  # louder or softer, at most
    )
    # SpecAugment; its probability grows from 0 over the first `spec_ramp` of training.
    spec_probability: Share = 1.0  # of each utterance; 0 turns it off
    spec_ramp: Share = 0.3
    spec_frequency_masks: Positive = 2
    spec_frequency_bins: Positive = 27
    spec_time_masks: Positive = 10
    spec_time_frames: Positive = 40
    spec_max_time_share: ShareAboveZero = 0.15  # of an utterance masked in time, at most


class TextConfig(Section):
    tokenizer: Literal["characters", "words", "unigram", "bpe"] = "characters"
    vocab_size: Positive = 256  # of unigram and bpe
    case: Literal["keep", "lower", "upper"] = "keep"
    unicode_form: Literal["NFC", "NFKC", "none"] = "NFC"


class Kind(Section):
    """One kind of several; its options are its class's, with the defaults there."""

    kind: str


class PositionConfig(Kind):
    """A position encoding."""


class SearchConfig(Kind):
    """A search."""

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        search.build_search(self.model_dump())  # the search itself knows which numbers fit
        return self


KINDS: dict[tuple[str, ...], Any] = {("model", "position"): positions, ("search",): search}


POSITIONS = sections_of(PositionConfig, positions)
SEARCHES = sections_of(SearchConfig, search)
if TYPE_CHECKING:
    AnyPosition = PositionConfig
    AnySearch = SearchConfig
else:
    AnyPosition, AnySearch = any_of(POSITIONS.values()), any_of(SEARCHES.values())


class ModelConfig(Section):
    num_mels: Annotated[int, Field(ge=4, le=512, multiple_of=4)] = 80
    dim: Annotated[int, Field(ge=2, le=8192, multiple_of=2)] = 256
    num_heads: Annotated[int, Field(ge=1, le=256)] = 4
    num_layers: Annotated[int, Field(ge=1, le=256)] = 12
    ffn_dim: Annotated[int, Field(ge=1, le=65536)] = 2048
    kernel_size: Annotated[int, Field(ge=2, le=1024)] = 15
    dropout: Annotated[float, Field(strict=False, ge=0.0, lt=1.0)] = 0.1
    subsampling_channels: Annotated[int, Field(ge=1, le=8192)] | None = None
    separable_subsampling: bool = False
    position: AnyPosition = POSITIONS["relative"](kind="relative")

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} must be a multiple of num_heads {self.num_heads}")
        try:
            with torch.device("meta"):  # the encoding itself knows which numbers fit
                positions.build_positions(self.position.model_dump(), self.dim, self.num_heads, 1)
        except ValueError as error:
            raise PydanticCustomError("position", "{reason}", {"reason": str(error)}) from None
        return self


class ContextConfig(Section):
    """Chunk sizes and left contexts in encoder frames of 40 ms."""

    chunk_sizes: list[Positive] = [4, 8, 16, 25]  # drawn in training beside full context
    left_contexts: list[Count] = [64]  # drawn in training
    full_share: Share = 0.5  # of the batches, in full context
    chunk_size: Positive = 16  # decoding, unless told otherwise
    left_context: Count = 64

    @model_validator(mode="after")
    def _not_empty(self) -> "ContextConfig":
        if not self.left_contexts:
            raise ValueError("left_contexts must name at least one")
        if not self.chunk_sizes and self.full_share < 1.0:
            raise ValueError("chunk_sizes must name at least one unless full_share is 1")
        return self


class TrainingConfig(Section):
    output_dir: str
    start_from: str | None = None  # a model to go on from, with the same `model:`
    epochs: Positive = 30
    optimizer: Literal["muon", "adamw"] = "muon"
    learning_rate: PositiveNumber = 2e-3  # the peak
    warmup_share: Share = 0.08  # of all training, then a cosine down to 1 % of the peak
    weight_decay: Number = 0.01
    clip_norm: PositiveNumber = 5.0
    accumulate_batches: Positive = 1
    intermediate_layers: list[Positive] = []  # with a CTC loss of their own, counted from 1
    intermediate_weight: Share = 0.3
    # Two views of each utterance, masked differently, that learn from each other (CR-CTC): in the
    # same context, or one in full context and one in chunks. Twice the time a step.
    views: Literal["one", "same", "full_and_chunks"] = "one"
    consistency_weight: PositiveNumber = 0.2
    consistency_ramp: Share = 0.1  # of training, until the weight is reached
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on a GPU with it
    gradient_checkpointing: bool = False
    average: Positive = 5  # epochs averaged into the final model
    average_of: Literal["last", "best"] = "last"
    validate_every_epochs: Positive = 1
    checkpoint_every_steps: Positive = 200
    keep_checkpoints: Positive = 2
    seed: Count = 0
    num_threads: Count = 0  # of torch; 0: torch's own choice


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = SEARCHES["greedy"](kind="greedy")  # of decoding, unless told otherwise
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        if self.augmentation.spec_frequency_bins > self.model.num_mels:
            raise ValueError(
                f"augmentation.spec_frequency_bins {self.augmentation.spec_frequency_bins} must be "
                f"at most model.num_mels {self.model.num_mels}"
            )
        if self.training.views == "full_and_chunks" and not self.context.chunk_sizes:
            raise ValueError("training.views full_and_chunks needs context.chunk_sizes")
        deep = [i for i in self.training.intermediate_layers if i >= self.model.num_layers]
        if deep:
            raise ValueError(
                f"training.intermediate_layers {deep} must lie below model.num_layers "
                f"{self.model.num_layers}"
            )
        return self


class LanguageModelConfig(Section):
    """What decoding adds to a search. No part of a model file: it would name a file elsewhere."""

    path: str  # of an ARPA file, or a binary of KenLM
    units: Literal["words", "tokens"] = "words"
    weight: Number = 0.5
    word_bonus: Number = 0.5  # for each word, or token


class _Search(Section):
    search: AnySearch


class _LanguageModel(Section):
    lm: Annotated[
        LanguageModelConfig,
        BeforeValidator(lambda value: {"path": value} if isinstance(value, str) else value),
    ]


Parsed = TypeVar("Parsed", bound=Section)


def load_config(path: str | Path, overrides: list[str] | None = None) -> Config:
    """The configuration of a YAML file with `section.key=value` overrides.

    Raises:
        ConfigError: for a missing file, bad YAML, or a key or value that does not fit.
    """
    return parse_config(read_values(path, overrides or []))


def parse_config(values: dict[str, Any]) -> Config:
    """The configuration of nested dicts, checked."""
    return _parse(Config, values)


def parse_search(value: Any) -> SearchConfig:
    """The search of a kind, or of a dict of a kind and its options, checked."""
    return _parse(_Search, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """A language model of a path, or of a dict of a path and options, checked."""
    return _parse(_LanguageModel, {"lm": value}).lm


def _parse(section: type[Parsed], values: dict[str, Any]) -> Parsed:
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError("\n".join(_explain(e) for e in error.errors())) from None


def _explain(error: Any) -> str:
    loc, kind = error["loc"], error["type"]
    place = next((place for place in KINDS if loc[: len(place)] == place), loc)
    if len(loc) > len(place):
        # pydantic names the kind between its section and an option: no part of the key.
        chosen, loc = loc[len(place)], (*place, *loc[len(place) + 1 :])
        if kind == "extra_forbidden":
            known = ", ".join(KINDS[place].options(chosen)) or "none"
            return f"'{'.'.join(place)}': {chosen} has no option '{loc[-1]}'; it has {known}"
    key = ".".join(str(part) for part in loc)
    if kind == "extra_forbidden":
        inside = error["input"] if isinstance(error["input"], dict) else {}
        return "\n".join(_unknown(f"{key}.{name}") for name in inside) or _unknown(key)
    if kind == "missing":
        return f"missing key '{key}'"
    if kind == "union_tag_not_found":
        return f"missing key '{key}.kind'"
    if kind == "union_tag_invalid":
        return f"'{key}.kind': {KINDS[loc].refusal(error['ctx']['tag'])}"
    if kind == "model_attributes_type":
        return f"'{key}': write a kind, or {{kind: …}} with its options, got {error['input']!r}"
    message = error["msg"].removeprefix("Value error, ")
    if kind == "position":
        return f"'{key}.position': {message}"
    if not key:
        return message
    if kind == "value_error":
        return f"'{key}': {message}"
    return f"'{key}': {message[0].lower()}{message[1:]}, got {error['input']!r}"


def _unknown(key: str) -> str:
    nearest = difflib.get_close_matches(key, _keys(Config), n=1, cutoff=0.5)
    return f"unknown key '{key}'" + (f"; did you mean '{nearest[0]}'?" if nearest else "")


def _keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys, sections included."""
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += _keys(field.annotation, f"{prefix}{name}.")
    return keys

"""Configuration: one complete YAML, strict, with `section.key=value` overrides.

Frozen pydantic models, so that types and limits are checked by a library. An unknown key, a wrong
type or an impossible combination is a ConfigError that names the key, what was expected and the
nearest key. Every default of a setting stands here and nowhere else; the options of a position
encoding and of a search stand with their classes. docs/configuration.md is made from this file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic
import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from asrkit import search
from asrkit.config.kinds import Number, any_of, sections_of
from asrkit.config.mistakes import explained
from asrkit.config.yaml import ConfigError, read_values
from asrkit.kinds import Kinds
from asrkit.model import positions, subsampling

Share = Annotated[float, Field(strict=False, ge=0.0, le=1.0)]
ShareAboveZero = Annotated[Share, Field(gt=0.0)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
# Of a chunk or a left context, two minutes: far above what is of use. A model file of a few
# megabytes could ask for gigabytes of memory otherwise.
MOST_FRAMES = 3000
ChunkSize = Annotated[int, Field(ge=1, le=MOST_FRAMES)]
LeftContext = Annotated[int, Field(ge=0, le=MOST_FRAMES)]
Place = Annotated[str, Field(pattern=r"^[^\x00]*$"), AfterValidator(os.path.expanduser)]
PositiveNumber = Annotated[float, Field(strict=False, gt=0.0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataConfig(Section):
    train: Place
    """What to train on: a JSONL manifest, a lhotse manifest, or a folder of Shar shards."""
    dev: Place
    """What to measure with, by other speakers; likewise."""
    recipe: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None
    """The recipe that makes missing manifests, in a folder of its name; null for your own."""
    max_batch_seconds: PositiveNumber = 32.0
    """Audio in a batch, on each GPU or process."""
    num_buckets: Positive = 20
    """Groups of utterances of similar length, from which batches are made."""
    min_seconds: Number = 0.1
    """Shorter utterances are left out."""
    max_seconds: Number = 30.0
    """Longer utterances are left out."""
    num_workers: Count = 1
    """Processes that read audio ahead; 0: the training itself reads it."""


class AugmentationConfig(Section):
    speed_factors: Annotated[list[PositiveNumber], Field(min_length=1)] = [0.9, 1.0, 1.1]
    """Every epoch has each utterance once at each of these speeds."""
    noise: Place | None = None
    """Manifest of noises to mix in."""
    noise_probability: Share = 0.5
    """Of each utterance, where there is `noise`."""
    noise_snr_db: tuple[Number, Number] = Field(default=(10.0, 20.0), strict=False)
    """Least and largest ratio of speech to noise, dB."""
    reverb_probability: Share = 0.0
    """Of each utterance: a simulated room."""
    silence_probability: Share = 0.0
    """Of each utterance: digital to faint silence before and after it."""
    silence_seconds: PositiveNumber = 3.0
    """Longest such silence, on each side."""
    telephone_probability: Share = 0.0
    """Of each utterance: 8 kHz, in the 8 bits of a call."""
    frequency_warp: Annotated[float, Field(strict=False, ge=0.0, le=0.5)] = 0.0
    """Largest change of the vocal tract's length, as a share (VTLP)."""
    gain_db: Annotated[float, Field(strict=False, ge=0.0, le=60.0)] = 0.0
    """Largest change of level, dB, up or down."""
    spec_probability: Share = 1.0
    """Of each utterance: masks on the features (SpecAugment); 0 turns them off."""
    spec_ramp: Share = 0.3
    """Share of training over which `spec_probability` grows from 0."""
    spec_frequency_masks: Positive = 2
    """Masks in frequency."""
    spec_frequency_bins: Positive = 27
    """Widest of them, mel bins."""
    spec_time_masks: Positive = 10
    """Masks in time, at most."""
    spec_time_frames: Positive = 40
    """Longest of them, feature frames of 10 ms."""
    spec_max_time_share: ShareAboveZero = 0.15
    """Share of an utterance that is masked in time, at most."""


class TextConfig(Section):
    tokenizer: Literal["characters", "words", "unigram", "bpe"] = "characters"
    """The labels; unigram and bpe are sub-words by sentencepiece."""
    vocab_size: Positive = 256
    """Of unigram and bpe."""
    case: Literal["keep", "lower", "upper"] = "keep"
    """Of all texts."""
    unicode_form: Literal["NFC", "NFKC", "none"] = "NFC"
    """Normalisation of all texts."""


@contextmanager
def fitting(part: str) -> Iterator[None]:
    """Say of which part of a section a ValueError is."""
    try:
        yield
    except ValueError as error:
        raise PydanticCustomError(part, "{reason}", {"reason": str(error)}) from None


class Kind(Section):
    """One kind of several; its options are its class's, with the defaults there."""

    kind: str


class PositionConfig(Kind):
    """A position encoding."""


class SubsamplingConfig(Kind):
    """How feature frames become encoder frames."""


class SearchConfig(Kind):
    """A search."""

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        search.build_search(self.model_dump())  # the search itself knows which numbers fit
        return self


KINDS: dict[tuple[str, ...], Kinds[Any]] = {
    ("model", "position"): positions.KINDS,
    ("model", "subsampling"): subsampling.KINDS,
    ("search",): search.KINDS,
}


POSITIONS = sections_of(PositionConfig, positions.KINDS)
SUBSAMPLINGS = sections_of(SubsamplingConfig, subsampling.KINDS)
SEARCHES = sections_of(SearchConfig, search.KINDS)
if TYPE_CHECKING:
    AnyPosition = PositionConfig
    AnySubsampling = SubsamplingConfig
    AnySearch = SearchConfig
else:
    AnyPosition, AnySubsampling, AnySearch = (
        any_of(each.values()) for each in (POSITIONS, SUBSAMPLINGS, SEARCHES)
    )


class ModelConfig(Section):
    num_mels: Annotated[int, Field(ge=4, le=512, multiple_of=4)] = 80
    """F, mel bins of a feature frame."""
    dim: Annotated[int, Field(ge=2, le=8192, multiple_of=2)] = 256
    """D, width of the encoder; a multiple of `num_heads`."""
    num_heads: Annotated[int, Field(ge=1, le=256)] = 4
    """H, attention heads."""
    num_layers: Annotated[int, Field(ge=1, le=256)] = 12
    """L, Conformer layers."""
    ffn_dim: Annotated[int, Field(ge=1, le=65536)] = 2048
    """Width of the feed-forward layers."""
    kernel_size: Annotated[int, Field(ge=2, le=1024)] = 15
    """K, encoder frames of the causal convolutions."""
    dropout: Annotated[float, Field(strict=False, ge=0.0, lt=1.0)] = 0.1
    """Everywhere, in training."""
    subsampling: AnySubsampling = SUBSAMPLINGS["conv4"](kind="conv4")
    """conv4 makes an encoder frame of 4 feature frames, conv8 of 8; with options: `channels` (S;
    `dim` if null), and of conv4 `separable` (a ninth of its second convolution's arithmetic)."""
    position: AnyPosition = POSITIONS["relative"](kind="relative")
    """Kind of position encoding, with its options: docs/positions.md."""

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} must be a multiple of num_heads {self.num_heads}")
        with torch.device("meta"):  # each part itself knows which numbers fit
            with fitting("position"):
                positions.build_positions(self.position.model_dump(), self.dim, self.num_heads, 1)
            with fitting("subsampling"):
                options = self.subsampling.model_dump()
                subsampling.build_subsampling(options, self.num_mels, self.dim)
        return self

    @model_validator(mode="before")
    @classmethod
    def _former_keys(cls, values: Any) -> Any:
        """Two keys of former configurations and model files are options of `subsampling` now."""
        former = {"subsampling_channels": "channels", "separable_subsampling": "separable"}
        if not isinstance(values, dict) or former.keys().isdisjoint(values):
            return values
        if "subsampling" in values:
            raise ValueError("channels and separable are options of model.subsampling now")
        options = {new: values[old] for old, new in former.items() if old in values}
        rest = {key: value for key, value in values.items() if key not in former}
        return rest | {"subsampling": {"kind": "conv4", **options}}


class ContextConfig(Section):
    """Chunk sizes and left contexts in encoder frames of 40 ms."""

    chunk_sizes: Annotated[list[ChunkSize], Field(max_length=64)] = [4, 8, 16, 25]
    """Drawn in training, beside full context."""
    left_contexts: Annotated[list[LeftContext], Field(max_length=64)] = [64]
    """Drawn in training."""
    full_share: Share = 0.5
    """Share of the batches in full context."""
    chunk_size: ChunkSize = 16
    """Of decoding, unless told otherwise: 16 are 640 ms."""
    left_context: LeftContext = 64
    """Of decoding, unless told otherwise."""

    @model_validator(mode="after")
    def _not_empty(self) -> "ContextConfig":
        if not self.left_contexts:
            raise ValueError("left_contexts must name at least one")
        if not self.chunk_sizes and self.full_share < 1.0:
            raise ValueError("chunk_sizes must name at least one unless full_share is 1")
        return self


class TrainingConfig(Section):
    output_dir: Place
    """Folder of the checkpoints, the log and the model."""
    start_from: Place | None = None
    """A model file, or the name of a ready model, of the same `model:` to go on from."""
    epochs: Positive = 30
    """Passes over all utterances at all `speed_factors`."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon for the matrices of the layers, AdamW for the rest; or AdamW for all."""
    learning_rate: PositiveNumber = 2e-3
    """The peak."""
    warmup_share: Share = 0.08
    """Share of training in which it rises to the peak; then a cosine down to 1 % of it."""
    weight_decay: Number = 0.01
    """Of the matrices."""
    clip_norm: PositiveNumber = 5.0
    """Largest norm of the gradient of a step."""
    accumulate_batches: Positive = 1
    """Batches of each process in a step."""
    intermediate_layers: list[Positive] = []
    """Layers with a CTC loss of their own, counted from 1."""
    intermediate_weight: Share = 0.3
    """Of these losses in the whole."""
    views: Literal["one", "same", "full_and_chunks"] = "one"
    """Two views of each utterance, masked differently, that learn from each other (CR-CTC): in the
    same context, or one in full context and one in chunks. Twice the time a step."""
    consistency_weight: PositiveNumber = 0.2
    """Of their agreement."""
    consistency_ramp: Share = 0.1
    """Share of training over which that weight grows from 0."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on a GPU that has it."""
    gradient_checkpointing: bool = False
    """Less memory for more time: activations are computed again in the backward pass."""
    average: Positive = 5
    """Epochs whose weights are averaged into the model."""
    average_of: Literal["last", "best"] = "last"
    """Which epochs: the last, or those of the lowest dev WER."""
    validate_every_epochs: Positive = 1
    """Dev is scored after so many epochs, and after the last."""
    checkpoint_every_steps: Positive = 200
    """A checkpoint to resume from, also after every epoch."""
    keep_checkpoints: Positive = 2
    """The newest ones that stay."""
    seed: Count = 0
    """Of every random draw."""
    num_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """Of torch; 0: torch's own choice."""


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = SEARCHES["greedy"](kind="greedy")
    """Of decoding, unless told otherwise; a kind, with its options."""
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


def text_of(path: object) -> object:
    """A path as text; anything else as it is."""
    return str(path) if isinstance(path, PurePath) else path


class LanguageModelConfig(Section):
    """What decoding adds to a search. No part of a model file: it would name a file elsewhere."""

    path: Annotated[str, BeforeValidator(text_of)]  # of an ARPA file, or a binary of KenLM
    units: Literal["words", "tokens"] = "words"
    weight: Number = 0.5
    word_bonus: Number = 0.5  # for each word, or token


class _Search(Section):
    search: AnySearch


class _LanguageModel(Section):
    lm: Annotated[
        LanguageModelConfig,
        BeforeValidator(
            lambda value: {"path": value} if isinstance(value, str | PurePath) else value
        ),
    ]


Parsed = TypeVar("Parsed", bound=Section)


def load_config(path: str | Path, overrides: list[str] | None = None) -> Config:
    """The configuration of a YAML file, or of a name in conf/, with `section.key=value` overrides.

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
        raise ConfigError(explained(error, _keys(Config), KINDS)) from None


def _keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys, sections included."""
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += _keys(field.annotation, f"{prefix}{name}.")
    return keys

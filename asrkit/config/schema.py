"""The schema of a configuration: its sections, keys, types, limits and defaults.

An unknown key, a wrong type or an impossible combination is a ConfigError that names the key, what
was expected and the nearest key. This file has all defaults, except the options of a position
encoding, a subsampling and a search, which are arguments of their classes. docs/configuration.md
is generated from this file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic
import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from asrkit import audio, search
from asrkit.config.checks import (
    RECORD,
    ascending,
    device_name,
    distinct,
    has_effect,
    refuse_idle,
)
from asrkit.config.error_messages import explained
from asrkit.config.read_yaml import ConfigError, read_values
from asrkit.config.sections import Number, any_of, sections_of
from asrkit.model import FULL, Context, FrameRate, heads, positions, subsampling
from asrkit.registry import Kinds
from asrkit.terms import checked_languages, checked_licence

Share = Annotated[float, Field(strict=False, ge=0.0, le=1.0)]
ShareAboveZero = Annotated[Share, Field(gt=0.0)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


def _number_or_auto(value: Any, check: pydantic.ValidatorFunctionWrapHandler) -> Any:
    """Check a number or "auto" with one message, where a union has a message for each part."""
    try:
        return check(value)
    except pydantic.ValidationError as error:
        reason = error.errors()[0]["msg"] + ', or "auto"' * isinstance(value, str)
        raise PydanticCustomError("number_or_auto", "{reason}", {"reason": reason}) from None


PositiveOrAuto = Annotated[Positive | Literal["auto"], WrapValidator(_number_or_auto)]

# Chunks and left contexts of minutes are far above useful values. Larger ones would let a model
# file of a few megabytes demand gigabytes of memory.
MOST_FRAMES = 3000
ChunkSize = Annotated[int, Field(ge=1, le=MOST_FRAMES)]
LeftContext = Annotated[int, Field(ge=0, le=MOST_FRAMES)]
RightContext = Annotated[int, Field(ge=0, le=1024)]
Place = Annotated[str, Field(pattern=r"^[^\x00]*$"), AfterValidator(os.path.expanduser)]
PositiveNumber = Annotated[float, Field(strict=False, gt=0.0, allow_inf_nan=False)]
NumberFromZero = Annotated[Number, Field(ge=0.0)]
Decibels = Annotated[Number, Field(ge=-100.0, le=100.0)]
Speed = Annotated[Number, Field(ge=0.1, le=10.0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataConfig(Section):
    train: Place
    """Training set: a JSONL manifest, a lhotse manifest, or a folder or URL of Shar shards."""
    dev: Place
    """Validation set, of other speakers, in the same formats."""
    recipe: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None
    """Recipe that makes missing manifests, in a folder of its name; null for none."""
    licence: Annotated[str, AfterValidator(checked_licence)] | None = None
    """Licence of a model that is trained on these recordings, such as CC-BY-SA-4.0; the model file
    states it. null: the licence of the model in `training.start_from`, or none."""
    languages: Annotated[list[str], AfterValidator(checked_languages), AfterValidator(list)] = []
    """Codes of the languages of these recordings, such as en; the model file states them. []: those
    of the model in `training.start_from`."""
    max_batch_seconds: PositiveNumber = 32.0
    """Seconds of audio in a batch, for each GPU or process."""
    num_buckets: Positive = 20
    """Number of groups by length; the utterances of a batch are from one group."""
    min_seconds: NumberFromZero = 0.1
    """Length below which utterances are left out."""
    max_seconds: PositiveNumber = 30.0
    """Length above which utterances are left out."""
    max_bad_share: Share = 0.1
    """Largest share of the training set, and of an epoch, that may be unreadable."""
    num_workers: Annotated[int, Field(ge=0, le=1024)] = 1
    """Number of processes that read audio ahead; 0: the training process reads it."""


class AugmentationConfig(Section):
    speed_factors: Annotated[
        list[Speed], Field(min_length=1, max_length=64), AfterValidator(distinct)
    ] = [0.9, 1.0, 1.1]
    """Speeds; every epoch has each utterance once at each of them."""
    noise: Place | None = None
    """Manifest of noise recordings to mix in."""
    noise_probability: Share = 0.5
    """Probability that noise is mixed into an utterance, if `noise` is given."""
    noise_snr_db: Annotated[
        tuple[Decibels, Decibels], Field(strict=False), AfterValidator(ascending)
    ] = (10.0, 20.0)
    """Lowest and highest ratio of speech to noise, dB."""
    reverb_probability: Share = 0.0
    """Probability that an utterance is reverberated by a simulated room."""
    silence_probability: Share = 0.0
    """Probability that an utterance is put between silences, digital or with faint noise."""
    silence_seconds: PositiveNumber = 3.0
    """Longest silence on each side."""
    telephone_probability: Share = 0.0
    """Probability that an utterance is reduced to a telephone's 8 kHz and 8 bits."""
    frequency_warp: Annotated[float, Field(strict=False, ge=0.0, le=0.5)] = 0.0
    """Largest change of the vocal tract's length, as a share (VTLP)."""
    gain_db: Annotated[float, Field(strict=False, ge=0.0, le=60.0)] = 0.0
    """Largest change of level up or down, dB."""
    spec_probability: Share = 1.0
    """Probability that an utterance's features are masked (SpecAugment)."""
    spec_ramp: Share = 0.3
    """Share of training over which `spec_probability` grows from 0."""
    spec_frequency_masks: Positive = 2
    """Number of frequency masks."""
    spec_frequency_bins: Positive = 27
    """Mel bins in the widest frequency mask."""
    spec_time_masks: Positive = 10
    """Largest number of time masks."""
    spec_time_frames: Positive = 40
    """Feature frames of 10 ms in the longest time mask."""
    spec_max_time_share: ShareAboveZero = 0.15
    """Largest share of an utterance that time masks cover."""


class TextConfig(Section):
    tokenizer: Literal["characters", "words", "unigram", "bpe", "pieces"] = "characters"
    """Kind of labels. unigram and bpe are sub-words by sentencepiece, pieces sub-words of an
    imported model."""
    vocab_size: Positive = 256
    """Number of labels for unigram and bpe."""
    case: Literal["keep", "lower", "upper"] = "keep"
    """Case to which all texts are converted."""
    unicode_form: Literal["NFC", "NFKC", "none"] = "NFC"
    """Unicode normalisation of all texts."""


@contextmanager
def fitting(part: str) -> Iterator[None]:
    """Name the part of a section in a ValueError about it."""
    try:
        yield
    except ValueError as error:
        raise PydanticCustomError(part, "{reason}", {"reason": str(error)}) from None


class KindConfig(Section):
    """A section that chooses a class by its kind; other keys are arguments of the class."""

    kind: str


class PositionConfig(KindConfig):
    """A position encoding."""


class SubsamplingConfig(KindConfig):
    """A subsampling: feature frames to encoder frames."""


class HeadConfig(KindConfig):
    """A head: encoder frames to labels."""


class FrontendConfig(KindConfig):
    """A frontend: samples to features."""


class SearchConfig(KindConfig):
    """A search."""

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        search.build_search(self.model_dump())  # the search checks its own options
        return self


KINDS: dict[tuple[str, ...], Kinds[Any]] = {
    ("model", "position"): positions.KINDS,
    ("model", "subsampling"): subsampling.KINDS,
    ("model", "frontend"): audio.KINDS,
    ("model", "head"): heads.KINDS,
    ("search",): search.KINDS,
}


POSITIONS = sections_of(PositionConfig, positions.KINDS)
SUBSAMPLINGS = sections_of(SubsamplingConfig, subsampling.KINDS)
FRONTENDS = sections_of(FrontendConfig, audio.KINDS)
HEADS = sections_of(HeadConfig, heads.KINDS)
SEARCHES = sections_of(SearchConfig, search.KINDS)
if TYPE_CHECKING:
    AnyPosition = PositionConfig
    AnySubsampling = SubsamplingConfig
    AnyFrontend = FrontendConfig
    AnyHead = HeadConfig
    AnySearch = SearchConfig
else:
    AnyPosition, AnySubsampling, AnyHead, AnySearch = (
        any_of(each.values()) for each in (POSITIONS, SUBSAMPLINGS, HEADS, SEARCHES)
    )
    AnyFrontend = any_of(FRONTENDS.values(), "kaldi")  # the only kind with options


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
    """Dropout probability of all layers."""
    frontend: AnyFrontend = FRONTENDS["kaldi"](kind="kaldi")
    """Features, a kind with its options: kaldi, with `low_frequency` and `high_frequency` in Hz
    (8000 if null; 4000 for recordings at 8 kHz) and `snip_edges`; slaney, which is NeMo's; or
    sherpa_nemo, which sherpa-onnx computes for models of NeMo. Options without a kind are kaldi's.
    For sherpa-onnx see docs/export.md."""
    subsampling: AnySubsampling = SUBSAMPLINGS["conv4"](kind="conv4")
    """Subsampling, a kind with its options. conv4 makes an encoder frame of 4 feature frames, conv8
    of 8. conv4_valid, conv6_valid and conv8_valid have no padding, and see 3, 5 and 7 feature
    frames more. Options: `channels` (S; `dim` if null). For conv4 and conv8 `pad_stages` (zeros
    around a stream as in NeMo). For conv4 `separable` (a ninth of the second convolution's
    arithmetic)."""
    position: AnyPosition = POSITIONS["relative"](kind="relative")
    """Position encoding, a kind with its options: docs/positions.md."""
    head: AnyHead = HEADS["ctc"](kind="ctc")
    """Head, encoder frames to labels: ctc, or transducer with its options: docs/heads.md."""
    conv_norm: Literal["layer_norm", "affine"] = "layer_norm"
    """Norm in the convolutions. affine is a scale and a bias for each channel, the form of a
    trained BatchNorm."""
    conv_padding: Literal["depthwise", "pointwise"] = "depthwise"
    """Layer of the convolutions whose input is padded with zeros before a stream."""
    after_norm: bool = False
    """Add a LayerNorm after the last layer; layers have their own in any case."""
    kernels: Literal["auto", "off"] = "off"
    """Attention on NVIDIA GPUs: auto uses asrkit's own kernels (Triton) where possible. They have
    not run on a GPU yet: run `asrkit verify --kernels` first. They do not change the weights."""

    @property
    def rate(self) -> FrameRate:
        """Relation of feature frames to encoder frames."""
        with torch.device("meta"):
            options = self.subsampling.model_dump()
            return subsampling.build_subsampling(options, self.num_mels, self.dim).rate

    @model_validator(mode="after")
    def _fits(self) -> "ModelConfig":
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} must be a multiple of num_heads {self.num_heads}")
        with torch.device("meta"):  # each part checks its own options
            with fitting("position"):
                positions.build_positions(self.position.model_dump(), self.dim, self.num_heads, 1)
            with fitting("subsampling"):
                options = self.subsampling.model_dump()
                subsampling.build_subsampling(options, self.num_mels, self.dim)
            with fitting("head"):
                heads.build_head(self.head.model_dump(), self.dim, 2)
            with fitting("frontend"):
                audio.build_frontend(self.frontend.model_dump(), self.num_mels)
        return self

    @model_validator(mode="before")
    @classmethod
    def _former_keys(cls, values: Any) -> Any:
        """Accept two keys of older configurations and model files, now options of `subsampling`."""
        former = {"subsampling_channels": "channels", "separable_subsampling": "separable"}
        if not isinstance(values, dict) or former.keys().isdisjoint(values):
            return values
        if "subsampling" in values:
            raise ValueError("channels and separable are options of model.subsampling now")
        options = {new: values[old] for old, new in former.items() if old in values}
        rest = {key: value for key, value in values.items() if key not in former}
        return rest | {"subsampling": {"kind": "conv4", **options}}


class ContextConfig(Section):
    """Chunk sizes and left contexts in encoder frames: of 40 ms with conv4, of 80 ms with conv8."""

    chunk_sizes: Annotated[list[ChunkSize], Field(max_length=64)] = [4, 8, 16, 25]
    """Chunk sizes drawn in training, besides full context; repeat a size to draw it more often."""
    left_contexts: Annotated[list[LeftContext], Field(max_length=64)] = [64]
    """Left contexts drawn in training."""
    right_contexts: Annotated[list[RightContext], Field(min_length=1, max_length=64)] = [0]
    """Right contexts drawn in training with the chunks: encoder frames after its chunk that a frame
    sees. They improve live text and delay it by their length. A chunk of C frames with R after it
    takes 1 + R/C times as long."""
    full_share: Share = 0.5
    """Share of the batches in full context."""
    chunk_size: ChunkSize = 16
    """Default chunk size of decoding: 16 frames are 640 ms with conv4."""
    left_context: LeftContext = 64
    """Default left context of decoding."""
    right_context: RightContext = 0
    """Default right context of decoding."""

    @property
    def live(self) -> Context:
        """Default context of decoding."""
        return Context(self.chunk_size, self.left_context, self.right_context)

    @property
    def validated(self) -> list[Context]:
        """Contexts of validation: full context if trained, and each chunk size once."""
        left, right = max(self.left_contexts), self.right_context
        chunks = [Context(each, left, right) for each in dict.fromkeys(self.chunk_sizes)]
        return [FULL, *chunks] if self.full_share > 0 else chunks

    @model_validator(mode="after")
    def _not_empty(self) -> "ContextConfig":
        if not self.left_contexts:
            raise ValueError("left_contexts must have at least one value, got []")
        if not self.chunk_sizes and self.full_share < 1.0:
            raise ValueError("chunk_sizes must have at least one value unless full_share is 1")
        return self


class TrainingConfig(Section):
    output_dir: Place
    """Folder for the checkpoints, the log and the model."""
    start_from: Place | None = None
    """Model to start from, with the same `model:`; a model file or the name of a ready model."""
    epochs: PositiveOrAuto = 30
    """Passes over all utterances, each at every one of `speed_factors`; auto: by the hours of
    recordings, see docs/training.md."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimiser: Muon for the matrices of the layers and AdamW for the rest, or AdamW for all."""
    learning_rate: PositiveNumber = 2e-3
    """Highest learning rate."""
    warmup_share: Share = 0.08
    """Share of training in which the rate rises to its peak; then a cosine falls to 1 % of it."""
    weight_decay: NumberFromZero = 0.01
    """Weight decay of the matrices."""
    clip_norm: PositiveNumber = 5.0
    """Largest norm of the gradient of a step."""
    accumulate_batches: Positive = 1
    """Number of batches of each process in an optimiser step."""
    intermediate_layers: Annotated[
        list[Positive], Field(max_length=256), AfterValidator(distinct)
    ] = []
    """Layers with an additional CTC loss, counted from 1."""
    intermediate_weight: Share = 0.3
    """Share of these losses in the total loss."""
    views: Literal["one", "same", "full_and_chunks"] = "one"
    """Views of each utterance: one; or two, masked differently and trained to agree (CR-CTC), at
    twice the time. Two are in the same context, or one in full context and one in chunks."""
    consistency_weight: PositiveNumber = 0.2
    """Weight of the loss between two views."""
    consistency_ramp: Share = 0.1
    """Share of training over which `consistency_weight` grows from 0."""
    device: Annotated[str, AfterValidator(device_name)] = "auto"
    """Device. auto: an NVIDIA GPU for each process if torch finds one, else the CPU; cpu; cuda; or
    cuda:N for GPU number N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision. auto: bfloat16 on a GPU that has it."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Parts of the model in each of several processes: the whole model (ddp), or a share of its
    weights, gradients and optimiser states (fsdp), for models that do not fit on one device."""
    gradient_checkpointing: bool = False
    """Save memory by computing activations again in the backward pass."""
    average: PositiveOrAuto = 5
    """Number of epochs whose weights are averaged into the model; auto: a fifth of them."""
    average_of: Literal["last", "best"] = "last"
    """Epochs to average: the last ones, or those with the lowest dev WER."""
    validate_every_epochs: Positive = 1
    """Epochs from one validation to the next; the last epoch is always validated."""
    patience: Positive | None = None
    """Validations without a lower mean dev WER after which training ends; null: never."""
    checkpoint_every_steps: Positive = 200
    """Steps from one checkpoint to the next, besides the one after every epoch."""
    keep_checkpoints: Positive = 2
    """Number of checkpoints to keep, the newest ones."""
    seed: Count = 0
    """Seed of all random draws."""
    num_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch; 0: torch's default."""


class Config(Section):
    data: DataConfig
    augmentation: AugmentationConfig = AugmentationConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    context: ContextConfig = ContextConfig()
    search: AnySearch = SEARCHES["greedy"](kind="greedy")
    """Default search of decoding, a kind with its options."""
    training: TrainingConfig

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> "Config":
        if self.data.min_seconds > self.data.max_seconds and info.context != RECORD:
            raise ValueError(
                f"data.min_seconds {self.data.min_seconds:g} must be at most data.max_seconds "
                f"{self.data.max_seconds:g}"
            )
        bins = self.augmentation.spec_frequency_bins
        masked = info.context != RECORD and has_effect(self, "augmentation.spec_frequency_bins")
        if masked and bins > self.model.num_mels:
            raise ValueError(
                f"augmentation.spec_frequency_bins {bins} must be at most model.num_mels "
                f"{self.model.num_mels}"
            )
        if self.training.views == "full_and_chunks" and not self.context.chunk_sizes:
            raise ValueError("training.views full_and_chunks needs context.chunk_sizes")
        deep = [i for i in self.training.intermediate_layers if i >= self.model.num_layers]
        if deep:
            raise ValueError(
                f"training.intermediate_layers {deep} must lie below model.num_layers "
                f"{self.model.num_layers}"
            )
        self._check_head()
        return self

    def _check_head(self) -> None:
        """Raise ValueError for a loss that the head does not have."""
        head = self.model.head.model_dump()
        if head["kind"] != "transducer" or head["ctc_weight"] > 0.0:
            return
        if self.training.intermediate_layers or self.training.views != "one":
            raise ValueError(
                "training.intermediate_layers and training.views need the CTC layer of a "
                f"transducer: model.head.ctc_weight must be above 0, got {head['ctc_weight']:g}"
            )


def text_of(path: object) -> object:
    """Return a path as text; anything else unchanged."""
    return str(path) if isinstance(path, PurePath) else path


class LanguageModelConfig(Section):
    """A language model for decoding. Model files do not contain it, as they name no other files."""

    path: Annotated[str, BeforeValidator(text_of)]  # path of an ARPA file or a KenLM binary
    units: Literal["words", "tokens"] = "words"
    weight: NumberFromZero = 0.5
    word_bonus: Number = 0.5  # added for each word, or token


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
    """Load the configuration in a YAML file or of a name in conf/, with overrides.

    Raises:
        ConfigError: for a missing file, bad YAML, an invalid key or value, or an option
            that has no effect.
    """
    overrides = overrides or []
    config = parse_config(read_values(path, overrides))
    refuse_idle(config, {override.partition("=")[0] for override in overrides})
    return config


def parse_config(values: dict[str, Any]) -> Config:
    """Check a configuration in nested dicts."""
    return _parse(Config, values)


def parse_record(values: dict[str, Any]) -> Config:
    """Check the configuration in a model file, but only for what the model needs."""
    return _parse(Config, values, RECORD)


def parse_search(value: Any) -> SearchConfig:
    """Check a search given by a kind, or by a dict of a kind and its options."""
    return _parse(_Search, {"search": value}).search


def parse_language_model(value: Any) -> LanguageModelConfig:
    """Check a language model given by a path, or by a dict of a path and options."""
    return _parse(_LanguageModel, {"lm": value}).lm


def _parse(
    section: type[Parsed], values: dict[str, Any], context: dict[str, bool] | None = None
) -> Parsed:
    try:
        return section.model_validate(values, context=context)
    except pydantic.ValidationError as error:
        raise ConfigError(explained(error, _keys(Config), KINDS)) from None


def _keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Return all dotted keys, including sections."""
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            keys += _keys(field.annotation, f"{prefix}{name}.")
    return keys

"""The sections `data`, `augmentation`, `text` and `training`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from asrkit.config.bounds import (
    Count,
    Decibels,
    NumberFromZero,
    Place,
    Places,
    Positive,
    PositiveNumber,
    PositiveOrAuto,
    Section,
    Share,
    ShareAboveZero,
    Speed,
)
from asrkit.config.checks import distinct, needs
from asrkit.terms import checked_languages, checked_licence

NOISE = needs("augmentation.noise", wanted="a manifest of noise")
MASKS = needs("augmentation.spec_probability")
FINE_TUNING = needs("training.start_from", wanted="a model")
WHOLE = needs("training.keep", "none", "replay")
TWO_VIEWS = needs("training.views", "same", "full_and_chunks")
CanaryName = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]


class DataConfig(Section):
    train: Annotated[Places, Field(min_length=1)]
    """Training set: a manifest or a folder of shards, or a
    list of several."""
    dev: Place
    """Validation set, of other speakers, in the same formats."""
    replay: Annotated[Places, needs("training.keep", "replay", "adapters")] = []
    """Recordings that the model of `training.start_from` knows, in the same formats. Each epoch has
    another random part of them, so that the model keeps what it recognises. []: with
    `training.keep: replay`, those that it was trained on."""
    replay_share: Annotated[
        Share, Field(gt=0.0, le=0.95), needs("data.replay", wanted="a manifest")
    ] = 0.5
    """Share of an epoch's seconds that are from `replay`."""
    canary: Annotated[dict[CanaryName, Place], Field(max_length=32)] = {}
    """More validation sets, by name, such as {old: old/dev.jsonl}: they are scored beside `dev`,
    and choose no epoch."""
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
    """Largest share of `train`, `replay`, `dev`, a canary, and an epoch that may be unreadable."""
    num_workers: Annotated[int, Field(ge=0, le=1024)] = 1
    """Number of processes that read audio ahead; 0: the training process reads it."""


class AugmentationConfig(Section):
    speed_factors: Annotated[
        list[Speed], Field(min_length=1, max_length=64), AfterValidator(distinct)
    ] = [0.9, 1.0, 1.1]
    """Speeds; every epoch has each utterance once at each of them."""
    noise: Annotated[Place | None, needs("augmentation.noise_probability")] = None
    """Manifest of noise recordings to mix in."""
    noise_probability: Annotated[Share, NOISE] = 0.5
    """Probability that noise is mixed into an utterance, if `noise` is given."""
    noise_snr_db: Annotated[tuple[Decibels, Decibels], Field(strict=False), NOISE] = (10.0, 20.0)
    """Range of the ratio of speech to noise, dB."""
    reverb_probability: Share = 0.0
    """Probability that an utterance is reverberated by a simulated room."""
    silence_probability: Share = 0.0
    """Probability that an utterance is put between silences, digital or with faint noise."""
    silence_seconds: Annotated[PositiveNumber, needs("augmentation.silence_probability")] = 3.0
    """Longest silence on each side."""
    pause_probability: Share = 0.0
    """Probability that one or two silences are put inside an utterance, so that the network learns
    that a pause alone does not end a turn (`text.end_of_turn`)."""
    pause_seconds: Annotated[PositiveNumber, needs("augmentation.pause_probability")] = 1.0
    """Longest of these silences."""
    telephone_probability: Share = 0.0
    """Probability that an utterance is reduced to a telephone's 8 kHz and 8 bits."""
    frequency_warp: Annotated[float, Field(strict=False, ge=0.0, le=0.5)] = 0.0
    """Largest change of the vocal tract's length, as a share (VTLP)."""
    gain_db: Annotated[float, Field(strict=False, ge=0.0, le=60.0)] = 0.0
    """Largest change of level up or down, dB."""
    spec_probability: Share = 1.0
    """Probability that an utterance's features are masked (SpecAugment)."""
    spec_ramp: Annotated[Share, MASKS] = 0.3
    """Share of training over which `spec_probability` grows from 0."""
    spec_frequency_masks: Annotated[Positive, MASKS] = 2
    """Number of frequency masks."""
    spec_frequency_bins: Annotated[Positive, MASKS] = 27
    """Mel bins in the widest frequency mask."""
    spec_time_masks: Annotated[Positive, MASKS] = 10
    """Largest number of time masks."""
    spec_time_frames: Annotated[Positive, MASKS] = 40
    """Feature frames of 10 ms in the longest time mask."""
    spec_max_time_share: Annotated[ShareAboveZero, MASKS] = 0.15
    """Largest share of an utterance that time masks cover."""


class TextConfig(Section):
    tokenizer: Literal["characters", "words", "unigram", "bpe", "pieces"] = "characters"
    """Kind of labels. unigram and bpe are sub-words by sentencepiece, pieces sub-words of an
    imported model, which a training keeps (`training.start_from`)."""
    vocab_size: Annotated[Positive, needs("text.tokenizer", "unigram", "bpe")] = 256
    """Number of labels for unigram and bpe."""
    case: Literal["keep", "lower", "upper"] = "keep"
    """Case to which all texts are converted."""
    written: bool = False
    """Score the texts as they are and normalised; needs `case: keep`:
    docs/own-corpus.md."""
    end_of_turn: bool = False
    """Add a label that is not text, and that the network learns at the end of each training
    utterance: docs/second-pass.md."""


class TrainingConfig(Section):
    output_dir: Place
    """Folder for the checkpoints, the log and the model."""
    start_from: Place | None = None
    """Model to start from: a file or the name of a ready model. Settings of `model`, `context` and
    `text` that the configuration does not write are those of this model; `model` must not differ
    except in the head."""
    keep_labels: Annotated[bool, FINE_TUNING] = False
    """Keep all labels of `start_from`, and append labels for letters and words that they lack;
    false: the labels are those of the texts. true if the configuration has `start_from` and does
    not write `text.tokenizer`."""
    keep: Annotated[Literal["none", "replay", "adapters"], FINE_TUNING] = "none"
    """Way to keep what the model of `start_from` recognises: docs/fine-tune.md. replay: mix in
    `data.replay`. adapters: only adapters (LoRA) of attention and feed-forward layers learn, and
    labels that it lacks; `data.replay` may be mixed in too."""
    adapter_rank: Annotated[int, Field(ge=1, le=1024), needs("training.keep", "adapters")] = 8
    """Rank of each adapter; its size grows with the rank."""
    freeze: Annotated[
        list[str], Field(max_length=256), AfterValidator(distinct), FINE_TUNING, WHOLE
    ] = []
    """Parts of the network that do not learn, by their names: encoder.subsampling, encoder.layers.0
    (the first layer), head."""
    epochs: PositiveOrAuto = 30
    """Passes over all utterances, each at every one of `speed_factors`; auto: by the hours of
    recordings, see docs/training.md."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimiser: Muon for the matrices of the layers and AdamW for the rest, or AdamW for all."""
    learning_rate: PositiveNumber = 2e-3
    """Highest learning rate."""
    rate_factors: Annotated[dict[str, PositiveNumber], Field(max_length=256)] = {}
    """Factors of the learning rate of parts of the network, by the names that `freeze` uses:
    {head: 10}. The longest name that fits a parameter decides."""
    warmup_share: Share = 0.08
    """Share of training in which the rate rises to its peak; then a cosine falls to 1 % of it."""
    weight_decay: Annotated[NumberFromZero, WHOLE] = 0.01
    """Weight decay of the matrices."""
    clip_norm: PositiveNumber = 5.0
    """Largest norm of the gradient of a step."""
    accumulate_batches: Positive = 1
    """Number of batches of each process in an optimiser step."""
    intermediate_layers: Annotated[
        list[Positive], Field(max_length=256), AfterValidator(distinct)
    ] = []
    """Layers with an additional CTC loss, counted from 1."""
    intermediate_weight: Annotated[
        Share, needs("training.intermediate_layers", wanted="a list of layers")
    ] = 0.3
    """Share of these losses in the total loss."""
    views: Literal["one", "same", "full_and_chunks"] = "one"
    """Views of each utterance: one; or two, masked differently and trained to agree (CR-CTC), at
    twice the time. Two are in the same context, or one in full context and one in chunks."""
    consistency_weight: Annotated[PositiveNumber, TWO_VIEWS] = 0.2
    """Weight of the loss between two views; it grows from 0 over the first tenth of training."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)$")] = "auto"
    """Device. auto: an NVIDIA GPU for each process if torch finds one, else the CPU; cpu; cuda; or
    cuda:N for GPU number N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision. auto: bfloat16 on a GPU that has it, and on a CPU that has it from 10 M parameters
    on; smaller models are no faster there. The log names it."""
    gradient_checkpointing: bool = False
    """Save memory by computing activations again in the backward pass."""
    average: PositiveOrAuto = 5
    """Number of last epochs whose weights are averaged into the model; auto: a fifth of them."""
    validate_every_epochs: Positive = 1
    """Epochs from one validation to the next; the last epoch is always validated."""
    patience: Positive | None = None
    """Validations without a lower mean error rate on dev after which training ends; null: never."""
    checkpoint_every_steps: Positive = 200
    """Steps from one checkpoint to the next, besides the one after every epoch; the two newest are
    kept."""
    trackers: Annotated[list[Literal["wandb", "mlflow"]], AfterValidator(distinct)] = []
    """Trackers that get the settings and curves, besides TensorBoard: wandb, mlflow."""
    export: bool = True
    """Export the model to ONNX at the end, for its own context and for full context."""
    seed: Count = 0
    """Seed of all random draws."""
    num_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch; 0: one below 10 million parameters, else torch's default."""

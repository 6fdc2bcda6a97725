"""Checks of the settings of NeMo's models.

Every setting is read, or must have the value that asrkit computes with, or is listed as harmless.
A checkpoint with any other setting is rejected with the name of the setting.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from asrkit.errors import shown, whole_number
from asrkit.interop.checkpoint import CheckpointError

SETTINGS = "model_config.yaml"
MODULES = "nemo.collections.asr.modules"
MOST = 1 << 16  # largest size in the configuration


class Key(NamedTuple):
    """A setting of NeMo's that must have a value that asrkit computes with."""

    default: Any  # NeMo's default, for a configuration without the setting
    right: tuple[Any, ...]
    why: str = ""


class Part(NamedTuple):
    """The allowed settings of a section; names are separated by spaces."""

    keys: Mapping[str, Key]
    read: str = ""  # settings that the import uses
    harmless: str = ""  # settings that change no number of the model


PROMPTED = "EncDecRNNTBPEModelWithPrompt"
HYBRIDS = ("EncDecHybridRNNTCTCModel", "EncDecHybridRNNTCTCBPEModel")
MODELS = (
    "EncDecCTCModel", "EncDecCTCModelBPE", "EncDecRNNTModel", "EncDecRNNTBPEModel", *HYBRIDS,
    PROMPTED,
)  # fmt: skip
MODEL = Part(
    {"sample_rate": Key(16000, (16000,))},
    "target nemo_version preprocessor encoder decoder decoding aux_ctc tokenizer",
    # Training, printing, and numbers and labels that other sections repeat. `joint` is read for a
    # transducer, and left out with --head ctc, like its weights.
    "train_ds validation_ds test_ds spec_augment loss optim interctc ctc_reduction rnnt_reduction "
    "skip_nan_grad compute_eval_loss variational_noise ctc_loss_weight init_from_nemo_model "
    "init_from_pretrained_model init_from_ptl_ckpt token_init_method token_init_weight_value "
    "token_init_bias_value joint model_defaults labels log_prediction use_cer name",
)
PROMPTED_MODEL = MODEL._replace(read=f"{MODEL.read} num_prompts")
# Repeated by other sections; no class of NeMo reads `norm`.
DEFAULTS = Part({}, "", "enc_hidden pred_hidden joint_hidden tdt_durations num_tdt_durations norm")
PROMPTED_DEFAULTS = DEFAULTS._replace(
    keys={"initialize_prompt_feature": Key(False, (True,), "its language prompt is off")},
    read="num_prompts prompt_dictionary",
)

FEATURES = Part(
    {
        "_target_": Key(None, (None, f"{MODULES}.AudioToMelSpectrogramPreprocessor")),
        "sample_rate": Key(16000, (16000,)),
        "normalize": Key(
            "per_feature", ("NA", None), "a normalisation over the utterance cannot stream"
        ),
        "window_size": Key(0.02, (0.025,)),
        "window_stride": Key(0.01, (0.01,)),
        "n_window_size": Key(None, (None,)),
        "n_window_stride": Key(None, (None,)),
        "window": Key("hann", ("hann",)),
        "n_fft": Key(None, (512, None)),
        "preemph": Key(0.97, (0.97,)),
        "lowfreq": Key(0, (0,)),
        "highfreq": Key(None, (None, 8000)),
        "log": Key(True, (True,)),
        "log_zero_guard_type": Key("add", ("add",)),
        "log_zero_guard_value": Key(2.0**-24, (2.0**-24,)),
        "mag_power": Key(2.0, (2.0,)),
        "mel_norm": Key("slaney", ("slaney",)),
        "frame_splicing": Key(1, (1,)),
        "exact_pad": Key(False, (False,)),
        "stft_exact_pad": Key(False, (False,)),
        "use_torchaudio": Key(False, (False,), "torchaudio computes other features"),
    },
    "features",
    # `pad_to` and `pad_value` concern frames after the end, which are dropped, `dither` and `nb_…`
    # training; `stft_conv` is another way to compute the same numbers.
    "pad_to pad_value dither stft_conv rng nb_augmentation_prob nb_max_freq",
)
ENCODER = Part(
    {
        "_target_": Key(None, (f"{MODULES}.ConformerEncoder",)),
        "self_attention_model": Key("rel_pos", ("rel_pos",)),
        "att_context_style": Key(
            "regular", ("chunked_limited",), "other attention needs full context, or has no chunks"
        ),
        "att_chunk_context_size": Key(None, (None,), "its contexts differ from those of the model"),
        "conv_norm_type": Key("batch_norm", ("batch_norm", "layer_norm")),
        "conv_context_style": Key(
            "regular", ("regular",), "these convolutions depend on the chunk"
        ),
        "conv_dual_mode": Key(False, (False,), "these convolutions depend on the mode"),
        "causal_downsampling": Key(False, (True,), "a symmetric subsampling cannot stream"),
        "reduction": Key(None, (None,)),
        "feat_out": Key(-1, (-1,)),
        "global_tokens": Key(0, (0,)),
        "xscaling": Key(True, (True, False)),
        "use_bias": Key(True, (True, False)),
    },
    "feat_in n_layers d_model n_heads ff_expansion_factor subsampling subsampling_factor "
    "subsampling_conv_channels att_context_size conv_kernel_size conv_context_size dropout",
    # Training; other ways to compute the same numbers (the biases of every layer are stored either
    # way); options of a reduction, of global tokens and of rope, which are excluded above.
    "att_context_probs dropout_pre_encoder dropout_emb dropout_att stochastic_depth_drop_prob "
    "stochastic_depth_mode stochastic_depth_start_layer subsampling_conv_chunking_factor "
    "use_pytorch_sdpa use_pytorch_sdpa_backends use_triton sync_max_audio_length pos_emb_max_len "
    "untie_biases reduction_position reduction_factor global_tokens_spacing global_attn_separate "
    "rope_base rotary_fraction",
)
HEAD = Part(
    {
        "_target_": Key(None, (None, f"{MODULES}.ConvASRDecoder")),
        "add_blank": Key(True, (True,), "CTC needs a blank"),
    },
    "vocabulary",
    "num_classes init_mode feat_in",  # the weights have these sizes
)
BRANCH = Part({}, "decoder decoding", "ctc_loss_weight use_cer ctc_reduction")


def section(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the configuration. Raises CheckpointError if it is missing."""
    values = settings.get(name)
    if not isinstance(values, dict):
        raise CheckpointError(f"{SETTINGS} has no section {name!r}")
    return values


def size(name: str, values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a size of the section `name`. Raises CheckpointError for a value that is not one."""
    found = whole_number(value := values.get(key, default), 1, MOST)
    if found is None:
        raise CheckpointError(
            f"{name}.{key} must be a whole number from 1 to {MOST}, got {shown(value)}"
        )
    return found


def folds_norm(encoder: Mapping[str, Any]) -> bool:
    """Return whether the convolutions have a BatchNorm."""
    return bool(encoder.get("conv_norm_type", "batch_norm") == "batch_norm")


def class_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the model's class; "" if it is not stated."""
    target = settings.get("target")
    return target.rpartition(".")[2] if isinstance(target, str) else ""


def ctc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the CTC branch: the model's, or a section of a hybrid model's."""
    return dict(section(settings, "aux_ctc") if "aux_ctc" in settings else settings)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise CheckpointError for a setting that asrkit does not have, or does not know."""
    target, name = settings.get("target"), class_of(settings)
    if target is not None and name not in MODELS:
        raise CheckpointError(
            f"models of class {shown(target)} are not supported; "
            f"the supported classes are {', '.join(MODELS)}"
        )
    if name.startswith("EncDecRNNT") and not settings.get("joint"):
        raise CheckpointError(f"this {shown(target)} has no joint network")
    prompted, defaults = name == PROMPTED, settings.get("model_defaults")
    check("model", settings, PROMPTED_MODEL if prompted else MODEL)
    defaults = defaults if isinstance(defaults, dict) else {}
    check("model_defaults", defaults, PROMPTED_DEFAULTS if prompted else DEFAULTS)
    check("preprocessor", section(settings, "preprocessor"), FEATURES)
    check("encoder", section(settings, "encoder"), ENCODER)


def check_head(settings: Mapping[str, Any]) -> None:
    """Raise CheckpointError for a CTC head with settings that asrkit does not support."""
    branch = ctc(settings)
    if branch != settings:
        check("aux_ctc", branch, BRANCH)
    check("decoder", section(branch, "decoder"), HEAD)
    decoding_of(branch)


def decoding_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the search. Raises CheckpointError for another temperature."""
    decoding = settings.get("decoding")
    decoding = decoding if isinstance(decoding, dict) else {}
    stated = {key: value for key, value in decoding.items() if value is not None}
    check_keys("decoding", stated, {"temperature": Key(1.0, (1.0,))})
    return decoding


def check(name: str, values: Mapping[str, Any], part: Part) -> None:
    """Raise CheckpointError for a setting that asrkit does not have, or does not know."""
    check_keys(name, values, part.keys)
    known = {*part.keys, *part.read.split(), *part.harmless.split()}
    for key in values:
        if key not in known:
            own = shown(key)
            own = own[1:-1] if isinstance(key, str) and key.isidentifier() else own
            raise CheckpointError(
                f"{name}.{own} is unknown: its value {shown(values[key])} may change the model's "
                "outputs"
            )


def check_keys(name: str, values: Mapping[str, Any], keys: Mapping[str, Key]) -> None:
    """Raise CheckpointError for a setting with another value than asrkit's, with the reason."""
    for key, (default, right, why) in keys.items():
        value = values.get(key, default)
        if value not in right:
            wanted = " or ".join(map(str, right))
            reason = f": {why}" if why else ""
            raise CheckpointError(f"{name}.{key} must be {wanted}, got {shown(value)}{reason}")

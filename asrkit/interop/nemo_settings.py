"""The settings of NeMo's models that asrkit can compute exactly.

Settings on which the names or shapes of weights depend are not here: the weights are compared.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from asrkit.interop.settings import Part, Size

Pair = Annotated[list[Annotated[int, Field(ge=0, le=1 << 16)]], Field(min_length=2, max_length=2)]
Menu = Annotated[  # one pair, or several
    list[Pair],
    Field(min_length=1),
    BeforeValidator(lambda x: [x] if isinstance(x, list) and int in map(type, x) else x),
]


class Features(Part):
    # Frames after the end, which are dropped; training; another way to compute the same numbers.
    IGNORED = "pad_to pad_value dither stft_conv rng nb_augmentation_prob nb_max_freq"

    target: Literal["nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor", None] = Field(
        None, alias="_target_"
    )
    features: Size = 64
    normalize: Literal["NA", None]  # a normalisation over the utterance cannot stream
    sample_rate: Literal[16000] = 16000
    window: Literal["hann"] = "hann"
    window_size: Annotated[float, Field(ge=0.025, le=0.025)]
    window_stride: Annotated[float, Field(ge=0.01, le=0.01)] = 0.01
    n_fft: Literal[512, None] = None
    log: Literal[True] = True
    frame_splicing: Literal[1] = 1


class Encoder(Part):
    # Options of a reduction, of global tokens and of rope concern attention that is rejected.
    IGNORED = (
        "feat_in feat_out att_context_probs dropout_pre_encoder dropout_emb dropout_att "
        "stochastic_depth_drop_prob stochastic_depth_mode stochastic_depth_start_layer "
        "subsampling_conv_chunking_factor use_pytorch_sdpa use_pytorch_sdpa_backends use_triton "
        "sync_max_audio_length pos_emb_max_len untie_biases reduction_position reduction_factor "
        "global_tokens global_tokens_spacing global_attn_separate rope_base rotary_fraction"
    )

    target: Literal["nemo.collections.asr.modules.ConformerEncoder"] = Field(alias="_target_")
    d_model: Size
    n_heads: Size = 4
    n_layers: Size
    ff_expansion_factor: Size = 4
    dropout: float = 0.1
    use_bias: bool = True
    xscaling: bool = True
    subsampling: Literal["dw_striding"]
    subsampling_factor: Literal[8]
    subsampling_conv_channels: int = -1
    causal_downsampling: Literal[True]
    self_attention_model: Literal["rel_pos"] = "rel_pos"
    att_context_style: Literal["chunked_limited"]
    att_context_size: Menu
    conv_kernel_size: Size = 31
    conv_context_size: Literal["causal"]
    conv_norm_type: Literal["batch_norm", "layer_norm"] = "batch_norm"
    reduction: None = None


class Tokenizer(Part, extra="ignore"):
    type: Literal["bpe"]
    model_path: Annotated[str, Field(pattern="^nemo:")]  # sentencepiece's model in the archive


class Defaults(Part):
    # Repeated by other sections; no class of NeMo reads `norm`.
    IGNORED = "enc_hidden pred_hidden joint_hidden tdt_durations num_tdt_durations norm num_prompts"

    initialize_prompt_feature: Literal[True] = True
    prompt_dictionary: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)


class Model(Part):
    # Training, printing, numbers and labels that other sections repeat, and the heads' sections.
    IGNORED = (
        "train_ds validation_ds test_ds spec_augment loss optim interctc ctc_reduction "
        "rnnt_reduction skip_nan_grad compute_eval_loss variational_noise ctc_loss_weight "
        "init_from_nemo_model init_from_pretrained_model init_from_ptl_ckpt token_init_method "
        "token_init_weight_value token_init_bias_value labels log_prediction use_cer name "
        "num_prompts decoder decoding joint aux_ctc target"
    )

    nemo_version: Any = ""
    sample_rate: Literal[16000] = 16000
    preprocessor: Features
    encoder: Encoder
    tokenizer: Tokenizer | None = None
    model_defaults: Defaults = Defaults()


class Classifier(Part):
    IGNORED = "num_classes init_mode feat_in"

    target: Literal["nemo.collections.asr.modules.ConvASRDecoder", None] = Field(
        None, alias="_target_"
    )
    add_blank: Literal[True] = True
    vocabulary: list[str]


class CTC(Part, extra="ignore"):
    """A CTC model, or the section aux_ctc of a hybrid."""

    decoder: Classifier


class Network(Part):
    IGNORED = (
        "rnn_hidden_size t_max dropout weights_init_scale hidden_hidden_bias_scale forget_gate_bias"
    )

    pred_hidden: Size
    pred_rnn_layers: Size = 1


class Predictor(Part):
    IGNORED = "random_state_sampling vocab_size"

    target: Literal[
        "nemo.collections.asr.modules.RNNTDecoder",
        "nemo.collections.asr.modules.StatelessTransducerDecoder",
    ] = Field(alias="_target_")
    prednet: Network
    context_size: Size = 1
    normalization_mode: Literal["layer", None] = None
    blank_as_pad: Literal[True] = True  # else its embeddings have no blank

    @property
    def is_stateless(self) -> bool:
        return self.target.endswith("StatelessTransducerDecoder")


class JointNetwork(Part):
    IGNORED = "encoder_hidden pred_hidden"

    joint_hidden: Size
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    dropout: float | None = None


class Joint(Part):
    IGNORED = (
        "num_classes log_softmax preserve_memory experimental_fuse_loss_wer masking_prob "
        "fuse_loss_wer fused_batch_size"
    )

    target: Literal["nemo.collections.asr.modules.RNNTJoint"] = Field(alias="_target_")
    jointnet: JointNetwork
    vocabulary: list[str]
    num_extra_outputs: Literal[0, None] = 0  # TDT predicts durations too


class Transducer(Part, extra="ignore"):
    decoder: Predictor
    joint: Joint

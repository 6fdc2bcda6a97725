"""train.yaml of WeNet's models: the settings that asrkit can compute exactly."""

from typing import Annotated, Literal

from pydantic import Field

from asrkit.config.bounds import MOST_FRAMES
from asrkit.interop.settings import Part, Size


class EncoderPart(Part):
    """The arguments of WeNet's encoder, with WeNet's defaults."""

    IGNORED = (
        "positional_dropout_rate attention_dropout_rate use_dynamic_left_chunk "
        "gradient_checkpointing use_sdpa"
    )

    output_size: Size = 256
    attention_heads: Size = 4
    linear_units: Size = 2048
    num_blocks: Annotated[int, Field(ge=1, le=256)] = 6
    cnn_module_kernel: Size = 15
    cnn_module_norm: Literal["layer_norm", "batch_norm"] = "batch_norm"
    input_layer: Literal["conv2d", "conv2d6", "conv2d8"] = "conv2d"
    static_chunk_size: Annotated[int, Field(le=MOST_FRAMES)] = 0
    use_dynamic_chunk: bool = False
    dropout_rate: Annotated[float, Field(strict=False, ge=0.0, lt=1.0)] = 0.1

    causal: Literal[True]
    pos_enc_layer_type: Literal["rel_pos"] = "rel_pos"
    selfattention_layer_type: Literal["rel_selfattn"] = "rel_selfattn"
    use_cnn_module: Literal[True] = True
    macaron_style: Literal[True] = True
    normalize_before: Literal[True] = True
    final_norm: Literal[True] = True
    concat_after: Literal[False] = False
    activation_type: Literal["swish"] = "swish"
    positionwise_conv_kernel_size: Literal[1] = 1


class CTCPart(Part):
    IGNORED = "dropout_rate reduce"
    ctc_blank_id: Literal[0] = 0


class FbankPart(Part):
    IGNORED = "dither"
    num_mel_bins: Size = 80
    frame_length: Literal[25] = 25
    frame_shift: Literal[10] = 10
    window_type: Literal["povey"] = "povey"


class ResamplingPart(Part):
    resample_rate: Literal[16000] = 16000


class DataPart(Part):
    IGNORED = (
        "batch_conf cycle filter_conf list_shuffle list_shuffle_conf shuffle shuffle_conf sort "
        "sort_conf spec_aug spec_aug_conf spec_sub spec_sub_conf spec_trim spec_trim_conf "
        "speed_perturb"
    )
    feats_type: Literal["fbank"] = "fbank"
    fbank_conf: FbankPart = FbankPart()
    resample_conf: ResamplingPart = ResamplingPart()


class CMVNPart(Part):
    IGNORED = "is_json_cmvn"
    cmvn_file: str | None = None


class TokenizerPart(Part):
    IGNORED = (
        "bpe_path is_multilingual non_lang_syms_path num_languages special_tokens split_with_space "
        "symbol_table_path"
    )
    connect_symbol: Literal[""] = ""


class Settings(Part):
    IGNORED = (
        "is_json_cmvn accum_grad decoder decoder_conf dtype grad_clip init_infos input_dim "
        "lfmmi_dir log_interval max_epoch model_conf model_dir optim optim_conf output_dim "
        "save_interval save_states scheduler scheduler_conf train_engine use_amp vocab_size"
    )
    encoder: Literal["conformer"]
    encoder_conf: EncoderPart
    model: Literal["asr_model"] = "asr_model"
    ctc: Literal["ctc"] = "ctc"
    ctc_conf: CTCPart = CTCPart()
    dataset: Literal["asr"] = "asr"
    dataset_conf: DataPart = DataPart()
    cmvn: Literal["global_cmvn"] | None = None
    cmvn_conf: CMVNPart = CMVNPart()
    cmvn_file: str | None = None  # in folders from before cmvn_conf
    tokenizer: Literal["char", "bpe"] | None = None  # None in older folders
    tokenizer_conf: TokenizerPart = TokenizerPart()

    @property
    def normalizes(self) -> bool:
        """Whether the features are normalised."""
        return bool(self.cmvn or self.cmvn_conf.cmvn_file or self.cmvn_file)

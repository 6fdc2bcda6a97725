"""The transducer of a NeMo checkpoint: its settings as those of asrkit's head."""

from collections.abc import Mapping
from typing import Any

from asrkit.errors import shown
from asrkit.interop.checkpoint import CheckpointError
from asrkit.interop.nemo_settings import MODULES, Key, Part, check, decoding_of, section, size

LSTM, STATELESS = (f"{MODULES}.{name}" for name in ("RNNTDecoder", "StatelessTransducerDecoder"))
EMBEDDED = Key(True, (True,), "its embeddings have no blank")
# Harmless settings concern training, are sizes of weights, or other ways to compute the same.
PREDICTOR = {
    LSTM: Part(
        {
            "normalization_mode": Key(None, (None,), "its LSTM has norms in the gates"),
            "blank_as_pad": EMBEDDED,
        },
        "_target_ prednet",
        "random_state_sampling vocab_size",
    ),
    STATELESS: Part(
        {"normalization_mode": Key(None, (None, "layer")), "blank_as_pad": EMBEDDED},
        "_target_ prednet context_size",
        "vocab_size",
    ),
}
NETWORK = Part(
    {"rnn_hidden_size": Key(-1, (-1, None), "its LSTM is projected")},
    "pred_hidden pred_rnn_layers dropout",
    "t_max weights_init_scale hidden_hidden_bias_scale forget_gate_bias",
)
JOINER = Part(
    {
        "_target_": Key(None, (f"{MODULES}.RNNTJoint",)),
        "num_extra_outputs": Key(0, (0, None), "its joiner predicts durations too (TDT)"),
    },
    "jointnet vocabulary",
    "num_classes log_softmax preserve_memory experimental_fuse_loss_wer masking_prob "
    "fuse_loss_wer fused_batch_size",
)
JOINT_NETWORK = Part(
    {"activation": Key("relu", ("relu", "tanh", "sigmoid"))},
    "joint_hidden dropout",
    "encoder_hidden pred_hidden",
)


def head_settings(settings: Mapping[str, Any], adapter_dim: int | None) -> dict[str, Any]:
    """Return `model.head` of asrkit's configuration.

    Args:
        adapter_dim: width of the layers between encoder and head; None without them.
    """
    decoder, joint = section(settings, "decoder"), section(settings, "joint")
    kind = decoder.get("_target_")
    if kind not in PREDICTOR:
        names = " or ".join(PREDICTOR)
        raise CheckpointError(f"decoder._target_ must be {names}, got {shown(kind)}")
    check("decoder", decoder, PREDICTOR[kind])
    check("joint", joint, JOINER)
    network, hidden = section(decoder, "prednet"), section(joint, "jointnet")
    check("decoder.prednet", network, NETWORK)
    check("joint.jointnet", hidden, JOINT_NETWORK)
    greedy = decoding_of(settings).get("greedy")
    most = greedy.get("max_symbols") if isinstance(greedy, dict) else None
    found = {
        "kind": "transducer",
        "predictor_dim": size("decoder.prednet", network, "pred_hidden"),
        "joint_dim": size("joint.jointnet", hidden, "joint_hidden"),
        "activation": hidden.get("activation", "relu"),
        "max_symbols": size(
            "decoding.greedy", {} if most is None else {"max_symbols": most}, "max_symbols", 10
        ),
        "dropout": hidden.get("dropout") or 0.0,
        "ctc_weight": ctc_weight(settings),
        "adapter_dim": adapter_dim,
    }
    if kind == LSTM:
        layers = size("decoder.prednet", network, "pred_rnn_layers", 1)
        return found | {"predictor": "lstm", "predictor_layers": layers}
    context = size("decoder", decoder, "context_size", 1)
    norm = decoder.get("normalization_mode") == "layer"
    return found | {"predictor": "stateless", "context": context, "predictor_norm": norm}


def ctc_weight(settings: Mapping[str, Any]) -> float:
    """Return the share of the CTC layer in the loss; 0 for a model without this layer."""
    if "aux_ctc" not in settings:
        return 0.0
    found = section(settings, "aux_ctc").get("ctc_loss_weight")
    return found if isinstance(found, float) and 0.0 < found < 1.0 else 0.3  # NeMo's default

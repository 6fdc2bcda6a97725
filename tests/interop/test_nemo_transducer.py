"""Transducers of NeMo: settings, heads, labels and prompts; what is refused."""

import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from asrkit.commands.info import described
from asrkit.interop import import_checkpoint
from asrkit.interop.checkpoint import CheckpointError
from asrkit.model import Context, CTCHead
from asrkit.text import decode
from tests.interop.test_nemo import Fixture, checkpoint, head_of, outputs_of, traced


def test_settings_of_published_models_that_their_classes_do_not_read(tmp_path: Path) -> None:
    """nemotron-3.5-asr-streaming has a CTC layer in its configuration, but no weights for it.

    The recipe of parakeet_realtime_eou tells how the labels for ends of turns begin.
    """

    def change(settings: dict[str, Any]) -> None:
        settings["model_defaults"]["norm"] = "None"
        settings |= {"token_init_method": "constant", "token_init_bias_value": -1000.0}
        settings["aux_ctc"] = {"ctc_loss_weight": 0.1, "decoder": {"vocabulary": []}}

    path = checkpoint("rnnt-prompt")
    plain, other = (
        import_checkpoint("nemo", each, prompt="auto").file
        for each in (path, changed(path, tmp_path / "m.nemo", change))
    )
    assert other.config == plain.config
    expected = plain.model.state_dict()
    assert all(torch.equal(expected[key], own) for key, own in other.model.state_dict().items())


def test_a_hybrid_keeps_both_heads_or_the_one_that_is_chosen(tmp_path: Path) -> None:
    path = checkpoint("rnnt-hybrid")
    both, ctc = (import_checkpoint("nemo", path, head) for head in (None, "ctc"))
    assert (both.left_out, ctc.left_out.keys()) == ({}, {"decoder", "joint"})
    assert min(ctc.left_out.values()) > 1000
    assert isinstance(ctc.file.model.head, CTCHead)
    own = head_of(both).ctc
    assert own is not None
    assert torch.equal(own.weight, ctc.file.model.head.weight)
    fixture = Fixture(ctc, outputs_of("rnnt-hybrid"))
    for name, context in fixture.contexts():
        trace, _ = traced(ctc.file, context, [fixture.arrays["speech/audio"]])
        expected = fixture.arrays[f"speech/{name}/ctc_tokens"]
        assert [each - 1 for each in trace.hypothesis.tokens] == [*expected]
    assert head_of(both).ctc_weight == 0.3


def test_labels_for_ends_and_languages_are_not_text(tmp_path: Path) -> None:
    """Those of parakeet_realtime_eou and nemotron-3.5-asr; here they replace labels."""
    path, arrays = checkpoint("rnnt"), outputs_of("rnnt")
    samples, tokens = arrays["speech/audio"], [*arrays["speech/att_70_13/tokens"]]
    *hidden, last = sorted({*tokens}, key=tokens.index)[:4]

    def change(settings: dict[str, Any]) -> None:
        vocabulary = settings["joint"]["vocabulary"]
        for token, label in zip(hidden, ("<EOU>", "<EOB>", "<en-US>"), strict=True):
            vocabulary[token] = label
        vocabulary[last] = "<en-us>"  # a control

    file = import_checkpoint("nemo", changed(path, tmp_path / "m.nemo", change)).file
    trace, result = traced(file, Context(14, 70), [samples])
    assert [each - 1 for each in trace.hypothesis.tokens] == tokens  # the labels are recognised
    assert result.text == decode(file.tokenizer, [t + 1 for t in tokens if t not in hidden])
    assert "<en-us>" in result.text
    assert "".join(word.text for word in result.words) == result.text.replace(" ", "")
    told = described(file.runnable)["vocabulary"]
    assert told.endswith("; labels without text: <EOB>, <EOU>, <en-US>")
    assert (
        "without text" not in described(import_checkpoint("nemo", path).file.runnable)["vocabulary"]
    )


def test_options_of_nemo_are_refused_for_wenet(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="--head has no effect on a checkpoint of wenet"):
        import_checkpoint("wenet", tmp_path, "ctc", "en")


def changed(path: Path, output: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a checkpoint with other settings."""
    with tarfile.open(path) as old, tarfile.open(output, "w") as new:
        for member in old:
            stored = old.extractfile(member)
            data = stored.read() if stored else b""
            if member.name.endswith("model_config.yaml"):
                settings = yaml.safe_load(data)
                change(settings)
                data = yaml.safe_dump(settings).encode()
            member.size = len(data)
            new.addfile(member, BytesIO(data))
    return output


def set_in(*places: str, **values: object) -> Callable[[dict[str, Any]], object]:
    def change(settings: dict[str, Any]) -> None:
        for place in places:
            settings = settings[place]
        settings.update(values)

    return change


@pytest.mark.parametrize(
    ("name", "head", "prompt", "message", "change"),
    [
        ("rnnt", "ctc", None, "the model has no head ctc, got --head ctc: leave it out", None),
        ("ctc", "transducer", None, "the model has no head transducer, got --head trans", None),
        ("rnnt", None, "de-DE", "only models with a language prompt take --prompt, got 'de-", None),
        ("rnnt-prompt", None, "xx", "nemo --prompt, from 'en-US', 'en', 'de-", None),
        ("rnnt-prompt", None, None, "reads a language prompt, got None: choose one", None),
        ("rnnt-prompt", None, "en", "initialize_prompt_feature': input should be True",
         set_in("model_defaults", initialize_prompt_feature=False)),
        ("rnnt-prompt", None, "en", "must have more than 1",
         set_in("model_defaults", "prompt_dictionary", en=128)),
        ("rnnt-prompt", None, "en", "or equal to 0, got -1",
         set_in("model_defaults", "prompt_dictionary", en=-1)),
        ("rnnt-hybrid", "ctc", None, "unknown key 'decoder.x'", set_in("aux_ctc", "decoder", x=3)),
        ("rnnt-hybrid", "ctc", None, "aux_ctc: 'decoder': ", set_in("aux_ctc", decoder=None)),
        ("rnnt", None, None, "blank_as_pad': input", set_in("decoder", blank_as_pad=False)),
        ("rnnt", None, None, "decoder._target_': input", set_in("decoder", _target_="a.b.C")),
        ("rnnt", None, None, "unknown key 'decoder.new'", set_in("decoder", new=1)),
        ("rnnt", None, None, "num_extra_outputs': input", set_in("joint", num_extra_outputs=5)),
        ("rnnt", None, None, "input should be 'relu', 'tanh' or 'sigmoid'",
         set_in("joint", "jointnet", activation="gelu")),
        ("rnnt", None, None, "joint.vocabulary': input", set_in("joint", vocabulary=None)),
        ("rnnt", None, None, "pred_hidden': input", set_in("decoder", "prednet", pred_hidden=0)),
        ("rnnt", None, None, "bias_hh_l1' must be",
         set_in("decoder", "prednet", pred_rnn_layers=2)),
    ],
)  # fmt: skip
def test_refusals(
    name: str, head: str | None, prompt: str | None, message: str,
    change: Callable[[dict[str, Any]], object] | None, tmp_path: Path,
) -> None:  # fmt: skip
    path = checkpoint(name)
    path = path if change is None else changed(path, tmp_path / "m.nemo", change)
    with pytest.raises(CheckpointError) as error:
        import_checkpoint("nemo", path, head, prompt)
    assert message in str(error.value)

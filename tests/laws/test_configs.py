"""Law 7: every conf/*.yaml builds, and trains one step with its first layers."""

from pathlib import Path

import pytest
import torch

from asrkit.build_network import build_model
from asrkit.config.read_yaml import ConfigError
from asrkit.config.schema import Config, load_config, parse_config
from asrkit.interop import import_checkpoint
from asrkit.model_file import save_model
from asrkit.training.loss import Loss, View
from asrkit.training.optimizer import build_optimizers, set_learning_rate
from asrkit.training.warm_start import load_training
from tests.conftest import PROJECT
from tests.interop.test_whisper import of_openai, openai_weights

CONFIGS = sorted((PROJECT / "conf").rglob("*.yaml"))
STARTED = ("finetune", "whisper")  # of which a model gives the network


def started(path: Path, folder: Path) -> Config:
    """Load a configuration with the network of its start, a small one in place of Whisper's."""
    overrides = []
    if path.stem == "whisper":
        start = import_checkpoint("whisper", of_openai(folder, openai_weights(80))).file
        save_model(folder / "start.safetensors", start)
        overrides = [f"training.start_from={folder / 'start.safetensors'}"]
    return load_training(path, overrides)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_trains_one_step(path: Path, tmp_path: Path) -> None:
    config = load_config(path) if path.stem not in STARTED else started(path, tmp_path)
    torch.manual_seed(0)
    with torch.device("meta"):  # of the full size, without memory
        whole = build_model(config.model, vocab_size=30)
    assert len(whole.encoder.layers) == config.model.num_layers
    assert all(0 < n < config.model.num_layers for n in config.training.intermediate_layers)
    shallow = config.model.model_copy(update={"num_layers": 2})
    model, options = build_model(shallow, vocab_size=30), config.training
    loss = Loss(model, [1], options.intermediate_weight)
    optimizers = build_optimizers(
        model, options.optimizer, options.weight_decay, options.rate_factors
    )
    set_learning_rate(optimizers, options.learning_rate)
    before = [p.detach().clone() for p in model.parameters()]
    tokens, feats = torch.randint(1, 30, (2, 5)), torch.randn(2, 160, config.model.num_mels)
    view = View(feats, config.context.live)
    losses = loss([view], torch.tensor([160, 120]), tokens, torch.tensor([5, 3]))
    losses.mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    assert torch.isfinite(losses).all()
    changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert all(changed)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_begins_with_the_command_that_runs_it_and_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert any(f"asrkit train --config conf/{path.name}" in line for line in lines[:4])
    assert len(lines) <= 70


def test_control_a_broken_config_is_refused() -> None:
    assert PROJECT / "conf" / "conformer.yaml" in CONFIGS
    values = load_config(CONFIGS[0]).model_dump()
    values["model"]["num_layres"] = 3
    told = "unknown key 'model.num_layres'; did you mean 'model.num_layers'"
    with pytest.raises(ConfigError, match=told):
        parse_config(values)

"""Configuration: strict, with errors that teach."""

import math
from pathlib import Path

import pytest

from asrkit.build import build_model, build_search
from asrkit.config import POSITIONS, ConfigError, load_config, parse_config, parse_search
from asrkit.model.positions import options
from tests.conftest import PROJECT

CONF = PROJECT / "conf" / "conformer.yaml"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("modle.dim=256", "unknown key 'modle.dim'; did you mean 'model.dim'?"),
        ("model.layres=3", "unknown key 'model.layres'; did you mean 'model.num_layers'?"),
        ("model.num_heads=four", "'model.num_heads': input should be a valid integer"),
        ("model.dim=true", "'model.dim': input should be a valid integer"),
        (
            "augmentation.spec_max_time_share=2",
            "'augmentation.spec_max_time_share': input should be less than or equal to 1, got 2",
        ),
        (
            "augmentation.spec_max_time_share=0",
            "'augmentation.spec_max_time_share': input should be greater than 0, got 0",
        ),
        (
            "training.epochs=0",
            "'training.epochs': input should be greater than or equal to 1, got 0",
        ),
        (
            "training.learning_rate=.nan",
            "'training.learning_rate': input should be a finite number",
        ),
        ("model.dim=98", "'model': dim 98 must be a multiple of num_heads 4"),
        (
            "model.position.kind=rotory",
            "'model.position.kind': must be one of relative, relative_learned, shaw, t5, alibi, "
            "deberta, urpe, rotary, compact, sinusoidal, learned, flow, complex, none, "
            "got 'rotory'; did you mean 'rotary'?",
        ),
        (
            "model.position={kind: rotary, max_distance: 3}",
            "'model.position': rotary has no option 'max_distance'; it has share, base",
        ),
        (
            "model.position={kind: none, x: 3}",
            "'model.position': none has no option 'x'; it has none",
        ),
        ("model.position=null", "'model.position': write a kind, or {kind: …} with its options"),
        (
            "model.position={kind: learned, period: 10000000000000000000}",
            "'model.position.period': input should be less than or equal to 100000",
        ),
        (
            "model.position={kind: rotary, share: 0.01}",
            "'model.position': share 0.01 of a head's dim / num_heads = 24 dimensions leaves",
        ),
        (
            "model.position.max_distanse=3",
            "'model.position': relative has no option 'max_distanse'; it has max_distance",
        ),
        (
            "model.position.max_distance=0",
            "'model.position.max_distance': input should be greater than or equal to 1, got 0",
        ),
        (
            "model.position.max_distance=far",
            "'model.position.max_distance': input should be a valid integer, got 'far'",
        ),
        ("model.position={max_distance: 3}", "missing key 'model.position.kind'"),
        ("training.intermediate_layers=[9]", "must lie below model.num_layers 6"),
        (
            "search=beam",
            "'search.kind': must be one of greedy, prefix_beam, got 'beam'",
        ),
        (
            "search={kind: greedy, beam: 3}",
            "'search': greedy has no option 'beam'; it has blank_penalty",
        ),
        (
            "search={kind: prefix_beam, beam: 0}",
            "'search.beam': input should be greater than or equal to 1, got 0",
        ),
        (
            "search={kind: prefix_beam, skip_blank_prob: 2}",
            "'search': skip_blank_prob must be between 0 and 1, got 2",
        ),
        ("search=null", "'search': write a kind, or {kind: …} with its options, got None"),
        ("context.chunk_sizes=[]", "chunk_sizes must name at least one"),
        ("data.recipe=../evil", "'data.recipe': string should match pattern"),
        ("training=3", "'training': input should be a valid dictionary"),
        ("nonsense", "an override is section.key=value, got 'nonsense'"),
        ("data.train.x=3", "'train' in 'data.train.x=3' is a value, not a section"),
    ],
)
def test_what_is_wrong_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(CONF, [override])
    assert message in str(error.value)


def test_overrides_and_numbers() -> None:
    config = load_config(CONF, ["training.learning_rate=1e-3", "context.chunk_sizes=[8]"])
    assert config.training.learning_rate == 1e-3
    assert config.context.chunk_sizes == [8]


@pytest.mark.parametrize("kind", POSITIONS)
def test_round_trip(kind: str) -> None:
    config = load_config(CONF, [f"model.position.kind={kind}"])
    assert parse_config(config.model_dump(mode="json")) == config
    assert config.model.position.kind == kind
    assert config.model.position.model_dump().keys() == {"kind", *options(kind)}


def test_a_kind_may_stand_alone() -> None:
    assert load_config(CONF, ["model.position=t5"]).model.position.kind == "t5"


def test_options_reach_the_encoding() -> None:
    config = load_config(CONF, ["model.position={kind: shaw, max_distance: 5, values: false}"])
    position = build_model(config.model, 9).encoder.layers[0].attention.position
    assert position.embeddings.shape == (11, 24)  # 2·5+1 distances, Dh of the keys alone


def test_a_search_and_its_options() -> None:
    assert load_config(CONF).search.kind == "greedy"
    config = load_config(CONF, ["search={kind: prefix_beam, beam: 4, min_token_prob: 1e-3}"])
    search = build_search(config.search)
    assert (search.beam, search.log_min_token) == (4, pytest.approx(math.log(1e-3)))
    assert parse_config(config.model_dump(mode="json")) == config
    assert parse_search("prefix_beam") == load_config(CONF, ["search=prefix_beam"]).search


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("model: {dim: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("just text")
    with pytest.raises(ConfigError, match="must hold sections"):
        load_config(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text("model: {dim: 144}")
    with pytest.raises(ConfigError, match="missing key 'data'\nmissing key 'training'"):
        load_config(tmp_path / "x.yaml")


def test_yaml_runs_no_code(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("data: !!python/object/apply:os.system ['touch hacked']")
    with pytest.raises(ConfigError, match="is not YAML"):
        load_config(tmp_path / "x.yaml")
    assert not Path("hacked").exists()

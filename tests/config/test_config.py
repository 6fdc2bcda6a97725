"""Configuration: strict, with errors that teach."""

import json
import math
import re
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from asrkit.build import build_search
from asrkit.build_network import build_model
from asrkit.cli.recognizer import asked_search
from asrkit.config.bounds import Section
from asrkit.config.checks import Needs
from asrkit.config.read_yaml import ConfigError, parse_yaml
from asrkit.config.running import parse_search
from asrkit.config.schema import Config, load_config, parse_config, parse_record
from asrkit.errors import UserError
from asrkit.model import CTCHead
from asrkit.model.positions import KINDS
from tests.conftest import PROJECT

CONF = PROJECT / "conf" / "conformer.yaml"
pytestmark = pytest.mark.usefixtures("collected")  # texts are nested deeply


WRONG = {
    "modle.dim=256": "unknown key 'modle'; did you mean 'model'?",
    "training.parallel=ddp": "unknown key 'training.parallel'",
    "model.num_layres=3": "unknown key 'model.num_layres'; did you mean 'model.num_layers'?",
    "augmentation.spec_max_time_share=2": "'augmentation.spec_max_time_share': input should be "
    "less than or equal to 1, got 2",
    "training.epochs=0": "'training.epochs': input should be greater than or equal to 1, got 0",
    "training.epochs=lots": "'training.epochs': input should be a valid integer, or \"auto\", got",
    "model.dim=98": "'model': dim 98 must be a multiple of num_heads 4",
    "model.position.kind=rotory": "'model.position.kind': must be one of relative, "
    "relative_learned, shaw, t5, alibi, deberta, urpe, rotary, compact, absolute_keys, "
    "sinusoidal, learned, flow, complex, none, got 'rotory'; did you mean 'rotary'?",
    "model.position={kind: rotary, max_distance: 3}": "'model.position': rotary has no option "
    "'max_distance'; it has share, base",
    "model.position=null": "'model.position': input should be a valid dictionary",
    "model={dim: 2, num_heads: 1, position: {kind: sinusoidal, layout: tensor2tensor}}": "'model': "
    "position: layout tensor2tensor needs dim of at least 4, got 2",
    "model.position={kind: learned, period: 10000000000000000000}": "'model.position.period': "
    "input should be less than or equal to 100000",
    "training.intermediate_layers=[9]": "must lie below model.num_layers 4",
    "search={kind: greedy, beam: 3}": "'search': greedy has no option 'beam'; it has blank_penalty",
    "search={kind: prefix_beam, skip_blank_prob: 2}": "'search': skip_blank_prob must be between 0 "
    "and 1, got 2",
    "context.chunk_sizes=[]": "chunk_sizes must have at least one value",
    "data.recipe=../evil": "'data.recipe': string should match pattern",
    'training.output_dir="a\\0b"': "'training.output_dir': string should match pattern",
    "training=3": "'training': input should be a valid dictionary",
    "augmentation.speed_factors=[1.0, 0.9, 1]": "'augmentation.speed_factors': each value",
    "nonsense": "an override must be section.key=value, got 'nonsense'",
    "data.train.x=3": "'train' in 'data.train.x=3' is a value, not a section",
    "model.kernels=on": "input should be 'auto' or 'off', got True",
}


@pytest.mark.parametrize("override", WRONG)
def test_what_is_wrong_is_named(override: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(CONF, [override])
    assert WRONG[override] in str(error.value)


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves the ~ of section.key=~/x alone; a folder named ~ is nobody's wish."""
    monkeypatch.setenv("HOME", "/home/anna")
    config = load_config(CONF, ["training.output_dir=~/exp", "data.train=~/train.jsonl"])
    assert config.training.output_dir == "/home/anna/exp"
    assert config.data.train == ["/home/anna/train.jsonl"]


@pytest.mark.parametrize(
    ("override", "section", "values"),
    [
        ("training.learning_rate=1e-3", "training", {"learning_rate": 1e-3}),
        ("model.kernels=off", "model", {"kernels": "off"}),  # without quotes
        ("context={chunk_sizes: &c [8], left_contexts: *c}", "context", {"left_contexts": [8]}),
        ("text={<<: {case: upper}, tokenizer: words}", "text", {"case": "upper"}),
        ("model.position=t5", "model.position", {"kind": "t5"}),
        ("model.position={max_distance: 3}", "model.position", {"kind": "relative"}),
    ],
)
def test_overrides(override: str, section: str, values: dict[str, object]) -> None:
    written = attrgetter(section)(load_config(CONF, [override])).model_dump()
    assert written == written | values


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str) -> None:
    config = load_config(CONF, [f"model.position.kind={kind}"])
    assert parse_config(config.model_dump(mode="json")) == config
    assert config.model.position.kind == kind
    assert config.model.position.model_dump().keys() == {"kind", *KINDS.options(kind)}


def test_options_reach_the_encoding() -> None:
    config = load_config(CONF, ["model.position={kind: shaw, max_distance: 5, values: false}"])
    position = build_model(config.model, 9).encoder.layers[0].attention.position
    assert position.embeddings.shape == (11, 24)  # 2·5+1 distances, Dh of the keys alone


def test_a_search_and_its_options() -> None:
    assert load_config(CONF).search.kind == "greedy"
    config = load_config(CONF, ["search={kind: prefix_beam, beam: 4, min_token_prob: 1e-3}"])
    search = build_search(config.search, CTCHead(8, 9))
    assert (search.beam, search.log_min_token) == (4, pytest.approx(math.log(1e-3)))
    assert parse_config(config.model_dump(mode="json")) == config
    assert parse_search("prefix_beam") == load_config(CONF, ["search=prefix_beam"]).search


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no configuration file"),
        ("model: {dim: [", "is not YAML"),
        ("just text", "must hold sections"),
        ("model: {dim: 144}", "missing key 'data'\nmissing key 'training'"),
    ],
)
def test_files_that_are_no_configuration(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "x.yaml")


def bomb() -> str:
    """YAML of 1 kB that stands for 9^30 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for i in range(30):
        lines.append(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]")
    return "\n".join(lines)


BAD_YAML = {
    "date": ("2020-13-45", "month must be in 1..12"),
    "binary": ("0b_", "invalid literal for int"),
    "digits": ("9" * 5000, "value has 5000 digits"),
    "hexadecimal": ("0x" + "f" * 9000, "int of too many digits"),
    "bool": ("!!bool x", "a value cannot be read: 'x'"),
    "letter": (r'"\UFFFFFFFF"', "too large"),
    "deep": ("[" * 1000, "nested too deep"),
    "maps": ("{a: " * 1000, "nested too deep"),
    "bomb": (bomb(), "its aliases stand for 100000 values or more"),
    "merged": ("&a {x: &b {<<: [*b, *b]}}", "its aliases stand for"),
    "endless": ("&a [*a]", "its aliases stand for"),
    "wide": ("a: &a [" + "*a," * 30_000 + "]", "its aliases stand for"),
    "keys": ("{k: 1, 'k': 2}", "key 'k' is repeated in line 1, column 8"),
    "code": ("!!python/object/apply:os.system [touch hacked]", "could not determine a constructor"),
    "escape": ("a\x1b]0;title\x07", "unacceptable character #x001b"),
    "surrogate": ("\ud800", "unacceptable character #xd800"),
    "large": ("\n" * 10**6, "more than 100000"),
}


@pytest.mark.parametrize("kind", BAD_YAML)
def test_bad_yaml_is_one_line(kind: str, tmp_path: Path) -> None:
    text, message = BAD_YAML[kind]
    (tmp_path / "x.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    start = time.monotonic()
    with pytest.raises(ConfigError, match=r"x\.yaml "):
        load_config(tmp_path / "x.yaml")
    with pytest.raises(UserError) as error:
        asked_search(text)
    assert message in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500
    assert time.monotonic() - start < 10
    assert not Path("hacked").exists()


def test_many_errors_are_cut() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'k0'(.*\n)+and more of the kind$"):
        parse_config({f"k{i}": 1 for i in range(1000)})


def nested(depth: int) -> dict:
    return {"kind": nested(depth - 1)} if depth else {}


ODD: list[Any] = [
    "\ud800", 10**4000, math.nan, math.inf, -1, [], {}, None, True, "x" * 10**5, "\x1b[0m",
    b"x", nested(900), {1: 2}, {"kind": [1]}, {"kind": "\ud800"}, {"kind": "greedy", "\ud800": 1},
    {"kind": "relative", "max_distance": 10**4000}, {"kind": "greedy", "x" * 10**5: 1},
]  # fmt: skip


def keys(section: type[Section], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        yield (*prefix, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from keys(field.annotation, (*prefix, name))


@pytest.mark.parametrize("key", [*keys(Config), ("\ud800",), ("\x1b",), ("x" * 10**5,)], ids=len)
def test_odd_values_are_refused_in_short_lines(key: tuple[str, ...]) -> None:
    """Whatever a file or a model's header has in place of a value: a ConfigError, or it fits."""
    refused = 0
    for value in ODD:
        values: dict[str, Any] = {
            "data": {"train": "a", "dev": "b"},
            "training": {"output_dir": "c"},
        }
        section = values
        for name in key[:-1]:
            section = section.setdefault(name, {})
        section[key[-1]] = value
        try:
            parse_config(values)
        except ConfigError as error:
            refused += 1
            for line in str(error).split("\n"):
                assert line.isprintable()
                assert len(line) < 500
    assert refused > len(ODD) / 2


IDLE = {
    "augmentation.noise_snr_db=[0, 5]": "'augmentation.noise_snr_db': (0.0, 5.0) has no effect "
    "while augmentation.noise is None; set it to a manifest of noise, or leave noise_snr_db at "
    "its default (10.0, 20.0)",
    "augmentation.noise=n.jsonl augmentation.noise_probability=0": "'augmentation.noise': "
    "'n.jsonl' has no effect while augmentation.noise_probability is 0",
    "text.vocab_size=99": "while text.tokenizer is 'characters'; set it to unigram or bpe",
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A configuration that names nothing but its paths."""
    path = tmp_path / "plain.yaml"
    path.write_text("{data: {train: a, dev: b}, training: {output_dir: c}}")
    return path


@pytest.mark.parametrize("override", IDLE)
def test_an_option_without_effect_is_refused(override: str, plain: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(plain, re.split(r" (?=\w+\.)", override))
    assert IDLE[override] in str(error.value)
    assert str(error.value).startswith(f"'{override.partition('=')[0]}'")


@pytest.mark.parametrize(
    ("off", "option"),
    [
        ("augmentation.spec_probability=0", "augmentation.spec_time_masks=3"),
        ("training.intermediate_layers=[]", "training.intermediate_weight=0.5"),
        ("context.full_share=1", "context.left_contexts=[32]"),
        ("context.full_share=1", "context.right_contexts=[0, 4]"),
        ("training.views=full_and_chunks", "context.full_share=0.3"),
    ],
)
def test_a_switch_that_is_off_makes_its_options_idle(off: str, option: str, plain: Path) -> None:
    """On the command line it may turn off what the file sets, but nothing else there."""

    def with_settings(*settings: str) -> Path:
        values = parse_yaml(plain.read_text())
        for setting in settings:
            key, _, value = setting.partition("=")
            section, _, name = key.partition(".")
            values.setdefault(section, {})[name] = parse_yaml(value)
        (plain.parent / "c.yaml").write_text(json.dumps(values))
        return plain.parent / "c.yaml"

    load_config(with_settings(off))
    load_config(with_settings(option), [off])
    for set_there, overrides in (([], [off, option]), ([off, option], []), ([off], [option])):
        with pytest.raises(ConfigError, match="has no effect while"):
            load_config(with_settings(*set_there), overrides)


def test_every_need_names_a_setting(plain: Path) -> None:
    config = load_config(plain)
    fields = [field for _, part in config for field in type(part).model_fields.values()]
    found = [each for field in fields for each in field.metadata if isinstance(each, Needs)]
    assert {type(each.is_on(config)) for each in found} == {bool}
    assert {each.wanted for each in found} >= {"above 0", "unigram or bpe", "below 1", "a model"}


def test_a_model_file_of_an_older_version_still_loads() -> None:
    """What does not concern its network or its decoding is a record of how it was trained."""
    values = load_config(CONF).model_dump(mode="json")
    values["training"]["intermediate_layers"] = [99]
    assert parse_record(values).training.intermediate_layers == [99]
    with pytest.raises(ConfigError, match="must lie below"):
        parse_config(values)
    former = values | {"training": values["training"] | {
        "parallel": "ddp", "average_of": "best", "trackers": ["trackio"],
    }, "text": {"unicode_form": "NFKC"}}  # fmt: skip
    assert parse_record(former) == parse_record(values)
    with pytest.raises(ConfigError, match=r"unknown key 'training\.parallel'"):
        parse_config(former)
    head = {"kind": "transducer", "joint_dim": 8}
    values["model"]["head"] = head
    former["model"] = values["model"] | {"head": head | {"prune_range": 5, "delay_penalty": 0.0}}
    assert parse_record(former) == parse_record(values)
    with pytest.raises(ConfigError, match="unknown key"):
        parse_record(values | {"extra": nested(900)})

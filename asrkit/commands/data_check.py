"""Check a corpus before training: asrkit data check train.jsonl dev.jsonl"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from asrkit.cli.parser import Parser
from asrkit.cli.progress import bar
from asrkit.errors import UserError

if TYPE_CHECKING:
    from asrkit.config.schema import Config
    from asrkit.data.checks import Facts, Finding
    from asrkit.data.text_encoder import TextEncoder


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit data check", __doc__,
        "asrkit data check train.jsonl dev.jsonl --config mine.yaml\n"
        "  asrkit data check train.jsonl --format list --write clean.jsonl\n\n"
        "exit status: 0 no errors, 1 errors, 2 nothing could be checked",
    )  # fmt: skip
    arguments.add_argument(
        "manifests", nargs="+", help="manifests or folders of shards, the training set first"
    )
    arguments.add_argument(
        "--config",
        help="judge by this configuration, with the tokenizer of the first manifest's texts "
        "or of training.start_from (default: the configuration's defaults, characters)",
    )
    arguments.add_argument(
        "--format", choices=["text", "list"], default="text",
        help="text: kinds of findings; list: every finding, one a line (default text)",
    )  # fmt: skip
    arguments.add_argument("--no-audio", action="store_true", help="read headers only: seconds")
    arguments.add_argument(
        "--write", metavar="CLEAN", help="write the manifest's utterances without errors here"
    )
    return arguments.run(check, argv)


def check(options: argparse.Namespace) -> int:
    from asrkit.data.checks import Rules, examine
    from asrkit.data.checks.clean import rewrite
    from asrkit.training.warm_start import load_training

    refuse_twice(options.manifests)
    if options.write and (len(options.manifests) > 1 or Path(options.manifests[0]).is_dir()):
        raise UserError("--write cleans a single manifest: check each one in its own run")
    config = load_training(options.config, []) if options.config else default_config()
    findings: list[Finding] = []
    facts = [each for path in options.manifests for each in read_facts(path, options, findings)]
    first = (each.text for each in facts if each.manifest == options.manifests[0])
    encode = encoder_of(config, first)
    limits = config.data.min_seconds, config.data.max_seconds
    findings += examine(facts, Rules(encode, *limits))
    show(facts, findings, options)
    errors = [f for f in findings if f.check.severity == "error"]
    if options.write:
        bad = {f.line for f in errors}
        kept, all_ = rewrite(
            options.manifests[0], options.write,
            lambda number, line: None if number in bad else json.loads(line),
        )  # fmt: skip
        print(f"{options.write}: {kept} of {all_} utterances", file=sys.stderr)
    return 1 if errors else 0


def refuse_twice(manifests: Sequence[str]) -> None:
    """Raise UserError if two of the manifests are the same file."""
    if len({*map(os.path.realpath, manifests)}) < len(manifests):
        raise UserError("a manifest is named twice: dev must have other recordings than train")


def default_config() -> Config:
    from asrkit.config.schema import parse_config

    return parse_config({"data": {"train": "", "dev": ""}, "training": {"output_dir": ""}})


def encoder_of(config: Config, texts: Iterable[str]) -> TextEncoder:
    """Return the encoder of a training on the texts."""
    from asrkit.build import build_normalizer
    from asrkit.text import is_visible
    from asrkit.training.dataset import text_encoder
    from asrkit.training.labels import tokenizer_of

    spelled = map(build_normalizer(config.text), texts)
    return text_encoder(config, tokenizer_of(config, [*filter(is_visible, spelled)]))


def read_facts(path: str, options: argparse.Namespace, findings: list[Finding]) -> list[Facts]:
    """Read the facts of a manifest with a progress bar; append bad lines to `findings`."""
    from asrkit.data.checks.measure import inspect_all, read_entries

    entries = read_entries(path, findings)
    facts = inspect_all(entries, decode=not options.no_audio)
    return list(bar(facts, path, "file", len(entries)))


def show(facts: list[Facts], findings: list[Finding], options: argparse.Namespace) -> None:
    from asrkit.data.checks.report import advice, listed, summary, table, verdict

    if findings:
        print("\n".join(map(listed, findings)) if options.format == "list" else table(findings))
        print("\n" + advice(findings), end="\n\n")
    for path in options.manifests:
        print(summary(path, [each for each in facts if each.manifest == path]))
    print(verdict(findings))
    if not options.config:
        print("judged by the defaults, text as characters: --config to judge by yours")

"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser, complain
from asrkit.cli.table import markdown
from asrkit.cli.terms import add_terms, changed_terms
from asrkit.errors import UserError, shown
from asrkit.hub import CARD, PREFIX, Address, address_of
from asrkit.hub import MODEL as MODEL_NAME
from asrkit.hub.access import upload
from asrkit.terms import Terms, inherited, licence_of, spelled

if TYPE_CHECKING:
    from asrkit.model_file import ModelFile


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit push", __doc__,
        "asrkit push exp/mine/model.safetensors me/mine --licence CC-BY-4.0 --dry-run",
    )  # fmt: skip
    arguments.add_argument("model", help=MODEL)
    arguments.add_argument(
        "repository", metavar="owner/name",
        help="repository, made if missing; owner/name@branch: a branch, also made if missing",
    )  # fmt: skip
    add_terms(arguments, "that of the model file")
    arguments.add_argument("--private", action="store_true", help="make a private repository")
    arguments.add_argument("--message", help="commit message")
    arguments.add_argument(
        "--overwrite-card", action="store_true", help="replace an existing README.md"
    )
    arguments.add_argument(
        "--dry-run", action="store_true", help="print the card, and upload nothing"
    )
    return arguments.run(push, argv)


TASK = "automatic-speech-recognition"
LICENCES = {  # licences that the hub has names for
    "apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-4.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0",
    "gpl-3.0", "lgpl-3.0", "mit", "mpl-2.0", "openrail", "unlicense",
}  # fmt: skip
CHUNK = re.compile(r"full|\d{1,7}(?:\+\d{1,7})? ms")
USE = """```python
import asrkit

recognizer = asrkit.load("{address}")  # pip install 'asrkit-streaming[hub]'
print(recognizer.transcribe("a.wav"))
```
"""
NEW = """# {name}

A streaming {layer} with {head} for asrkit: it recognises speech while it is spoken, and its text
is that of offline recognition at the same chunk size.

{use}
## Network

{network}

## Training

{training}
"""


def push(options: argparse.Namespace) -> int:
    from asrkit.commands.info import card_beside
    from asrkit.model_file import load_model, model_path

    address = address_of(PREFIX + options.repository.removeprefix(PREFIX))
    path = model_path(options.model)
    file = load_model(path)
    file.require_trained()
    file = file._replace(terms=pushed_terms(options, file))
    own = card_beside(path)
    card = card_of(file, address, own)
    report_card(card, file.terms)
    name, size = address.file or MODEL_NAME, f"{path.stat().st_size / 1e6:.1f} MB"
    if options.dry_run:
        print(card)
        print(f"{address} would get {name}, {size}, and this {CARD} unless it has one")
        return 0
    message = options.message or f"Upload {name} with asrkit"
    commit, has_card = upload(path, card, address, message, options.private, options.overwrite_card)
    wrote = f" and {CARD}" if has_card else f"; its {CARD} stays (--overwrite-card)"
    print(f"{address._replace(revision=commit)}: {name}, {size}{wrote}")
    return 0


def pushed_terms(options: argparse.Namespace, file: ModelFile) -> Terms:
    """Return the terms for the repository; report a licence that is not the model's own."""
    from asrkit.model_file import read_terms_of
    from asrkit.pretrained import ready_models

    terms = changed_terms("asrkit push", options, file.terms)
    start = file.config.training.start_from
    if start is not None and start not in ready_models() and not Path(start).is_file():
        complain(  # a model file opens no URL, and paths may be those of another machine
            "asrkit push",
            f"the licence of {shown(start)}, from which the training started, is not compared: it "
            "is not a file here",
        )  # fmt: skip
    elif start is not None:
        terms, notes = inherited(terms, {start: read_terms_of(start)}, "--licence")
        for note in notes:
            complain("asrkit push", note)
    if terms.licence is None:
        raise UserError(
            f"{shown(options.model)} does not state its licence: add --licence, such as --licence "
            "CC-BY-4.0"
        )
    return terms


def report_card(card: str, terms: Terms) -> None:
    """Report a model's own card whose properties state another licence, or none."""
    stated = stated_licence(card)
    if stated is None or spelled(stated) != spelled(str(terms.licence)):
        found = "no licence" if stated is None else f"the licence {stated}"
        complain("asrkit push", f"the model's card states {found}, not {terms.licence}")


def card_of(file: ModelFile, address: Address, own: str | None) -> str:
    """Return the README.md for a model's repository.

    The text of the model's own card is kept; without properties it gets some, and an example.
    """
    import yaml

    from asrkit.commands.info import described

    if own is not None and own.startswith("---\n"):
        return own
    name, model = address.repository.partition("/")[2], file.config.model
    layer, kind = model.layer, model.head.kind
    licence = str(file.terms.licence)
    known = spelled(licence) in LICENCES
    properties: dict[str, Any] = {"license": spelled(licence) if known else "other"}
    if not known:
        properties["license_name"] = licence
    if file.terms.languages:
        properties["language"] = [*file.terms.languages]
    properties |= {
        "library_name": "asrkit",
        "pipeline_tag": TASK,
        "tags": ["asrkit", "streaming", layer, kind],
    }
    if results := evaluated(file):
        properties["model-index"] = [{"name": name, "results": results}]
    head = yaml.safe_dump(properties, sort_keys=False, allow_unicode=True)
    use = USE.format(address=address)
    if own is not None:
        text = f"{own.rstrip()}\n\n## Use\n\n{use}"
    else:
        network = "\n".join(f"- {key}: {value}" for key, value in described(file).items())
        head_name = "CTC" if kind == "ctc" else f"a {kind}"
        text = NEW.format(
            name=name,
            layer=layer.capitalize(),
            head=head_name,
            use=use,
            network=network,
            training=trained(file),
        )
    return f"---\n{head}---\n\n{text}"


def stated_licence(card: str) -> str | None:
    """Return the licence in a card's properties, or None."""
    from asrkit.config import ConfigError
    from asrkit.config.read_yaml import parse_yaml

    _, _, rest = card.partition("---\n")
    try:
        found = parse_yaml(rest.partition("\n---")[0])
    except ConfigError:
        return None
    if not isinstance(found, dict):
        return None
    own = licence_of(found)
    return None if own is None else str(own)


def numbers(found: object) -> dict[str, float]:
    """Return scores by chunk. A model file's header is not checked, so invalid ones are dropped."""
    items = found.items() if isinstance(found, Mapping) else ()
    return {
        name: float(value) for name, value in items
        if CHUNK.fullmatch(name) and type(value) in (int, float) and 0 <= value < 1e6
    }  # fmt: skip


def names_of_rates(file: ModelFile) -> list[str]:
    """Return the names of the error rates on the training's dev set, that by units first."""
    from asrkit.evaluation.wer import UNITS

    names = [name.lower() for name in UNITS]
    return [name for name in names if f"dev_{name}" in file.training] or names[:1]


def evaluated(file: ModelFile) -> list[dict[str, Any]]:
    """Return error rates for the hub's model-index: one result, of the training's dev set."""
    unit = names_of_rates(file)[0]
    kind = {"mer": "mixed_error_rate"}.get(unit, unit)  # the hub's "mer" is the match error rate
    metrics = [
        {"type": kind, "name": f"{name}{unit.upper()}, chunks: {chunk}", "value": rate}
        for name, key in (("", f"dev_{unit}"), ("normalised ", f"dev_normalized_{unit}"))
        for chunk, rate in numbers(file.training.get(key)).items()
    ]
    data = file.config.data.recipe or "custom"
    dataset = {"type": data, "name": f"{data}, dev set of its training"}
    task = {"type": TASK, "name": "Automatic Speech Recognition"}
    return [{"task": task, "dataset": dataset, "metrics": metrics}] if metrics else []


def trained(file: ModelFile) -> str:
    """Describe the training and the scores in the model file."""
    from asrkit.model_file import TrainingRecord

    record = TrainingRecord.model_validate(file.training)
    hours, seconds = record.audio_hours_per_epoch, record.wall_seconds
    known = {
        "epochs": record.epochs,
        "average of epochs": ", ".join(map(str, record.averaged_epochs)) or None,
        "steps": record.steps,
        "audio in an epoch": None if hours is None else f"{hours:.2f} hours",
        "time": None if seconds is None else f"{seconds / 60:.0f} minutes",
    }
    lines = [f"- {key}: {value}" for key, value in known.items() if value is not None]
    first, *others = (numbers(file.training.get(f"dev_{name}")) for name in names_of_rates(file))
    delays = file.training.get("dev_delay_ms")
    medians = numbers({
        chunk: delay.get("median") for chunk, delay in delays.items() if isinstance(delay, Mapping)
    } if isinstance(delays, Mapping) else None)  # fmt: skip
    if first:
        lines += [
            "",
            "Error rates in % on its dev set, greedy, and median delays of words in ms:",
            "",
        ]
        rows = [
            (chunk, rate, *(each.get(chunk, "–") for each in others), medians.get(chunk, "–"))
            for chunk, rate in first.items()
        ]
        lines.append(markdown(["chunk", *map(str.upper, names_of_rates(file)), "delay"], rows))
    return "\n".join(lines) or "The model file does not tell."

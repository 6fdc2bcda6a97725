"""Upload a model file and its card to the Hugging Face hub: asrkit push MODEL owner/name"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from asrkit.cli.options import MODEL, add_terms, terms_of
from asrkit.cli.parser import Parser, complain
from asrkit.cli.table import markdown
from asrkit.errors import UserError, shown
from asrkit.extras import need
from asrkit.hub import CARD, PREFIX, Address, address_of
from asrkit.hub import MODEL as MODEL_NAME
from asrkit.hub.access import upload
from asrkit.terms import licence_of, spelled

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

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
    arguments.add_argument(
        "--overwrite-card", action="store_true", help="replace an existing README.md"
    )
    arguments.add_argument(
        "--dry-run", action="store_true", help="print the card, and upload nothing"
    )
    return arguments.run(push, argv)


TASK, TASK_NAME = "automatic-speech-recognition", "Automatic Speech Recognition"
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
    from asrkit.model_file import load_model, model_path

    need("huggingface_hub")
    address = address_of(PREFIX + options.repository.removeprefix(PREFIX))
    path = model_path(options.model)
    file = load_model(path)
    file.require_trained()
    terms = terms_of(options).or_else(file.terms)
    if terms.licence is None:
        raise UserError(
            f"{shown(options.model)} does not state its licence: add --licence, such as --licence "
            "CC-BY-4.0"
        )
    own = path.with_suffix(".md")
    text = own.read_text(encoding="utf-8", errors="replace") if own.is_file() else None
    card = card_of(file._replace(terms=terms), address, text)
    name, size = address.file or MODEL_NAME, f"{path.stat().st_size / 1e6:.1f} MB"
    if options.dry_run:
        print(card)
        print(f"{address} would get {name}, {size}, and this {CARD} unless it has one")
        return 0
    commit, has_card = upload(path, card, address, options.private, options.overwrite_card)
    wrote = f" and {CARD}" if has_card else f"; its {CARD} stays (--overwrite-card)"
    print(f"{address._replace(revision=commit)}: {name}, {size}{wrote}")
    return 0


def card_of(file: ModelFile, address: Address, own: str | None) -> str:
    """Return the README.md for a model's repository.

    The text of the model's own card is kept; without properties it gets some, and an example.
    """
    from huggingface_hub import ModelCardData

    from asrkit.commands.info import described

    licence = str(file.terms.licence)
    if own is not None and own.startswith("---\n"):
        stated = stated_licence(own)
        if stated is None or spelled(stated) != spelled(licence):
            found = "no licence" if stated is None else f"the licence {stated}"
            complain("asrkit push", f"the model's card states {found}, not {licence}")
        return own
    name, model = address.repository.partition("/")[2], file.config.model
    known, results = spelled(licence) in LICENCES, evaluated(file)
    properties = ModelCardData(
        license=spelled(licence) if known else "other",
        license_name=None if known else licence,
        language=[*file.terms.languages] or None,
        library_name="asrkit",
        pipeline_tag=TASK,
        tags=["asrkit", "streaming", model.layer, model.head.kind],
        model_name=name if results else None,
        eval_results=results or None,
    )
    use = USE.format(address=address)
    text = f"{own.rstrip()}\n\n## Use\n\n{use}" if own else NEW.format(
        name=name, layer=model.layer.capitalize(),
        head="CTC" if model.head.kind == "ctc" else f"a {model.head.kind}", use=use,
        network="\n".join(f"- {key}: {value}" for key, value in described(file).items()),
        training=trained(file),
    )  # fmt: skip
    return f"---\n{properties.to_yaml()}\n---\n\n{text}"


def stated_licence(card: str) -> str | None:
    """Return the licence in a card's properties, or None."""
    import yaml
    from huggingface_hub import ModelCard

    try:
        stated = licence_of(ModelCard(card).data.to_dict())
    except (ValueError, yaml.YAMLError):
        return None
    return None if stated is None else str(stated)


def numbers(scores: object) -> dict[str, float]:
    """Return scores by chunk. A model file's header is not checked, so invalid ones are dropped."""
    items = scores.items() if isinstance(scores, Mapping) else ()
    return {
        name: float(value) for name, value in items
        if CHUNK.fullmatch(name) and type(value) in (int, float) and 0 <= value < 1e6
    }  # fmt: skip


def rates(file: ModelFile) -> tuple[str, dict[str, float]]:
    """Return the name of the error rate on the training's dev set, and the rates by chunk."""
    from asrkit.evaluation.wer import UNITS

    names = [name.lower() for name in UNITS if f"dev_{name.lower()}" in file.training]
    return (names[0], numbers(file.training[f"dev_{names[0]}"])) if names else ("wer", {})


def evaluated(file: ModelFile) -> list[EvalResult]:
    """Return error rates on the training's dev set, for the hub."""
    from huggingface_hub import EvalResult

    (unit, found), data = rates(file), file.config.data.recipe or "custom"
    kind = {"mer": "mixed_error_rate"}.get(unit, unit)  # the hub's "mer" is the match error rate
    return [
        EvalResult(
            TASK, data, f"{data}, dev set of its training", kind, rate, task_name=TASK_NAME,
            metric_name=f"{unit.upper()}, chunks: {chunk}",
        )
        for chunk, rate in found.items()
    ]  # fmt: skip


def trained(file: ModelFile) -> str:
    """Describe the training and the scores in the model file."""
    from asrkit.model_file import TrainingRecord

    record, lines = TrainingRecord.model_validate(file.training), []
    if record.audio_hours_per_epoch is not None and record.epochs is not None:
        lines.append(f"{record.epochs} epochs of {record.audio_hours_per_epoch:.2f} hours.\n")
    unit, found = rates(file)
    if found:
        lines.append(f"{unit.upper()} in % on its dev set, greedy:\n")
        lines.append(markdown(["chunk", unit.upper()], found.items()))
    return "\n".join(lines) or "The model file does not tell."

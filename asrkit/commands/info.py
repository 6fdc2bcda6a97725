"""Print the contents of a model file: asrkit info MODEL"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from asrkit.cli.options import MODEL
from asrkit.cli.parser import Parser
from asrkit.errors import printable, shown

if TYPE_CHECKING:
    from asrkit.model_contents import RunnableModel


def main(argv: list[str] | None = None) -> int:
    arguments = Parser("asrkit info", __doc__, "asrkit info exp/conformer/model.safetensors")
    arguments.add_argument("model", help=MODEL)
    return arguments.run(info, argv)


LONGEST_PART = 100_000  # characters shown of the training and the configuration, each


def info(options: argparse.Namespace) -> int:
    from asrkit.model_header import FORMAT_VERSION
    from asrkit.runtime.load import load_runnable

    file = load_runnable(options.model)
    path = file.export or file.path or Path(options.model)
    size = path.stat().st_size / 1e6
    print(f"file        {shown(path, 1000)}, {size:.1f} MB, format version {FORMAT_VERSION}")
    terms = {"licence": file.terms.licence or "", "languages": ", ".join(file.terms.languages)}
    for name, value in (described(file) | terms).items():
        print(f"{name:<12}{value or 'not stated in the file'}")
    parts = {"training": file.training, "configuration": file.values["config"]}
    for title, values in parts.items():
        print(f"\n{title}\n{indented(values)}")
    return 0


def described(file: RunnableModel) -> dict[str, str]:
    """Describe the network of a model file: names of properties, and their values as text."""
    from asrkit.text import events

    context, frame_ms = file.config.context, file.rate.frame_ms
    chunks = ["full"] if context.full_share > 0 else []
    chunks += [f"{chunk * frame_ms} ms" for chunk in context.chunk_sizes]
    lefts = [f"{left * frame_ms} ms" for left in context.left_contexts]
    each = ", ".join(f"{right * frame_ms} ms" for right in context.right_contexts)
    rights = f"; right contexts of {each}" if any(context.right_contexts) else ""
    chunk, left, after = (frames * frame_ms for frames in file.live)
    right = f" and {after} ms after it" if after else ""
    silent = events(file.tokenizer)
    return {
        "parameters": f"{file.num_parameters / 1e6:.2f} M",
        "head": file.config.model.head.kind,
        "vocabulary": f"{file.tokenizer.vocab_size} with the blank, {file.config.text.tokenizer}"
        + (f"; labels without text: {', '.join(silent[:5])}" if silent else "")
        + ", …" * (len(silent) > 5),
        "trained at": f"chunks of {', '.join(chunks)}; left contexts of {', '.join(lefts)}{rights}",
        "decodes at": "full" if file.live.full else f"{chunk} ms with {left} ms before it{right}",
    }


def indented(values: dict) -> str:
    """Return values of a file for printing: as indented YAML, cut, with escapes."""
    import yaml

    try:
        text = json.dumps(values, ensure_ascii=False)
        if len(text) <= LONGEST_PART:  # formatting more as YAML would take half a minute
            text = yaml.safe_dump(
                values, sort_keys=False, allow_unicode=True, default_flow_style=None
            )
    except RecursionError:
        text = "nested too deeply to be shown"
    lines = text[:LONGEST_PART].rstrip().splitlines() + ["…"] * (len(text) > LONGEST_PART)
    return indent("\n".join(map(printable, lines)), "  ")

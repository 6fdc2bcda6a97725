"""Export a model, to run it without torch: asrkit export --model MODEL"""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from asrkit.atomic_write import replacing
from asrkit.cli.options import add_context, add_model_file, refuse
from asrkit.cli.parser import Parser, Target
from asrkit.cli.progress import bar
from asrkit.errors import UserError, shown
from asrkit.extras import pip_install

if TYPE_CHECKING:
    import numpy as np

    from asrkit.backends import Backend
    from asrkit.backends.export_metadata import Exported, What
    from asrkit.backends.transducer import TransducerParts
    from asrkit.data.recording import Recording
    from asrkit.evaluation import Score
    from asrkit.export.sherpa_layouts import Layout
    from asrkit.model_file import ModelFile


EXPORTS = ("torchscript", "onnx", "onnx-int8", "sherpa-onnx", "sherpa-onnx-int8")


def main(argv: list[str] | None = None) -> int:
    arguments = Parser(
        "asrkit export", __doc__,
        "asrkit export --model MODEL\n"
        "  asrkit export --model MODEL --chunk-ms full\n"
        "  asrkit export --model MODEL --format onnx-int8 --manifest dev.jsonl\n"
        "  asrkit export --model MODEL --what model --output m.onnx\n"
        "  asrkit export --model MODEL --format torchscript --output encoder.ts\n"
        "  asrkit export --model MODEL --format sherpa-onnx --output FOLDER",
    )  # fmt: skip
    add_model_file(arguments)
    arguments.add_argument(
        "--output",
        type=Target,
        help="the file to write, for sherpa-onnx the folder (default: beside the model, where "
        "decode looks for it)",
    )
    arguments.add_argument(
        "--format", choices=EXPORTS, default="onnx", help="form of the export (default onnx)"
    )
    arguments.add_argument(
        "--what", metavar="WHAT",
        help="encoder: log mels to encoder frames; ctc: log mels to log-probabilities; transducer: "
        "log mels to encoder frames, with predictor and joiner in files of their own; model: "
        "samples to log-probabilities, or to a transducer's three parts (default: encoder for "
        "torchscript, else what the head of the model has)",
    )  # fmt: skip
    add_context(arguments)
    arguments.add_argument("--audio", help="recording to replay (default: one of the dev set)")
    arguments.add_argument(
        "--manifest", help="recordings with texts on which int8 is tried (default: the dev set)"
    )
    return arguments.run(export, argv)


REPLAYED = 3  # recordings that sherpa-onnx also recognises
MOST_LOST = 0.3  # percentage points of the error rate that int8 may cost


def export(options: argparse.Namespace) -> int:
    from asrkit import audio
    from asrkit.backends.check import largest_of, run_parts
    from asrkit.backends.onnx import read as read_onnx
    from asrkit.backends.pytorch import EagerParts
    from asrkit.export import onnx, torchscript
    from asrkit.export.sherpa_folder import silence_events
    from asrkit.export.sherpa_layouts import layout_of
    from asrkit.export.verification import eager_step, largest_difference, tolerance
    from asrkit.model import TransducerHead
    from asrkit.model_file import load_model

    file = load_model(options.model)
    exported = exported_of(options, file)
    if exported.what != "encoder":
        file.runnable.require_trained()
    layout = None
    if options.format.startswith("sherpa-onnx"):
        layout = layout_of(file)
        layout.check(file, exported)
        silence_events(file)  # sherpa-onnx would print labels that are not text
    output = Path(options.output or default_output(options, file, exported))
    recordings = replayed(options.audio, file)
    samples, source = recordings[0][0][None], recordings[0][1]
    trial = with_texts(options, file)
    writer = torchscript if options.format == "torchscript" else onnx
    head, is_encoder = file.model.head, exported.what == "encoder"
    in_parts = isinstance(head, TransducerHead) and not is_encoder
    output, *parts = paths_of(output, layout, in_parts)
    with ExitStack() as stack:  # a failed export must not replace a file
        temporary, *others = (stack.enter_context(replacing(each)) for each in (output, *parts))
        writer.write(eager_step(file, exported), temporary, exported, file)
        module: Any = (torchscript.read if writer is torchscript else read_onnx)(temporary)[0]
        difference = largest_difference(file, exported, module, samples)
        if isinstance(head, TransducerHead) and not is_encoder:
            both = with_parts(file, exported, others), EagerParts(head)
            outputs = (run_parts(parts, file.model.encoder.dim) for parts in both)
            difference = max(difference, largest_of(zip(*outputs, strict=True)))
        allowed = tolerance(file, exported, samples, difference)
        if not difference <= allowed:
            raise UserError(
                f"{shown(output)} not written: it differs from eager by {difference:.1e}, more "
                f"than {allowed:.0e}, over {source}; --audio replays another recording, "
                f"--what {file.config.model.head.kind} leaves the features to the program"
            )
        lost = quantized(file, exported, temporary, others, trial) if trial else ""
        if layout is not None:
            paths = [temporary, *others]
            lost += wired(layout, file, exported, paths, output.parent, recordings)
        data = with_data(temporary, output)
    size = sum(each.stat().st_size for each in (output, *data))
    print(
        f"{', '.join(map(str, (output, *data, *parts)))}: {exported}, {size / 1e6:.1f} MB\n"
        f"replayed {samples.shape[1] / audio.SAMPLE_RATE:.1f} s of {source}: "
        f"largest difference from eager {difference:.1e} (at most {allowed:.0e}){lost}"
    )
    return 0


def paths_of(output: Path, layout: Layout | None, in_parts: bool) -> list[Path]:
    """Return the paths of an export's files, the network's first."""
    from asrkit.backends.export_metadata import PARTS, part_path

    if layout is not None:
        return [output / name for name in layout.files]
    return [output, *(part_path(output, part) for part in PARTS if in_parts)]


def with_data(temporary: Path, output: Path) -> list[Path]:
    """Move the weights that an ONNX file has outside, if there are any, to their final path.

    A crash between the two moves leaves an export that differs from eager, which is refused.
    """
    from asrkit.backends.export_metadata import data_path

    written, data = data_path(temporary), data_path(output)
    if not written.is_file():
        return []
    with replacing(data) as place:
        os.replace(written, place)
    return [data]


def with_parts(file: ModelFile, exported: Exported, paths: list[Path]) -> TransducerParts:
    """Write predictor and joiner of a transducer as ONNX; return the files' parts."""
    from asrkit.backends.export_metadata import PARTS
    from asrkit.backends.onnx import read_parts
    from asrkit.export import onnx
    from asrkit.export.modules import part_steps
    from asrkit.model import TransducerHead

    head = file.model.head
    assert isinstance(head, TransducerHead)
    for part, module, path in zip(PARTS, part_steps(head), paths, strict=True):
        onnx.write(module, path, exported._replace(what=part), file)
    parts = read_parts(paths, file.runnable, 1)
    assert parts is not None
    return parts


def wired(
    layout: Layout,
    file: ModelFile,
    exported: Exported,
    paths: list[Path],
    folder: Path,
    recordings: list[tuple[np.ndarray, str]],
) -> str:
    """Convert an export to a model for sherpa-onnx, in its place, and write its other files to the
    folder; return a line about texts of sherpa-onnx, if it is installed."""
    import onnx as onnx_package

    from asrkit.backends.onnx import of_file
    from asrkit.build import build_search
    from asrkit.config.running import parse_search
    from asrkit.export import sherpa_folder
    from asrkit.export.sherpa_graphs import tail_samples
    from asrkit.runtime import Recognizer

    backend = of_file(paths[0], file.runnable, exported.context, 1, parts=paths[1:])
    for model, path in zip(layout.wired(paths, file, exported), paths, strict=True):
        onnx_package.save(model, path)
    name = file.path.stem if file.path else folder.name
    with replacing(folder / "tokens.txt") as tokens, replacing(folder / "README.md") as readme:
        tokens.write_text(layout.tokens(file), encoding="utf-8")
        readme.write_text(layout.readme(name, file, exported), encoding="utf-8")
        if find_spec("sherpa_onnx") is None:
            return f"\nnot tried with sherpa-onnx: {pip_install('sherpa_onnx')}"
        theirs = layout.wheel(paths, tokens, file, exported)
        search = build_search(parse_search("greedy"), file.config.model.head.kind)
        ours = Recognizer(backend, file.tokenizer, search, frontend=layout.frontend(file))
        tail = tail_samples(file, exported)
        sherpa_folder.replay(theirs, ours, [samples for samples, _ in recordings], tail)
    return f"\nsherpa-onnx: the texts of {len(recordings)} recordings are asrkit's"


def replayed(path: str | None, file: ModelFile) -> list[tuple[np.ndarray, str]]:
    """Return samples (n,) with their sources: a recording, or some of the dev set, or noise."""
    import numpy as np

    from asrkit import audio
    from asrkit.data.manifest import ManifestError, read_manifest

    paths = [] if path is None else [path]
    if path is None:
        with suppress(ManifestError):
            known = (u.audio for u in read_manifest(Path(file.config.data.dev)))
            paths = [*islice((each for each in known if Path(each).is_file()), REPLAYED)]
    if not paths:
        noise = np.random.default_rng(0).standard_normal(5 * audio.SAMPLE_RATE) * 0.1
        return [(noise.astype(np.float32), "noise (no --audio, no dev set)")]
    found = [(audio.load(each), each) for each in paths]
    for samples, name in found:
        if len(samples) < audio.WINDOW:
            raise UserError(f"{name} is shorter than one frame (25 ms): nothing to replay")
    return found


def default_output(options: argparse.Namespace, file: ModelFile, exported: Exported) -> Path:
    """Return the default path, beside the model file."""
    from asrkit.backends.export_metadata import export_path

    if file.path is None or not Path(options.model).is_file():
        raise UserError(f"{options.model} is not a file's path: name the output with --output")
    return export_path(file.path, exported, options.format)


def exported_of(options: argparse.Namespace, file: ModelFile) -> Exported:
    """Return what to export. Raises UserError for options that do not fit each other or a file."""
    from asrkit.backends.export_metadata import Exported
    from asrkit.cli.recognizer import context_of
    from asrkit.config.bounds import MOST_FRAMES
    from asrkit.export.onnx import MOST_BYTES

    form, readable = options.format, cast("What", file.config.model.head.kind)
    context = context_of(options, file.runnable)
    fitting = {"encoder", readable, "model"}
    if form == "torchscript":
        fitting = {"encoder"}
    elif form.endswith("int8") or context.full:  # int8 is tested by its texts
        fitting = {readable}
    what = options.what or ("encoder" if form == "torchscript" else readable)
    if what not in fitting:
        raise UserError(
            f"--what must be {' or '.join(sorted(fitting))} for this model as {form}"
            f"{' in full context' * context.full}, got {shown(what)}"
        )
    if context.full and form == "torchscript":
        raise UserError("full context needs --format onnx or onnx-int8, got torchscript")
    exported = Exported(what, context, file.model.encoder.rate.frame_ms)
    if not context.full and max(context) > MOST_FRAMES:
        longest = MOST_FRAMES * exported.frame_ms
        raise UserError(f"--chunk-ms, --left-ms and --right-ms must be at most {longest}")
    size = sum(each.nbytes for each in file.model.parameters())
    held = size // 4 if form.endswith("int8") else size
    if held > MOST_BYTES and form not in ("torchscript", "onnx"):
        raise UserError(
            f"a file of {form} holds at most {MOST_BYTES / 1e9:.1f} GB of weights, this model needs"
            f" {held / 1e9:.1f} GB: use --format onnx, or {form.removesuffix('-int8')}-int8"
        )
    return exported


def with_texts(options: argparse.Namespace, file: ModelFile) -> list[Recording]:
    """Return the recordings with texts on which int8 is tried; an empty list for float32."""
    from asrkit.data.inputs import read_distinct
    from asrkit.data.manifest import ManifestError

    if not options.format.endswith("int8"):
        refuse(options, f"with --format {options.format}, only with int8", "manifest")
        return []
    manifest = options.manifest or file.config.data.dev
    try:
        labelled = [each for each in read_distinct(manifest) if each.text]
    except ManifestError as error:
        raise UserError(f"int8 needs a --manifest for a test: {error}") from None
    if not labelled:
        raise UserError(f"int8 needs a --manifest with texts for a test; {manifest} has none")
    return labelled


def quantized(
    file: ModelFile, exported: Exported, path: Path, parts: list[Path], trial: list[Recording]
) -> str:
    """Convert a float32 file to int8 in its place if it recognises as well; describe the result."""
    from asrkit.backends.backend import of_step
    from asrkit.backends.onnx import of_file, read_parts
    from asrkit.backends.pytorch import eager
    from asrkit.export import int8
    from asrkit.export.verification import eager_step

    module = eager_step(file, exported)
    reference = eager(file.model, exported.context)
    observed = int8.ObservedStep(path, module)
    init_state, run = of_step(observed, reference.spec)
    float32 = reference._replace(kind="onnx", init_state=init_state, step=run)
    before = score(float32._replace(transducer=read_parts(parts, file.runnable, 1)), file, trial)
    if not any(map(any, observed.ranges.values())):
        raise UserError("int8 not written: the manifest's recordings are too short for a frame")
    int8.quantize(path, module, observed.ranges)
    backend = of_file(path, file.runnable, exported.context, 1, "int8", parts)
    after = score(backend, file, trial)
    name, rates = before.words.name, f"float32 {before.words}, int8 {after.words}"
    if before.words.rate is None or after.words.rate is None:
        raise UserError("int8 not written: the texts of the manifest have no words for a test")
    if after.words.rate > before.words.rate + MOST_LOST:
        raise UserError(f"int8 not written: it costs more than {MOST_LOST} % {name}: {rates}")
    return f"\n{name}: {rates} (at most {MOST_LOST} more)"


def score(backend: Backend, file: ModelFile, trial: list[Recording]) -> Score:
    """Score a backend on all readable recordings, singly, because int8 would observe padding."""
    from asrkit.build import build_frontend, build_normalizer, build_search
    from asrkit.evaluation import recognize, scores
    from asrkit.evaluation.testset import utterances
    from asrkit.runtime import Recognizer

    normalize = build_normalizer(file.config.text)
    search = build_search(file.config.search, file.config.model.head.kind)
    recognizer = Recognizer(
        backend, file.tokenizer, search, normalize, frontend=build_frontend(file.config.model)
    )
    shown_bar = bar(trial, backend.kind, "file", len(trial))
    alone = ([utterance] for utterance in utterances(shown_bar, normalize, []))
    outcomes = list(recognize(alone, {backend.kind: recognizer}))
    if not outcomes:
        raise UserError("int8 not written: no recording of the manifest could be read to try it on")
    return scores(outcomes)[backend.kind]

"""Law 4: every backend computes what eager does, over a whole stream, or is refused."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from asrkit import audio
from asrkit.backends import Backend, build_backend
from asrkit.backends import onnx as onnx_files
from asrkit.backends.check import check, probe
from asrkit.backends.export_metadata import Exported, export_path
from asrkit.backends.pytorch import eager
from asrkit.build import build_frontend
from asrkit.errors import UserError
from asrkit.export import int8, onnx
from asrkit.export.__main__ import main as export
from asrkit.export.verification import eager_step, largest_difference
from asrkit.model import Context
from asrkit.model.positions import KINDS
from asrkit.model.positions.sinusoidal import SinusoidalPosition
from asrkit.model_file import ModelFile, load_model
from asrkit.runtime import Recognizer, load, recognizer_of
from tests.conftest import PADDED, PROJECT, speech, timed, write_manifest, write_wav
from tests.laws.test_export import exported_model, file_of

CHUNK, LEFT = 16, 32
CONTEXT = Context(CHUNK, LEFT)
LIVE = ["--chunk-ms", str(40 * CHUNK), "--left-ms", str(40 * LEFT)]
POSITION_ROUNDING = 3e-4  # of numbers up to 10 in float32; eager's own are 3e-5 from float64's
NOISE_ROUNDING = 0.7  # of int8, where weights are noise: no match for seven bits


class Exports(NamedTuple):
    model: Path
    dev: Path  # manifest

    def file(self) -> ModelFile:
        return load_model(self.model)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A model file with its exports to ONNX beside it, as the command writes them."""
    file = file_of(num_layers=1)
    model = exported_model(tmp_path_factory.mktemp("exports"), file, *LIVE)
    wav, text = model.with_name("a.wav"), recognizer_of(file, CONTEXT).transcribe(speech(3.0)).text
    utterance = {"id": "a", "audio": str(wav), "text": text}
    exports = Exports(model, write_manifest(model.with_name("dev.jsonl"), utterance))
    arguments = ["--model", str(model), "--format", "onnx-int8", "--audio", str(wav), *LIVE]
    with pytest.MonkeyPatch.context() as patch:  # weights that are noise do not fit seven bits
        patch.setattr("asrkit.commands.export.MOST_LOST", 1000.0)
        patch.setattr("asrkit.backends.check.MOST_ROUNDING", NOISE_ROUNDING)
        patch.setattr("asrkit.export.onnx.write", lambda _, path, *__: copy(exports, path))
        assert export([*arguments, "--manifest", str(exports.dev)]) == 0
    return exports


@pytest.fixture(autouse=True)
def _weights_are_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asrkit.backends.check.MOST_ROUNDING", NOISE_ROUNDING)


@pytest.fixture
def recording() -> np.ndarray:
    return speech(7.3, seed=3)


def test_streaming_is_what_eager_makes_offline(exports: Exports, recording: np.ndarray) -> None:
    """A recogniser asks nothing but steps of its backend."""
    file = exports.file()
    plain, ours = (recognizer_of(file, CONTEXT, backend=each) for each in ("eager", "onnx"))
    backend, calls = ours.backend, list[int]()
    assert backend.kind == "onnx"

    def step(feats, lengths, state):  # type: ignore[no-untyped-def]
        calls.append(feats.shape[1])
        return backend.step(feats, lengths, state)

    ours = Recognizer(backend._replace(step=step), ours.tokenizer, ours.search)
    wanted = plain.transcribe(recording)
    assert len(wanted.text) > 5
    session = ours.start()
    for packet in np.array_split(recording, [1, 300, 20_000, 20_001, 77_000]):
        session.accept(packet)
    assert timed(session.finish()) == timed(wanted)
    assert sum(calls) == 1 + (len(recording) - audio.WINDOW) // audio.HOP
    assert timed(ours.transcribe(recording)) == timed(wanted)
    parts = [recording, recording[:30_000], recording[:100]]
    batch = ours.transcribe_batch(parts)
    assert [timed(each) for each in batch] == [timed(plain.transcribe(part)) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "what", "context", "num_layers"),
    [*((kind, "ctc", CONTEXT, 1) for kind in KINDS),
     *(("sinusoidal", what, Context(4, 0), 2) for what in ("model", "encoder")),
     *(("relative", what, Context(4, 16, 3), 1) for what in ("model", "ctc"))],
)  # fmt: skip
def test_onnx(kind: str, what: Any, context: Context, num_layers: int, tmp_path: Path) -> None:
    """Of streams at different points, also an hour and a day after they began.

    Absolute positions have to be counted, and the states of two layers must not be exchanged.
    """
    file = file_of(kind, num_layers=num_layers)
    assert onnx_difference(file, Exported(what, context), tmp_path) < POSITION_ROUNDING


def test_control_angles_in_float32_are_noticed_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the comparison of every backend; in a stream's first seconds nothing shows."""
    file, table = file_of("sinusoidal"), SinusoidalPosition.table
    plain = eager(file.model, CONTEXT)
    monkeypatch.setattr(
        SinusoidalPosition, "table", lambda self, like: table(self, like).float().double()
    )
    rounded = eager(file.model, CONTEXT)
    with pytest.raises(UserError, match="differs from eager by"):
        checked(rounded, file, plain)
    monkeypatch.setattr("asrkit.backends.check.aged", lambda state, frame_ms: state)
    checked(rounded, file, plain)


def checked(backend: Backend, file: ModelFile, plain: Backend) -> None:
    """Check the numbers of a backend against those of another one."""
    frontend = build_frontend(file.config.model)
    check(backend, probe(plain, frontend), frontend)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subsampling", "frontend"), [(PADDED, "slaney"), ("conv4_valid", "kaldi"), ("conv8", "kaldi")]
)
def test_onnx_of_other_subsamplings_in_float32_and_int8(
    subsampling: object, frontend: str, tmp_path: Path
) -> None:
    exported, path = Exported("ctc", Context(4, 16)), tmp_path / "step.onnx"
    file = file_of(subsampling=subsampling, num_layers=1, frontend=frontend)
    assert onnx_difference(file, exported, tmp_path) < 1e-4
    observed = int8.ObservedStep(path, eager_step(file, exported))
    samples = speech(4.0)[None]
    assert largest_difference(file, exported, observed, samples) < 1e-4
    int8.quantize(path, eager_step(file, exported), observed.ranges)
    step, _ = onnx_files.read(path)
    assert step.description.precision == "int8"
    assert 1e-4 < largest_difference(file, exported, step, samples) < 10


def onnx_difference(file: ModelFile, exported: Exported, folder: Path) -> float:
    path = folder / "step.onnx"
    onnx.write(eager_step(file, exported), path, exported, file)
    step, read = onnx_files.read(path)
    assert read == exported
    return largest_difference(file, exported, step, speech(4.0)[None])


def test_the_fastest_at_hand(exports: Exports, caplog: pytest.LogCaptureFixture) -> None:
    def chosen(**options: object) -> str:
        return load(exports.model, **options).backend.kind  # type: ignore[arg-type]

    assert chosen(chunk_size=CHUNK, left_context=LEFT) == "onnx"
    assert chosen(chunk_size="full") == "eager"
    assert chosen(chunk_size=4) == "eager"
    assert chosen(chunk_size=CHUNK, left_context=LEFT + 1) == "eager"
    assert not caplog.records
    assert recognizer_of(exports.file(), CONTEXT).backend.kind == "eager"  # unless asked


def test_control_an_export_of_other_weights_is_refused(
    exports: Exports, caplog: pytest.LogCaptureFixture
) -> None:
    file = exports.file()
    with torch.no_grad():
        file.model.head.bias[3] += 1e-3
    with pytest.raises(UserError, match="exported from another model"):
        recognizer_of(file, CONTEXT, backend="onnx")
    assert recognizer_of(file, CONTEXT, backend=None).backend.kind == "eager"
    assert "running eagerly: " in caplog.text


def beside(exports: Exports, kind: str) -> Path:
    return export_path(exports.model, Exported("ctc", CONTEXT), kind)


def changed(source: Path, target: Path, change: Callable[[Any, Any], None]) -> Path:
    """An export whose graph is changed."""
    import onnx as package

    model = package.load(source)
    change(model, package.helper)
    package.save(model, target)
    return target


def swapped(source: Path, target: Path, **description: object) -> Path:
    """An export whose labels 1 and 2 are exchanged; changes of what it says of itself."""

    def change(model: Any, helper: Any) -> None:
        logits = next(n for n in model.graph.node if n.op_type == "LogSoftmax")
        order = helper.make_tensor("order", 7, [12], [0, 2, 1, *range(3, 12)])
        model.graph.initializer.append(order)
        gather = helper.make_node("Gather", [logits.input[0], "order"], ["swapped"], axis=2)
        model.graph.node.insert(list(model.graph.node).index(logits), gather)
        logits.input[0] = "swapped"
        (said,) = (each for each in model.metadata_props if each.key == "asrkit")
        said.value = json.dumps(json.loads(said.value) | description)

    return changed(source, target, change)


def test_an_export_found_beside_the_model_is_what_was_asked_for(
    exports: Exports, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that calls itself int8 is no float32 one, and int8 is chosen by name alone."""
    model = tmp_path / "model.safetensors"
    model.write_bytes(exports.model.read_bytes())
    moved = exports._replace(model=model)
    context = {"chunk_size": CHUNK, "left_context": LEFT}
    for source in ("onnx", "onnx-int8"):
        swapped(beside(exports, source), beside(moved, "onnx"), precision="int8")
        with pytest.raises(UserError, match="has precision 'int8', not float32: export it again"):
            load(model, backend="onnx", **context)  # type: ignore[arg-type]
        assert load(model, **context).backend.kind == "eager"  # type: ignore[arg-type]
        assert "running eagerly: " in caplog.text
    beside(moved, "onnx").unlink()
    beside(moved, "onnx-int8").write_bytes(beside(exports, "onnx-int8").read_bytes())
    assert load(model, **context).backend.kind == "eager"  # type: ignore[arg-type]
    assert load(model, backend="onnx-int8", **context).backend.kind == "onnx-int8"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["onnx", "onnx-int8"])
def test_exchanged_labels_are_noticed(exports: Exports, tmp_path: Path, kind: str) -> None:
    path = swapped(beside(exports, kind), tmp_path / "swapped.onnx")
    with pytest.raises(UserError, match="differs from eager by"):
        recognizer_of(exports.file(), CONTEXT, backend=path)


def test_int8_of_a_trained_model_is_told_from_exchanged_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # the bound that holds for models that learned something
    file = load_model("small-en-alnum")
    plain = eager(file.model, CONTEXT)
    other = load_model("small-en-alnum").model
    with torch.no_grad():
        for module in other.modules():
            if isinstance(module, torch.nn.Linear):
                step = module.weight.abs().amax(dim=1, keepdim=True) / 63
                module.weight.copy_((module.weight / step).round() * step)
    checked(eager(other, CONTEXT)._replace(kind="onnx-int8"), file, plain)
    first, second = (file.tokenizer.encode(word)[0] for word in ("go", "a"))
    for parameter in (other.head.weight, other.head.bias):
        parameter.data[[first, second]] = parameter.data[[second, first]]
    with pytest.raises(UserError, match="of a label's standard deviation, over 50%"):
        checked(eager(other, CONTEXT)._replace(kind="onnx-int8"), file, plain)


@pytest.mark.parametrize(
    ("state", "problem"),
    [(["batch", 1, 4, 1 << 40, 6], "more than"), (["batch", 1, 4, "m", 6], "no fixed shape"),
     (["batch", 1, 4, LEFT + 1, 6], r"not a file that asrkit export wrote|other\.onnx"),
     (None, r"other\.onnx")],
)  # fmt: skip
def test_a_graph_that_does_not_fit_its_description(
    exports: Exports, tmp_path: Path, state: list | None, problem: str
) -> None:
    """A state of another size, or an input less."""

    def change(model: Any, helper: Any) -> None:
        if state is None:
            del model.graph.input[-1]
            return
        (keys,) = (each for each in model.graph.input if each.name == "state_keys")
        keys.CopyFrom(helper.make_tensor_value_info("state_keys", 1, state))
        del model.graph.node[:], model.graph.output[:]
        model.graph.output.append(helper.make_tensor_value_info("out", 1, state))
        model.graph.node.append(helper.make_node("Identity", ["state_keys"], ["out"]))

    path = changed(beside(exports, "onnx"), tmp_path / "other.onnx", change)
    with pytest.raises(UserError, match=problem):
        recognizer_of(exports.file(), CONTEXT, backend=path)


@pytest.mark.parametrize("kind", ["onnx", "onnx-int8"])
def test_a_file_holds_no_notes_of_the_machine_that_wrote_it(exports: Exports, kind: str) -> None:
    """Neither paths nor names of modules; what is not weights takes less than 40 kB."""
    import onnx as package

    data = beside(exports, kind).read_bytes()
    notes = [str(PROJECT), sys.prefix, str(exports.model.parent), "site-packages", ".py", "asrkit."]
    assert not [note for note in notes if note.encode() in data]
    weights = package.load_from_string(data).graph.initializer
    assert len(data) - sum(each.ByteSize() for each in weights) < 40_000


def test_int8_is_near(exports: Exports, recording: np.ndarray) -> None:
    file = exports.file()
    backend, plain = build_backend("onnx-int8", file.runnable, CONTEXT), eager(file.model, CONTEXT)
    assert backend.kind == "onnx-int8"
    feats = audio.Fbank(80)(recording[None], recording[None, :0])[0]
    ours, theirs = (
        np.exp(each.step(feats, np.array([feats.shape[1]]), each.init_state(1)).frames)
        for each in (backend, plain)
    )
    assert 1e-5 < abs(ours - theirs).mean() < 0.02


@torch.inference_mode()
def test_int8_is_the_same_for_any_packets_and_neighbours(exports: Exports) -> None:
    backend = build_backend("onnx-int8", exports.file().runnable, CONTEXT)
    size, count = 4 * CHUNK, 5
    feats = (17 + np.random.default_rng(0).normal(size=(3, count * size, 80))).astype(np.float32)
    feats[1] += 20.0  # a loud neighbour, whose steps would be coarse
    whole = backend.step(feats, np.full(3, count * size), backend.init_state(3)).frames
    state, parts = backend.init_state(1), []
    for chunk in np.split(feats[:1], count, axis=1):
        output = backend.step(chunk, np.array([size]), state)
        parts.append(output.frames)
        state = output.state
    assert abs(np.concatenate(parts, axis=1) - whole[:1]).max() < 1e-5
    # Control: the state matters to it.
    other = backend.step(feats[:1, -size:], np.array([size]), backend.init_state(1)).frames
    assert abs(other - whole[:1, -CHUNK:]).max() > 1e-2


def test_int8_that_recognises_worse_is_not_written(
    exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("asrkit.export.onnx.write", lambda module, path, *_: copy(exports, path))
    output = tmp_path / "int8.onnx"
    arguments = ["--model", str(exports.model), "--format", "onnx-int8", "--output", str(output)]
    write_wav(tmp_path / "short.wav", np.zeros(200, dtype=np.float32))
    gone, short = (
        write_manifest(tmp_path / f"{name}.jsonl", {"id": "a", "audio": f"{name}.wav", "text": "a"})
        for name in ("gone", "short")
    )
    for most_lost, manifest, told in (
        (-1.0, ["--manifest", str(exports.dev)], "int8 not written: it costs more than"),
        (1000.0, ["--manifest", str(gone)], "no recording of the manifest could be read"),
        (1000.0, ["--manifest", str(short)], "too short for a frame"),
        (1000.0, [], "int8 needs a --manifest"),  # the model's dev set is not here
    ):
        monkeypatch.setattr("asrkit.commands.export.MOST_LOST", most_lost)
        assert export([*arguments, *LIVE, *manifest]) == 2
        assert told in capsys.readouterr().err
        assert not output.exists()


def copy(exports: Exports, path: Path) -> None:
    """The float32 file, from which the command makes that of int8, written no second time."""
    path.write_bytes(beside(exports, "onnx").read_bytes())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"backend": "onxx"}, "must be one of eager, .* did you mean 'onnx'"),
        ({"backend": "onnx", "chunk_size": 4}, "no export of this model for chunks of 160 ms"),
        (
            {"backend": "onnx-int8", "chunk_size": "full"},
            "for full context lies beside it; asrkit export --format onnx-int8 --chunk-ms full",
        ),
        ({"backend": Path("missing.onnx")}, "missing.onnx is not a file that asrkit export wrote"),
        ({"backend": Path("no.onnx")}, "no.onnx is not a file that asrkit export wrote"),
    ],
)
def test_mistakes(
    exports: Exports, options: dict, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("no.onnx").write_bytes(b"\x08\x07not a model")
    with pytest.raises(UserError, match=problem):
        load(exports.model, **({"chunk_size": CHUNK, "left_context": LEFT} | options))


def test_ready_models_are_not_written_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert export(["--model", "small-en-alnum", "--format", "onnx"]) == 2
    assert "name the output with --output" in capsys.readouterr().err
